// SPDX-License-Identifier: Apache-2.0
// tasks - the list: conditions in the address (so that a list can be kept and sent), a page at a time, rows that are brought up to date in
// place while one looks at them.
//
// The gateway filters by user, status, language and label. Text is searched here: the tasks that pass the other filters are read,
// the newest first, SCAN of them at most, until there is a page of them that contain it; then one may go on.

import * as api from "./api.js";
import {announce, byId, el, setText} from "./dom.js";
import * as languages from "./languages.js";
import {repeat, tell} from "./notice.js";
import * as words from "./words.js";

const PAGE = 25;
const SCAN = 5000;
const SCAN_PAGE = 1000;
const REFRESH_MS = 3000;
const SEARCH_AGAIN_MS = 60000; // it reads a lot
const FILTERS = ["text", "status", "language", "user", "label"];

let rows = new Map(); // id -> {node, text, ...cells}

// --- reading ------------------------------------------------------------------------------------------------------------

function query(conditions, after, limit) {
	const params = new URLSearchParams({limit});

	for (const name of ["status", "language", "user", "label"]) {
		if (conditions[name])
			params.set(name, conditions[name]);
	}
	if (after)
		params.set("after", after);
	return `tasks?${params}`;
}

function contains(task, needles) {
	const text = [task.id, task.user, task.status, task.verdict, words.standing(task).title, task.language, languages.title(task.language),
		task.executor, ...task.labels ?? []].join("\n").toLowerCase();

	return needles.every((needle) => text.includes(needle));
}

// {tasks, next}: a page; pages of the gateway may be short, or empty, while there are more.
async function readPage(conditions, after, signal) {
	const found = [];
	let next = after;

	do {
		const page = await api.get(query(conditions, next, PAGE - found.length), signal);
		found.push(...page.tasks);
		next = page.next;
	} while (next && found.length < PAGE);
	return {tasks: found, next};
}

// The same for tasks that contain the text. `scanned` is how many were read.
async function searchPage(conditions, after, signal) {
	const needles = conditions.text.toLowerCase().split(/\s+/).filter(Boolean), found = [];
	let next = after, scanned = 0;

	do {
		const page = await api.get(query(conditions, next, SCAN_PAGE), signal);
		scanned += page.tasks.length;
		found.push(...page.tasks.filter((task) => contains(task, needles)));
		next = page.next;
	} while (next && found.length < PAGE && scanned < SCAN);
	return {tasks: found, next, scanned};
}

// --- a row -----------------------------------------------------------------------------------------------------------------

function makeRow(id, problem) {
	const row = {text: "", badge: el("a", {href: `#/task/${id}`}), added: el("time"), language: el("span"), user: el("span"), labels: el("span"),
		took: el("span"), cancel: el("button", {type: "button", class: "plain", "aria-label": `Cancel task ${id}`}, "Cancel")};
	const cell = (title, ...content) => el("td", {"data-title": title}, ...content);

	row.cancel.addEventListener("click", () => onCancel(id, row, problem));
	row.node = el("tr", null,
		el("th", {scope: "row", "data-title": "Outcome"}, row.badge), cell("Submitted", row.added), cell("Language", row.language),
		cell("User", row.user), cell("Labels", row.labels), cell("Took", row.took),
		cell("Number", el("code", {title: id}, id.slice(0, 8), "…", id.slice(-4))), cell("", row.cancel));
	return row;
}

function fillRow(row, task) {
	const text = JSON.stringify(task), standing = words.standing(task);

	if (text === row.text)
		return;
	row.text = text;
	row.badge.className = `badge ${standing.tone}`;
	setText(row.badge, standing.title);
	row.added.dateTime = task.add_time;
	setText(row.added, words.moment(task.add_time));
	setText(row.language, languages.title(task.language));
	setText(row.user, task.user ?? "");
	setText(row.labels, (task.labels ?? []).join(", "));
	setText(row.took, task.done_time ? words.micros((new Date(task.done_time) - new Date(task.add_time)) * 1000) : "");
	for (const span of [row.user, row.labels, row.took])
		span.parentNode.classList.toggle("none", span.textContent === "");
	if (task.done && document.activeElement === row.cancel)
		row.badge.focus();
	row.cancel.hidden = task.done;
	row.cancel.parentNode.classList.toggle("none", task.done);
}

async function onCancel(id, row, problem) {
	row.cancel.setAttribute("aria-disabled", "true");
	try {
		fillRow(row, await api.cancel(id));
		announce(`Task ${id} is cancelled.`);
		tell(problem, null);
	} catch (error) {
		tell(problem, error);
	}
	row.cancel.removeAttribute("aria-disabled");
}

// --- the table --------------------------------------------------------------------------------------------------------------

function frame() {
	const view = {body: el("tbody"), summary: el("p", {class: "hint", id: "tasks-summary"}), older: el("a", {class: "second button"}, "Older tasks"),
		newest: el("a", {class: "second button"}, "Newest tasks")};

	view.table = el("table", {class: "tasks", "aria-describedby": "tasks-summary"},
		el("thead", null, el("tr", null, ["Outcome", "Submitted", "Language", "User", "Labels", "Took", "Number"]
			.map((title) => el("th", {scope: "col"}, title)), el("td"))), view.body);
	view.older.hidden = view.newest.hidden = view.table.hidden = true;
	byId("tasks-list").replaceChildren(view.summary, view.table, el("nav", {class: "pages", "aria-label": "Further tasks"}, view.newest, view.older));
	return view;
}

function address(conditions, after) {
	const params = new URLSearchParams();

	for (const name of FILTERS) {
		if (conditions[name])
			params.set(name, conditions[name]);
	}
	if (after)
		params.set("after", after);
	return `#/tasks${params.size ? `?${params}` : ""}`;
}

function summary(page, conditions, after) {
	const filtered = FILTERS.some((name) => conditions[name]);
	const searched = page.scanned === undefined ? "" : ` among ${words.count(page.scanned, "task", "tasks")}${page.next ? "; older ones have not been searched yet" : ""}`;

	if (page.tasks.length)
		return `${words.count(page.tasks.length, "task", "tasks")}${searched}${after ? ", older than those before" : ", the newest first"}`;
	return filtered ? `No task is like that${searched}.` : after ? "There are no older tasks." : "There are no tasks yet.";
}

function showPage(view, page, conditions, after) {
	const problem = byId("tasks-problem"), nodes = [], seen = new Map();

	for (const task of page.tasks) {
		const row = rows.get(task.id) ?? makeRow(task.id, problem);
		fillRow(row, task);
		seen.set(task.id, row);
		nodes.push(row.node);
	}
	rows = seen;
	// Moving a node takes the focus from what is in it: only what is new or gone is touched.
	for (const node of [...view.body.children]) {
		if (!nodes.includes(node))
			node.remove();
	}
	nodes.forEach((node, i) => {
		if (view.body.children[i] !== node)
			view.body.insertBefore(node, view.body.children[i] ?? null);
	});
	setText(view.summary, summary(page, conditions, after));
	view.table.hidden = !page.tasks.length;
	view.older.hidden = !page.next;
	view.older.href = page.next ? address(conditions, page.next) : "#/tasks";
	view.newest.hidden = !after;
	view.newest.href = address(conditions);
}

// --- the filters --------------------------------------------------------------------------------------------------------------

function option(value, title) {
	return el("option", {value}, title);
}

function onSearch(event) {
	const conditions = {};

	event.preventDefault();
	for (const name of FILTERS)
		conditions[name] = byId(`f-${name}`).value.trim();
	if (/^[0-9a-f]{24}$/.test(conditions.text))
		location.hash = `#/task/${conditions.text}`;
	else if (location.hash !== address(conditions))
		location.hash = address(conditions);
	else
		dispatchEvent(new Event("hashchange")); // look again
}

export function setUp() {
	const titles = {compile_failed: "Compile error", run_failed: "Stopped or crashed", success: "Ran to the end (right or wrong)", error: "System error"};

	byId("f-status").append(option("", "Any"), ...Object.entries(words.STATUSES).map(([name, row]) => option(name, titles[name] ?? row.title)));
	byId("f-language").append(option("", "Any"));
	byId("filters").addEventListener("submit", onSearch);
	for (const name of ["status", "language"])
		byId(`f-${name}`).addEventListener("change", () => byId("filters").requestSubmit());
}

async function loadLanguages(wanted, signal) {
	const select = byId("f-language");

	await languages.load(signal).catch(() => {});
	languages.fill(select, [option("", "Any"), ...languages.all().map((language) => option(language.name, language.title))]);
	if (wanted && !languages.find(wanted))
		select.append(option(wanted, wanted));
	select.value = wanted;
}

export async function enter(match, signal, params) {
	const conditions = Object.fromEntries(FILTERS.map((name) => [name, params.get(name) ?? ""])), after = params.get("after");
	const view = frame();
	let first = true;

	rows = new Map();
	byId("f-clear").hidden = !FILTERS.some((name) => conditions[name]);
	await loadLanguages(conditions.language, signal);
	for (const name of FILTERS)
		byId(`f-${name}`).value = conditions[name];
	await repeat(async () => {
		const page = await (conditions.text ? searchPage : readPage)(conditions, after, signal);

		showPage(view, page, conditions, after);
		if (first)
			announce(view.summary.textContent);
		first = false;
	}, conditions.text ? SEARCH_AGAIN_MS : REFRESH_MS, byId("tasks-problem"), signal);
}
