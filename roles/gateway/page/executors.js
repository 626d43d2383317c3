// SPDX-License-Identifier: Apache-2.0
// executors - who judges, and how busy they are; with the last hour as a chart, where the gateway has the numbers.

import * as api from "./api.js";
import {makeChart} from "./chart.js";
import {byId, el, setText} from "./dom.js";
import * as languages from "./languages.js";
import {repeat} from "./notice.js";
import * as words from "./words.js";

const LOAD_MS = 2000;
const CHART_MS = 10000;

function load(executor) {
	const filled = el("span");

	filled.style.width = `${Math.min(executor.running / Math.max(executor.slots, 1), 1) * 100}%`;
	return el("div", {class: "load"},
		el("div", {class: "meter", role: "meter", "aria-valuemin": 0, "aria-valuemax": executor.slots, "aria-valuenow": executor.running,
			"aria-label": `Load of ${executor.name}`}, filled),
		el("span", null, `${executor.running} of ${words.count(executor.slots, "slot", "slots")} busy`));
}

// "raw" is no language: it says that commands alone are run, too.
function named(executor) {
	return executor.languages.filter((name) => name !== "raw");
}

function toolchains(executor) {
	return el("dl", {class: "tools"}, named(executor).map((name) => el("div", null,
		el("dt", null, languages.title(name)), el("dd", null, executor.toolchains?.[name] ?? ""))));
}

function card(executor) {
	const fold = el("details", {class: "fold"}, el("summary", null, words.count(named(executor).length, "language", "languages")), toolchains(executor));

	return el("li", {class: `executor ${executor.alive ? "" : "dead"}`},
		el("div", {class: "executor-head"}, el("h3", null, executor.name),
			el("span", {class: `badge ${executor.alive ? "good" : "bad"}`}, executor.alive ? "alive" : "dead")),
		executor.alive ? load(executor) : null,
		el("p", {class: "hint"}, [executor.isolation && `isolation: ${executor.isolation}`, executor.version && `version ${executor.version}`,
			executor.seen && `seen ${words.ago(executor.seen)}`].filter(Boolean).join(" · ")), fold);
}

// What was open stays open, and who has the focus keeps it.
function showList(list, executors, last) {
	const text = JSON.stringify(executors);

	if (text === last)
		return text;
	const open = new Set([...list.querySelectorAll("details[open]")].map((node) => node.closest("li").querySelector("h3").textContent));
	const focused = document.activeElement?.closest?.(".executor")?.querySelector("h3").textContent;
	list.replaceChildren(...executors.map(card));
	for (const node of list.children) {
		const name = node.querySelector("h3").textContent;
		node.querySelector("details").open = open.has(name);
		if (name === focused)
			node.querySelector("summary").focus();
	}
	return text;
}

function summary(executors) {
	const alive = executors.filter((one) => one.alive), total = (name) => alive.reduce((n, one) => n + one[name], 0);

	if (!alive.length)
		return "No executor is alive: tasks wait until one comes.";
	return `${words.count(alive.length, "executor", "executors")}, ${total("running")} of ${words.count(total("slots"), "slot", "slots")} busy.`;
}

function hourSummary(stats) {
	const sum = (list) => list.reduce((n, value) => n + (value ?? 0), 0), done = sum(stats.done);

	return `${words.count(stats.now.pending, "task waits", "tasks wait")}. In the last hour ${sum(stats.added)} submitted, ${done} done` +
		`${done ? `, ${Math.round(sum(stats.accepted) / done * 100)} % of them accepted` : ""}.`;
}

function frame() {
	const view = {summary: el("p", {class: "lead"}), problem: el("div", {class: "notice bad", role: "alert", hidden: true}),
		list: el("ul", {class: "executors"}), hour: el("section", {"aria-labelledby": "hour-title", hidden: true}), chart: el("div"),
		hourSummary: el("p", {class: "hint"}), hourProblem: el("div", {class: "notice bad", hidden: true})};

	view.hour.append(el("h2", {id: "hour-title"}, "The last hour"), view.hourSummary, view.chart);
	byId("view-executors").replaceChildren(el("h1", {tabindex: "-1"}, "Executors"), view.summary, view.problem, view.hour,
		el("section", {"aria-labelledby": "each-title"}, el("h2", {id: "each-title"}, "Each executor"), view.list), view.hourProblem);
	return view;
}

async function showHour(view, signal) {
	const chart = makeChart(view.chart);

	await repeat(async () => {
		let stats;
		try {
			stats = await api.get("stats", signal);
		} catch (error) {
			if (error.status === 404) { // a gateway without them
				view.hour.hidden = true;
				return;
			}
			throw error;
		}
		view.hour.hidden = false;
		setText(view.hourSummary, hourSummary(stats));
		chart.draw(stats);
	}, CHART_MS, view.hourProblem, signal);
}

async function showExecutors(view, signal) {
	let last = "";

	await languages.load(signal).catch(() => {}); // titles only
	await repeat(async () => {
		const {executors} = await api.get("executors", signal);

		setText(view.summary, summary(executors));
		last = showList(view.list, executors, last);
	}, LOAD_MS, view.problem, signal);
}

export async function enter(match, signal) {
	const view = frame();

	await Promise.all([showHour(view, signal), showExecutors(view, signal)]);
}
