// SPDX-License-Identifier: Apache-2.0
// task - one task: how far it is, while it is not done; then what came of it. What programs and compilers printed is shown as text.

import * as api from "./api.js";
import {announce, byId, el, setText} from "./dom.js";
import * as languages from "./languages.js";
import {tell} from "./notice.js";
import {printed, shown, showFile} from "./printed.js";
import {copyToForm} from "./submit.js";
import * as words from "./words.js";

const STEPS = [["pending", "Waiting"], ["compiling", "Compiling"], ["running", "Running"], ["done", "Done"]];

// --- what was printed -----------------------------------------------------------------------------------------------

function outputs(phase, prefix, names) {
	return ["stdout", "stderr"].map((stream) => printed({title: names[stream], value: phase[stream],
		total: phase[`${stream}_bytes`] ?? words.toBytes(phase[stream]).length, left: phase[`${stream}_truncated`] && "the middle is left out",
		file: `${prefix}-${stream}.txt`}));
}

// --- facts and figures ------------------------------------------------------------------------------------------------

function facts(rows) {
	return el("dl", {class: "facts"}, rows.filter(([, value]) => value !== null && value !== undefined && value !== "")
		.map(([name, value]) => el("div", null, el("dt", null, name), el("dd", null, value))));
}

function figures(phase) {
	return facts([["CPU time", words.micros(phase.cpu_us)], ["Wall time", words.micros(phase.wall_us)],
		["Memory", words.bytes(phase.memory_bytes)]]);
}

function limitLine(fired) {
	const {title, text} = words.limit(fired);

	return el("p", {class: "limit"}, el("strong", null, `${title}: `), text);
}

function labelsOf(task) {
	return task.labels?.length ? task.labels.map((label, i) => [i ? ", " : "",
		el("a", {href: `#/tasks?label=${encodeURIComponent(label)}`}, label)]).flat() : null;
}

function took(task) {
	return task.done_time && task.add_time ? words.micros((new Date(task.done_time) - new Date(task.add_time)) * 1000) : null;
}

function taskFacts(task) {
	const dd = (content) => content && el("span", null, ...[content].flat());

	return facts([
		["Score", task.max_score > 1 && task.score !== null ? `${task.score} of ${task.max_score}` : null],
		["Language", languages.title(task.language)],
		["Submitted", task.add_time && el("time", {datetime: task.add_time}, words.moment(task.add_time))],
		["Done after", took(task)],
		["User", task.user],
		["Labels", dd(labelsOf(task))],
		["Executor", task.executor],
		["Attempt", task.attempt > 1 ? String(task.attempt) : null],
		["Sandbox", task.isolation && task.isolation !== "full" ? `isolation: ${task.isolation}` : null],
		["Number", el("code", null, task.id)],
	]);
}

// --- the compiler and the cases -----------------------------------------------------------------------------------------

function compileBody(compile) {
	const parts = outputs(compile, "compiler", {stdout: "The compiler's output", stderr: "The compiler's messages"});

	return [...remarks(compile), ...parts, parts.every((part) => !part) && el("p", {class: "hint"}, "The compiler said nothing."), figures(compile)];
}

function compileSection(task) {
	const compile = task.compile, failed = task.status === "compile_failed";

	if (!compile)
		return null;
	if (failed)
		return el("section", {class: "compile", "aria-labelledby": "compile-title"}, el("h2", {id: "compile-title"}, "The compiler"), compileBody(compile));
	const said = compile.stdout_bytes || compile.stderr_bytes;
	return el("details", {class: "fold compile"},
		el("summary", null, el("h2", null, "The compiler"), el("span", {class: "fold-facts"},
			said ? "has remarks · " : "", words.micros(compile.cpu_us), " · ", words.bytes(compile.memory_bytes))),
		compileBody(compile));
}

// The limit that fired, where the output differs, how it ended: as far as there is something to say.
function remarks(phase) {
	const ending = phase.limit ? null : words.ending(phase);

	return [phase.limit && limitLine(phase.limit), phase.message && el("p", {class: "message"}, shown(phase.message)),
		ending && el("p", null, ending)].filter(Boolean);
}

function caseBody(task, one, i, signal) {
	const [output, error] = outputs(one, `case-${i + 1}`, {stdout: "Output", stderr: "Standard error"});
	const input = el("span"), expected = el("span");
	const parts = el("div", {class: "parts"}, output ?? el("p", {class: "hint"}, "The program printed nothing."), expected, input, error);

	showFile(input, task.id, `cases/${i}/input`, "Input", null, signal);
	showFile(expected, task.id, `cases/${i}/expected`, "Expected output", "Any output is right.", signal);
	return [parts, figures(one)];
}

function casePoints(task, one) {
	return task.max_score !== undefined && task.max_score !== task.cases.length && one.points !== undefined ? ` · ${words.count(one.points, "point", "points")}` : "";
}

function caseFold(task, one, i, open, signal) {
	const verdict = one.verdict ? words.verdict(one.verdict) : {title: "Not run", tone: "quiet"};
	const node = el("details", {class: "fold"},
		el("summary", null, el("h3", null, `Case ${i + 1}`), el("span", {class: `badge ${verdict.tone}`}, verdict.title),
			el("span", {class: "fold-facts"}, words.micros(one.cpu_us), " · ", words.bytes(one.memory_bytes), casePoints(task, one))));
	const build = () => {
		if (node.open && node.children.length === 1)
			node.append(...remarks(one), ...caseBody(task, one, i, signal));
	};

	node.addEventListener("toggle", build); // a thousand cases are not built at once
	node.open = open;
	build();
	return node;
}

function casesSection(task, signal) {
	const cases = task.cases ?? [];

	if (!cases.length)
		return null;
	if (cases.length === 1)
		return el("section", {"aria-labelledby": "cases-title"}, el("h2", {id: "cases-title"}, "The run"), caseBody(task, cases[0], 0, signal));
	const failing = cases.findIndex((one) => one.verdict !== "accepted");
	const right = cases.filter((one) => one.verdict === "accepted").length;
	return el("section", {"aria-labelledby": "cases-title"},
		el("h2", {id: "cases-title"}, "The cases"), el("p", {class: "hint"}, `${right} of ${cases.length} accepted`),
		cases.map((one, i) => caseFold(task, one, i, i === failing, signal)));
}

// --- the source ---------------------------------------------------------------------------------------------------------

// Of a task in a language, and not of several files: then there is no one source.
function sourceFold(task, problem, signal) {
	const name = languages.find(task.language)?.source, source = el("span");

	if (!name)
		return null;
	const onCopy = async () => {
		try {
			await copyToForm(task, name, signal);
		} catch (error) {
			if (!signal.aborted)
				tell(problem, error);
		}
	};
	const copy = el("button", {type: "button", class: "second", onclick: onCopy}, "Edit a copy");
	const node = el("details", {class: "fold source"}, el("summary", null, el("h2", null, "The source"), el("span", {class: "fold-facts"}, name)), source, copy);
	let loaded = false;
	const load = () => {
		if (node.open && !loaded)
			showFile(source, task.id, `compile/${encodeURIComponent(name)}`, name, "It was submitted as several files.", signal);
		loaded ||= node.open;
	};

	node.addEventListener("toggle", load);
	node.open = task.status === "compile_failed";
	load();
	return node;
}

// --- the head -------------------------------------------------------------------------------------------------------------

// The phase that decided: a failed compiler, or the first case that is not accepted.
function culprit(task) {
	return task.status === "compile_failed" ? task.compile : task.cases?.find((one) => one.verdict && one.verdict !== "accepted");
}

function why(task) {
	const phase = culprit(task), i = task.cases?.indexOf(phase) ?? -1;
	const where = i >= 0 && task.cases.length > 1 ? el("p", null, `First in case ${i + 1} of ${task.cases.length}.`) : null;

	return [...phase && phase !== task.compile ? remarks(phase) : [phase?.limit && limitLine(phase.limit)], task.message && el("p", {class: "message"}, shown(task.message)), where];
}

function noteOf(task) {
	if (task.done)
		return words.verdict(task.verdict).note;
	if (task.status === "running" && task.case)
		return task.case > 1 ? `Case ${task.case} is running.` : words.STATUSES.running.note;
	return words.STATUSES[task.status]?.note ?? "";
}

function steps(task) {
	const at = task.done ? 3 : Math.max(0, STEPS.findIndex(([status]) => status === task.status));

	return el("ol", {class: "steps"}, STEPS.map(([, title], i) => el("li", {class: i < at ? "past" : i === at ? "now" : null,
		"aria-current": i === at ? "step" : null}, title)));
}

async function onCancel(id, button, problem, show) {
	button.setAttribute("aria-disabled", "true");
	try {
		show(await api.cancel(id));
	} catch (error) {
		if (error.code !== "task_done") // then it is about to be shown
			tell(problem, error);
		button.removeAttribute("aria-disabled");
	}
}

// The frame of the view; parts are replaced as the task goes on, and the heading keeps the focus.
function frame(id) {
	const view = {title: el("h1", {tabindex: "-1"}, "Task"), note: el("p", {class: "note"}), why: el("div", {class: "why"}),
		steps: el("div"), bar: el("div", {class: "busy", "aria-hidden": "true"}), problem: el("div", {class: "notice bad", role: "alert", hidden: true}),
		facts: el("div", {class: "about"}), results: el("div", {class: "results"}), cancel: el("button", {type: "button", class: "second", hidden: true}, "Cancel"),
		again: el("a", {class: "second button", href: "#/", hidden: true}, "Back to the form")};

	view.head = el("div", {class: "verdict"}, view.title, view.note, view.why, view.steps,
		el("div", {class: "actions"}, view.cancel, view.again), view.bar);
	byId("view-task").replaceChildren(
		el("p", {class: "crumb"}, el("a", {href: "#/tasks"}, "Tasks"), " / ", el("span", null, id)),
		view.head, view.problem, view.facts, view.results);
	return view;
}

function present(view, task, signal) {
	const standing = words.standing(task);

	view.head.className = `verdict ${standing.tone}`;
	setText(view.title, standing.title);
	setText(view.note, noteOf(task));
	view.why.replaceChildren(...why(task).filter(Boolean));
	view.steps.replaceChildren(...task.done ? [] : [steps(task)]);
	view.bar.hidden = task.done;
	view.facts.replaceChildren(taskFacts(task));
	view.cancel.hidden = task.done;
	view.again.hidden = !task.done;
	document.title = `${standing.title} · Conclave`;
	if (task.done)
		view.results.replaceChildren(...[compileSection(task), casesSection(task, signal), sourceFold(task, view.problem, signal)].flat().filter(Boolean));
}

function spoken(task) {
	const fired = culprit(task)?.limit;

	return `${words.standing(task).title}. ${fired ? `${words.limit(fired).title}: ${words.limit(fired).text}.` : ""}`;
}

export async function enter([, id], signal) {
	const view = frame(id);
	let last = "";

	const show = (task) => {
		const text = JSON.stringify(task);
		const hadFocus = document.activeElement === view.cancel;

		if (signal.aborted || text === last)
			return;
		last = text;
		present(view, task, signal);
		if (hadFocus && view.cancel.hidden)
			view.title.focus();
		announce(spoken(task));
	};
	view.cancel.addEventListener("click", () => onCancel(id, view.cancel, view.problem, show));
	if (!languages.all().length) // titles only
		await languages.load(signal).catch(() => {});
	try {
		await api.follow(id, show, (problem) => tell(view.problem, problem), signal);
	} catch (error) {
		if (signal.aborted)
			return;
		if (!(error instanceof api.Problem))
			throw error;
		if (!last) {
			setText(view.title, error.status === 404 ? "No such task" : "Task");
			view.bar.hidden = true;
		}
		tell(view.problem, error);
	}
}
