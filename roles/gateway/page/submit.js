// SPDX-License-Identifier: Apache-2.0
// submit - the form: what is in it becomes a task, and the way leads on to that task's page.
//
// The form stays in the document when another view is open, so going back finds it as it was; a reload finds the draft, which is kept
// for this tab. A submission has one Idempotency-Key as long as its content is the same and nobody has answered: a double click, or a
// second try after the network failed, is one task.

import * as api from "./api.js";
import {announce, byId, el} from "./dom.js";
import {EXAMPLES, EXPECTED, INPUT} from "./examples.js";
import * as languages from "./languages.js";
import {repeat, tell} from "./notice.js";

const DRAFT = "conclave-draft";
const DRAFT_MAX = 512 * 1024;
const SOURCE_MAX = 1024 * 1024;
const LINES_MAX = 20000; // numbered
const MIB = 1024 * 1024;

// id of the input, place in the task, what one unit of it is
const LIMITS = [["cpu_ms", "cpu_ms", 1], ["wall_ms", "wall_ms", 1], ["memory", "memory_bytes", MIB],
	["output", "output_bytes", 1024], ["processes", "processes", 1]];
const PLAIN = ["language", "source", "checker", "cpu_ms", "wall_ms", "memory", "output", "processes", "abs", "rel", "labels",
	"user", "priority"];

let sent = {text: "", key: ""}; // the last submission that nobody has answered
let sending = false;
let cases = []; // {node, input, expected, points}

// --- cases -----------------------------------------------------------------------------------------------------

function caseField(label, control, hint) {
	const hintId = `${control.id}-hint`;

	if (hint)
		control.setAttribute("aria-describedby", hintId);
	return el("div", {class: "field"}, el("label", {for: control.id}, label), control, hint && el("p", {class: "hint", id: hintId}, hint));
}

let made = 0;

function addCase(values = {}) {
	const n = ++made;
	const area = (name) => el("textarea", {id: `${name}-${n}`, rows: 5, spellcheck: "false", autocapitalize: "off", wrap: "off", class: "code"});
	const one = {input: area("input"), expected: area("expected"),
		points: el("input", {id: `points-${n}`, inputmode: "numeric", placeholder: "1"})};

	one.legend = el("legend");
	one.remove = el("button", {type: "button", class: "plain", onclick: () => removeCase(one)}, "Remove this case");
	one.pointsField = caseField("Points", one.points);
	one.node = el("fieldset", {class: "case"}, one.legend, caseField("Input", one.input),
		caseField("Expected output", one.expected, "Left empty, any output is right."),
		el("div", {class: "case-foot"}, one.pointsField, one.remove));
	for (const name of ["input", "expected", "points"])
		one[name].value = values[name] ?? "";
	cases.push(one);
	byId("cases").append(one.node);
	nameCases();
	return one;
}

function removeCase(one) {
	cases = cases.filter((other) => other !== one);
	one.node.remove();
	nameCases();
	cases[cases.length - 1].input.focus();
	announce("The case was removed.");
	saveDraft();
}

// With one case there is nothing to number, to weigh or to remove.
function nameCases() {
	cases.forEach((one, i) => {
		one.legend.textContent = cases.length > 1 ? `Case ${i + 1}` : "Test";
		one.pointsField.hidden = one.remove.hidden = cases.length < 2;
	});
}

// --- the draft ---------------------------------------------------------------------------------------------------

function saveDraft() {
	const draft = {cases: cases.map((one) => ({input: one.input.value, expected: one.expected.value, points: one.points.value})),
		stop: byId("stop").checked, more: byId("more").open};

	for (const id of PLAIN)
		draft[id] = byId(id).value;
	const text = JSON.stringify(draft);
	try {
		if (text.length <= DRAFT_MAX)
			sessionStorage.setItem(DRAFT, text);
		else
			sessionStorage.removeItem(DRAFT);
	} catch {
		// no room: then a reload loses it
	}
}

function readDraft() {
	try {
		return JSON.parse(sessionStorage.getItem(DRAFT)) ?? {};
	} catch {
		return {};
	}
}

function restoreDraft() {
	const draft = readDraft();

	for (const id of PLAIN) {
		if (id !== "language" && typeof draft[id] === "string")
			byId(id).value = draft[id];
	}
	byId("stop").checked = Boolean(draft.stop);
	byId("more").open = Boolean(draft.more);
	for (const values of draft.cases?.length ? draft.cases : [{}])
		addCase(values);
	showFloat();
	numberLines();
}

// --- the editor --------------------------------------------------------------------------------------------------

let numbered = 1;

function numberLines() {
	const source = byId("source"), gutter = byId("gutter");
	let lines = 1;

	for (let at = source.value.indexOf("\n"); at >= 0 && lines <= LINES_MAX; at = source.value.indexOf("\n", at + 1))
		lines++;
	gutter.hidden = lines > LINES_MAX;
	if (lines !== numbered && lines <= LINES_MAX)
		gutter.textContent = Array.from({length: lines}, (_, i) => i + 1).join("\n");
	numbered = lines;
	gutter.scrollTop = source.scrollTop;
}

// As typed, so that undo knows it.
function insert(text) {
	const source = byId("source");

	if (document.execCommand("insertText", false, text))
		return;
	source.setRangeText(text, source.selectionStart, source.selectionEnd, "end");
	source.dispatchEvent(new Event("input"));
}

function setUpEditor() {
	const source = byId("source");
	let leaving = false; // Escape was pressed: the next Tab leaves

	source.addEventListener("keydown", (event) => {
		const tab = event.key === "Tab" && !event.shiftKey && !event.ctrlKey && !event.altKey && !event.metaKey;

		if (tab && !leaving) {
			event.preventDefault();
			insert("\t");
		}
		if (!["Shift", "Control", "Alt", "Meta"].includes(event.key))
			leaving = event.key === "Escape";
	});
	source.addEventListener("blur", () => leaving = false);
	source.addEventListener("input", numberLines);
	source.addEventListener("scroll", () => byId("gutter").scrollTop = source.scrollTop);
}

async function openFile(file) {
	let text;

	setError("source", null);
	if (file.size > SOURCE_MAX)
		return setError("source", `${file.name} is larger than the 1 MiB a source may have.`);
	try {
		text = new TextDecoder("utf-8", {fatal: true}).decode(await file.arrayBuffer());
	} catch {
		return setError("source", `${file.name} cannot be read as UTF-8 text, so it cannot be edited here. Submit it with the command conclave.`);
	}
	byId("source").value = text;
	const language = languages.ofFile(file.name);
	if (language && languages.find(byId("language").value)?.extensions.every((e) => !file.name.toLowerCase().endsWith(`.${e}`)))
		chooseLanguage(language);
	numberLines();
	saveDraft();
	byId("source").focus();
	announce(`${file.name} was opened.`);
}

function setUpFiles() {
	const open = byId("open"), editor = byId("editor");

	byId("open-button").addEventListener("click", () => open.click());
	open.addEventListener("change", () => {
		if (open.files.length)
			openFile(open.files[0]);
		open.value = "";
	});
	editor.addEventListener("dragover", (event) => {
		if ([...event.dataTransfer.types].includes("Files")) {
			event.preventDefault();
			editor.classList.add("over");
		}
	});
	editor.addEventListener("dragleave", () => editor.classList.remove("over"));
	editor.addEventListener("drop", (event) => {
		editor.classList.remove("over");
		if (event.dataTransfer.files.length) {
			event.preventDefault();
			openFile(event.dataTransfer.files[0]);
		}
	});
}

// --- the language ------------------------------------------------------------------------------------------------

function chooseLanguage(name) {
	byId("language").value = name;
	noteLanguage();
}

function noteLanguage() {
	const language = languages.find(byId("language").value), note = byId("language-note");

	note.hidden = !language;
	if (language)
		note.textContent = language.executors.length ? language.executors[0].version ?? "" :
			"No executor offers this language at the moment: the task would wait until one does.";
	byId("example").hidden = !EXAMPLES[language?.name];
}

function showLanguages(list) {
	const select = byId("language"), first = select.options.length === 0;
	const offered = list.filter((language) => language.executors.length);

	languages.fill(select, list.map((language) => el("option", {value: language.name},
		language.executors.length ? language.title : `${language.title} (nobody offers it now)`)));
	if (first) {
		const wanted = [readDraft().language, "cpp"].find((name) => name && languages.find(name));
		select.value = wanted ?? (offered[0] ?? list[0])?.name ?? "";
	}
	noteLanguage();
}

function fillExample() {
	const source = byId("source");

	source.focus();
	source.select();
	insert(EXAMPLES[byId("language").value]);
	while (cases.length > 1)
		removeCase(cases[cases.length - 1]);
	cases[0].input.value = INPUT;
	cases[0].expected.value = EXPECTED;
	byId("checker").value = "";
	showFloat();
	saveDraft();
	source.setSelectionRange(0, 0);
	source.scrollTop = 0;
	byId("send").focus();
	announce("The example is filled in: it reads two numbers and prints their sum.");
}

function showFloat() {
	byId("float").hidden = byId("checker").value !== "float";
}

// --- from a task to the form -----------------------------------------------------------------------------------------

const COPY_CASES = 20;
const COPY_MAX = 256 * 1024; // of an input or an expected output

function tooMuch(detail) {
	return new api.Problem({status: 413, detail}, 0);
}

async function textOf(path, max, signal) {
	const {bytes, total} = await api.fileOf(path, max, signal);

	if (total > max)
		throw tooMuch("A part of this task is too large to be edited here.");
	try {
		return new TextDecoder("utf-8", {fatal: true}).decode(bytes);
	} catch {
		throw tooMuch("A part of this task is not UTF-8 text, so it cannot be edited here.");
	}
}

async function copyCase(id, i, signal) {
	const text = (name) => textOf(`tasks/${id}/files/cases/${i}/${name}`, COPY_MAX, signal).catch((error) => {
		if (error.status === 404) // it has none
			return "";
		throw error;
	});

	return {input: await text("input"), expected: await text("expected")};
}

// Opens the form with what the task was made of. Limits and checker the interface does not tell: they stay as they are in the form.
export async function copyToForm(task, sourceName, signal) {
	const n = Math.max(task.cases?.length ?? 0, 1);

	if (n > COPY_CASES)
		throw tooMuch(`This task has more than the ${COPY_CASES} cases that can be edited here.`);
	const source = await textOf(`tasks/${task.id}/files/compile/${encodeURIComponent(sourceName)}`, SOURCE_MAX, signal), copied = [];

	for (let i = 0; i < n; i++)
		copied.push(await copyCase(task.id, i, signal));
	clearErrors();
	if (!byId("language").options.length)
		showLanguages(languages.all());
	chooseLanguage(task.language);
	byId("source").value = source;
	byId("labels").value = (task.labels ?? []).join(", ");
	cases = [];
	byId("cases").replaceChildren();
	copied.forEach(addCase);
	saveDraft();
	location.hash = "#/";
	announce("The form has a copy of the task; its limits and its checker are to be chosen again.");
}

// --- from the form to a task -----------------------------------------------------------------------------------------

function setError(id, text) {
	const control = byId(id);
	let node = byId(`${id}-error`);

	if (!node && text) {
		node = el("p", {class: "error", id: `${id}-error`});
		control.after(node);
		control.setAttribute("aria-describedby", [control.getAttribute("aria-describedby"), node.id].filter(Boolean).join(" "));
	}
	if (!node)
		return;
	node.hidden = !text;
	node.textContent = text ?? "";
	if (text)
		control.setAttribute("aria-invalid", "true");
	else
		control.removeAttribute("aria-invalid");
}

function clearErrors() {
	tell(byId("submit-problem"), null);
	for (const control of byId("form").querySelectorAll("[aria-invalid]"))
		setError(control.id, null);
}

// Numbers of optional inputs: absent when empty; what is no number is told, and counted in `wrong`.
function readNumber(id, wrong, whole = true) {
	const text = byId(id).value.trim(), value = Number(text);

	if (text === "")
		return undefined;
	if (!Number.isFinite(value) || whole && !Number.isInteger(value)) {
		setError(id, whole ? "A whole number, or empty." : "A number such as 0.001, or empty.");
		wrong.push(id);
	}
	return value;
}

function readLimits(wrong) {
	const limits = {};

	for (const [id, name, unit] of LIMITS) {
		const value = readNumber(id, wrong);
		if (value !== undefined)
			limits[name] = value * unit;
	}
	return Object.keys(limits).length ? limits : undefined;
}

function readChecker(wrong) {
	const kind = byId("checker").value;

	if (kind !== "float")
		return kind ? {kind} : undefined;
	return {kind, abs: readNumber("abs", wrong, false), rel: readNumber("rel", wrong, false)};
}

function readCase(one, wrong) {
	return {input: one.input.value || undefined, expected: one.expected.value || undefined,
		points: cases.length > 1 ? readNumber(one.points.id, wrong) : undefined};
}

function readTask(wrong) {
	const labels = byId("labels").value.split(",").map((label) => label.trim()).filter(Boolean);

	if (!byId("source").value) {
		setError("source", "There is no program yet.");
		wrong.push("source");
	}
	return {
		language: byId("language").value,
		source: byId("source").value,
		...cases.length === 1 ? readCase(cases[0], wrong) : {cases: cases.map((one) => readCase(one, wrong))},
		limits: readLimits(wrong),
		checker: readChecker(wrong),
		stop_on_failure: byId("stop").checked || undefined,
		labels: labels.length ? labels : undefined,
		user: byId("user").value.trim() || undefined,
		priority: readNumber("priority", wrong),
	};
}

// The control that a problem's pointer is about, or null.
function controlAt(pointer) {
	const words = pointer.split("/").slice(1);
	const limit = LIMITS.find(([, name]) => words.includes("limits") && words.includes(name));

	if (limit)
		return limit[0];
	if (words[0] === "cases" && cases[words[1]])
		return cases[words[1]][["expected", "points"].find((name) => name === words[2]) ?? "input"].id;
	const last = words.find((word) => ["language", "source", "labels", "user", "priority", "abs", "rel", "checker"].includes(word));
	if (last)
		return words.includes("abs") ? "abs" : words.includes("rel") ? "rel" : last;
	const field = words.find((word) => word === "input" || word === "expected");
	return field ? cases[0][field].id : null;
}

function focusOn(id) {
	const control = byId(id), details = control.closest("details");

	if (details)
		details.open = true;
	control.focus();
}

function showProblem(problem) {
	const id = controlAt(problem.pointer);

	if (!id) {
		tell(byId("submit-problem"), problem);
		return;
	}
	setError(id, problem.message);
	focusOn(id);
}

async function onSubmit(event) {
	const wrong = [], send = byId("send");

	event.preventDefault();
	if (sending)
		return;
	clearErrors();
	const task = readTask(wrong);
	if (wrong.length)
		return focusOn(wrong[0]);
	const text = JSON.stringify(task);
	if (text !== sent.text)
		sent = {text, key: api.newKey()};
	sending = true;
	send.setAttribute("aria-disabled", "true");
	send.textContent = "Submitting…";
	try {
		const added = await api.submit(task, sent.key);
		sent = {text: "", key: ""};
		saveDraft();
		location.hash = `#/task/${added.id}`;
	} catch (error) {
		if (!(error instanceof api.Problem))
			throw error;
		showProblem(error);
	} finally {
		sending = false;
		send.removeAttribute("aria-disabled");
		send.textContent = "Submit";
	}
}

// --- the view ----------------------------------------------------------------------------------------------------------

export function setUp() {
	let timer = 0;

	restoreDraft();
	setUpEditor();
	setUpFiles();
	byId("form").addEventListener("submit", onSubmit);
	byId("form").addEventListener("input", () => {
		clearTimeout(timer);
		timer = setTimeout(saveDraft, 400);
	});
	byId("form").addEventListener("keydown", (event) => {
		if (event.key === "Enter" && (event.ctrlKey || event.metaKey)) {
			event.preventDefault();
			byId("form").requestSubmit();
		}
	});
	byId("language").addEventListener("change", noteLanguage);
	byId("checker").addEventListener("change", showFloat);
	byId("example").addEventListener("click", fillExample);
	byId("add-case").addEventListener("click", () => addCase().input.focus());
	addEventListener("pagehide", saveDraft);
}

export async function enter(match, signal) {
	let last = "";

	numberLines();
	await repeat(async () => {
		const list = await languages.load(signal), text = JSON.stringify(list);

		if (text !== last) // an open list of choices is not replaced for nothing
			showLanguages(list);
		last = text;
	}, 20000, byId("languages-problem"), signal);
}
