// SPDX-License-Identifier: Apache-2.0
// chart - the last hour by the minute, drawn from GET /api/v1/stats: what was done and added, and under it the queue. The same numbers are there
// as a table, for those who cannot see the picture and those who want a number.

import {el, svg} from "./dom.js";
import {clock, count} from "./words.js";

const HEIGHT = 132; // of a panel
const TOP = 10, BOTTOM = 20, LEFT = 36, RIGHT = 8;

// The smallest round number that is not below n: 1, 2, 5, 10, 20 ...
function roundUp(n) {
	const power = 10 ** Math.floor(Math.log10(Math.max(n, 1)));

	return [1, 2, 5, 10].map((m) => m * power).find((m) => m >= n) ?? 10 * power;
}

function sum(list) {
	return list.reduce((total, n) => total + (n ?? 0), 0);
}

function scales(stats, width, top) {
	const n = stats.added.length, step = (width - LEFT - RIGHT) / n, plot = HEIGHT - TOP - BOTTOM;

	return {n, step, x: (i) => LEFT + i * step, y: (value) => TOP + plot * (1 - value / top), top};
}

// The frame: lines at 0, the half and the top, and the time of each quarter of an hour.
function axes(stats, s, width) {
	const start = new Date(stats.start).getTime(), nodes = [];

	for (const value of [...new Set([0, s.top / 2, s.top])].filter(Number.isInteger)) {
		nodes.push(svg("line", {class: "grid-line", x1: LEFT, x2: width - RIGHT, y1: s.y(value), y2: s.y(value)}),
			svg("text", {class: "tick", x: LEFT - 6, y: s.y(value) + 4, "text-anchor": "end"}, String(value)));
	}
	for (let i = 0; i < s.n; i += 15)
		nodes.push(svg("text", {class: "tick", x: s.x(i), y: HEIGHT - 4}, clock(new Date(start + i * stats.step_s * 1000)).slice(0, 5)));
	nodes.push(svg("text", {class: "tick", x: width - RIGHT, y: HEIGHT - 4, "text-anchor": "end"}, "now"));
	return nodes;
}

function bars(name, s, from, to) {
	const nodes = [];

	for (let i = 0; i < s.n; i++) {
		if (to[i] > from[i])
			nodes.push(svg("rect", {class: name, x: s.x(i) + s.step * 0.12, width: Math.max(s.step * 0.76, 1), y: s.y(to[i]),
				height: s.y(from[i]) - s.y(to[i])}));
	}
	return nodes;
}

// A line through the middles of the minutes that are known.
function line(name, s, values) {
	let path = "", pen = "M";

	values.forEach((value, i) => {
		if (value === null || value === undefined) {
			pen = "M";
			return;
		}
		path += `${pen}${(s.x(i) + s.step / 2).toFixed(1)} ${s.y(value).toFixed(1)}`;
		// A minute alone between unknown ones would be no line: a short stroke marks it.
		if (pen === "M" && (values[i + 1] ?? null) === null)
			path += `h${Math.max(s.step / 2, 2).toFixed(1)}`;
		pen = "L";
	});
	return path ? [svg("path", {class: name, d: path})] : [];
}

function titles(stats, s, text) {
	const start = new Date(stats.start).getTime();

	return Array.from({length: s.n}, (_, i) => svg("rect", {class: "hit", x: s.x(i), width: s.step, y: 0, height: HEIGHT - BOTTOM},
		svg("title", null, `${clock(new Date(start + i * stats.step_s * 1000)).slice(0, 5)}  ${text(i)}`)));
}

function panel(width, label, ...nodes) {
	return svg("svg", {class: "panel", role: "img", "aria-label": label, width, height: HEIGHT, viewBox: `0 0 ${width} ${HEIGHT}`}, ...nodes);
}

function legend(...entries) {
	return el("ul", {class: "legend"}, entries.map(([name, title]) => el("li", null, el("span", {class: `key ${name}`, "aria-hidden": "true"}), title)));
}

function throughput(stats, width) {
	const zero = stats.done.map(() => 0), s = scales(stats, width, roundUp(Math.max(2, ...stats.done, ...stats.added)));
	const label = `Tasks a minute in the last hour: ${sum(stats.added)} submitted, ${sum(stats.done)} done, ${sum(stats.accepted)} of them accepted.`;

	return [el("h3", null, "Tasks a minute"),
		legend(["accepted", "accepted"], ["other", "done otherwise"], ["added", "submitted"]),
		panel(width, label, axes(stats, s, width), bars("accepted", s, zero, stats.accepted), bars("other", s, stats.accepted, stats.done),
			line("added", s, stats.added),
			titles(stats, s, (i) => `${stats.added[i]} submitted, ${stats.done[i]} done, ${stats.accepted[i]} accepted`))];
}

function queue(stats, width) {
	const known = [...stats.pending, ...stats.running].filter((n) => n !== null);
	const s = scales(stats, width, roundUp(Math.max(2, ...known)));
	const label = known.length ? `The queue in the last hour: at most ${count(Math.max(0, ...stats.pending), "task", "tasks")} waiting and ${Math.max(0, ...stats.running)} running.` :
		"The queue in the last hour: nothing is known yet.";

	return [el("h3", null, "The queue"), legend(["pending", "waiting"], ["running", "running"]),
		panel(width, label, axes(stats, s, width), line("pending", s, stats.pending), line("running", s, stats.running),
			titles(stats, s, (i) => stats.pending[i] === null ? "not known" : `${stats.pending[i]} waiting, ${stats.running[i] ?? "?"} running`))];
}

function table(stats) {
	const start = new Date(stats.start).getTime(), names = ["added", "done", "accepted", "pending", "running"];
	const body = stats.added.map((_, i) => el("tr", null, el("th", {scope: "row"}, clock(new Date(start + i * stats.step_s * 1000)).slice(0, 5)),
		names.map((name) => el("td", null, String(stats[name][i] ?? "–"))))).reverse();

	return el("div", {class: "scroll", tabindex: "0", role: "region", "aria-label": "The last hour as a table"}, el("table", {class: "numbers"},
		el("thead", null, el("tr", null, ["Minute", "Submitted", "Done", "Accepted", "Waiting", "Running"].map((title) => el("th", {scope: "col"}, title)))),
		el("tbody", null, body)));
}

// A chart in the node; draw(stats) shows other numbers in it. It follows the node's width.
export function makeChart(node) {
	const pictures = el("div", {class: "chart"}), numbers = el("details", {class: "fold"}, el("summary", null, "As a table"));
	let stats = null, width = 0;

	const paint = () => {
		width = Math.floor(pictures.clientWidth);
		if (!stats || !width)
			return;
		const wide = width >= 720, each = wide ? Math.floor((width - 32) / 2) : width;
		pictures.replaceChildren(el("div", null, throughput(stats, each)), el("div", null, queue(stats, each)));
	};
	const tabulate = () => {
		numbers.querySelector("div")?.remove();
		if (numbers.open && stats)
			numbers.append(table(stats));
	};

	numbers.addEventListener("toggle", tabulate);
	new ResizeObserver(() => {
		if (Math.floor(pictures.clientWidth) !== width)
			paint();
	}).observe(pictures);
	node.replaceChildren(pictures, numbers);
	return {draw(next) {
		stats = next;
		paint();
		if (!numbers.contains(document.activeElement)) // somebody reads it
			tabulate();
	}};
}
