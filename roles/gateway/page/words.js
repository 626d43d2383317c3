// SPDX-License-Identifier: Apache-2.0
// words - what the interface says in names and numbers, in words for people.

// tone: how it is coloured. `note` explains the verdict to somebody who has never seen it.
export const VERDICTS = {
	accepted: {title: "Accepted", tone: "good", note: "The program ran within its limits, and its output is as it should be."},
	wrong_answer: {title: "Wrong answer", tone: "bad", note: "The program ran to its end, but its output is not what was expected."},
	time_limit: {title: "Time limit", tone: "limit", note: "The program used more CPU time than allowed and was stopped."},
	wall_limit: {title: "Wall time limit", tone: "limit", note: "The program did not end in time and was stopped. It may have been waiting for something that never came."},
	memory_limit: {title: "Memory limit", tone: "limit", note: "The program needed more memory than allowed and was stopped."},
	output_limit: {title: "Output limit", tone: "limit", note: "The program printed more than allowed and was stopped."},
	runtime_error: {title: "Runtime error", tone: "bad", note: "The program did not end well: it crashed, or its exit code is not 0."},
	compile_error: {title: "Compile error", tone: "bad", note: "The compiler did not accept the program, so nothing was run. What it says is below."},
	cancelled: {title: "Cancelled", tone: "quiet", note: "The task was cancelled before it was done."},
	system_error: {title: "System error", tone: "bad", note: "The judge itself failed; this says nothing about the program. Submit it again, and tell whoever runs this judge if it happens twice."},
};

export const STATUSES = {
	pending: {title: "Waiting", note: "Waiting for an executor to be free."},
	compiling: {title: "Compiling", note: "The compiler is at work."},
	running: {title: "Running", note: "The program is running."},
	retrying: {title: "Waiting again", note: "The executor was lost; another one will take the task."},
	compile_failed: {title: "Compile error"},
	run_failed: {title: "Run failed"},
	success: {title: "Ran to the end"},
	cancelled: {title: "Cancelled"},
	error: {title: "System error"},
};

const LIMITS = {
	cpu_ms: {title: "CPU time", of: milliseconds},
	wall_ms: {title: "Wall time", of: milliseconds},
	memory_bytes: {title: "Memory", of: bytes},
	output_bytes: {title: "Output", of: bytes, stopsAtOnce: true},
	file_bytes: {title: "Written files", of: bytes, stopsAtOnce: true},
	processes: {title: "Processes", of: String, stopsAtOnce: true},
	stack_bytes: {title: "Stack", of: bytes, stopsAtOnce: true},
};

const SIGNALS = {
	4: "SIGILL, an illegal instruction", 6: "SIGABRT, it gave up by itself: an assertion or an uncaught exception",
	7: "SIGBUS, a bad memory access", 8: "SIGFPE, a division by zero or the like", 9: "SIGKILL, killed",
	11: "SIGSEGV, a memory access out of bounds", 13: "SIGPIPE, it wrote where nobody reads", 14: "SIGALRM", 15: "SIGTERM",
	24: "SIGXCPU, too much CPU time", 25: "SIGXFSZ, a file too large", 31: "SIGSYS, a system call that is not allowed",
};

export function milliseconds(ms) {
	return `${Math.round(ms)} ms`;
}

// 900 us, 412 ms, 2.41 s
export function micros(us) {
	if (us < 1000)
		return `${us} µs`;
	return us < 10e6 ? `${(us / 1000).toFixed(us < 10000 ? 1 : 0)} ms` : `${(us / 1e6).toFixed(1)} s`;
}

export function bytes(n) {
	const units = ["bytes", "KiB", "MiB", "GiB"];
	let i = 0;

	if (n === 1)
		return "1 byte";
	for (; n >= 1024 && i < units.length - 1; i++)
		n /= 1024;
	return `${Number.isInteger(n) ? n : n.toFixed(1)} ${units[i]}`;
}

export function count(n, one, many) {
	return `${n} ${n === 1 ? one : many}`;
}

function two(n) {
	return String(n).padStart(2, "0");
}

export function clock(date) {
	return `${two(date.getHours())}:${two(date.getMinutes())}:${two(date.getSeconds())}`;
}

// Today only the time of day.
export function moment(text) {
	const date = new Date(text), now = new Date();
	const day = `${date.getFullYear()}-${two(date.getMonth() + 1)}-${two(date.getDate())}`;

	return date.toDateString() === now.toDateString() ? clock(date) : `${day} ${clock(date)}`;
}

export function ago(text) {
	const seconds = Math.max(0, Math.round((Date.now() - new Date(text)) / 1000));

	if (seconds < 2)
		return "just now";
	if (seconds < 120)
		return `${seconds} s ago`;
	return seconds < 7200 ? `${Math.round(seconds / 60)} min ago` : moment(text);
}

// {title: "CPU time", text: "1002 ms of 1000 ms allowed"}
export function limit(fired) {
	const row = LIMITS[fired.name] ?? {title: fired.name, of: String};

	if (row.stopsAtOnce && fired.measured > fired.allowed)
		return {title: row.title, text: `more than the ${row.of(fired.allowed)} allowed`};
	return {title: row.title, text: `${row.of(fired.measured)} of ${row.of(fired.allowed)} allowed`};
}

// How a program ended, or null when it ended well.
export function ending(phase) {
	if (phase.signal)
		return `Ended by signal ${phase.signal}${SIGNALS[phase.signal] ? ` (${SIGNALS[phase.signal]})` : ""}.`;
	return phase.exit_code ? `Ended with exit code ${phase.exit_code}.` : null;
}

export function verdict(name) {
	return VERDICTS[name] ?? {title: name ?? "No verdict", tone: "quiet", note: ""};
}

// Of a task, done or not: {title, tone}
export function standing(task) {
	if (task.verdict)
		return verdict(task.verdict);
	const title = STATUSES[task.status]?.title ?? task.status;
	return {title: task.status === "running" && task.case > 1 ? `${title} case ${task.case}` : title,
		tone: task.done ? "quiet" : "open"};
}

// A text of the interface is a string, or {base64} where it is not UTF-8; bytes are bytes.
export function toBytes(value) {
	if (value instanceof Uint8Array)
		return value;
	if (typeof value === "string")
		return new TextEncoder().encode(value);
	if (value && typeof value.base64 === "string")
		return Uint8Array.from(atob(value.base64), (c) => c.charCodeAt(0));
	return new Uint8Array();
}

export function isBinary(value) {
	if (!(value instanceof Uint8Array))
		return Boolean(value) && typeof value === "object";
	try { // its end may be in the middle of a character
		new TextDecoder("utf-8", {fatal: true}).decode(value, {stream: true});
		return false;
	} catch {
		return true;
	}
}

const CONTROLS = ["NUL", "SOH", "STX", "ETX", "EOT", "ENQ", "ACK", "BEL", "BS", "HT", "LF", "VT", "FF", "CR", "SO", "SI", "DLE", "DC1", "DC2",
	"DC3", "DC4", "NAK", "SYN", "ETB", "CAN", "EM", "SUB", "ESC", "FS", "GS", "RS", "US"];

function nameOf(character) {
	const code = character.codePointAt(0);

	return CONTROLS[code] ?? (code === 127 ? "DEL" : `U+${code.toString(16).toUpperCase().padStart(4, "0")}`);
}

// What can be shown of it, in pieces: {text}, or {control: "ESC", times: 2} for characters that would do something, or hide something (those
// that turn the direction of the text). Tabs and ends of lines are text.
export function pieces(value) {
	const text = typeof value === "string" ? value : new TextDecoder("utf-8", {ignoreBOM: true}).decode(toBytes(value));
	const controls = /([\u0000-\u0008\u000b-\u001f\u007f-\u009f\u200b-\u200f\u202a-\u202e\u2060-\u2069\ufeff])\1*/g, list = [];
	let end = 0;

	for (const match of text.matchAll(controls)) {
		if (match.index > end)
			list.push({text: text.slice(end, match.index)});
		list.push({control: nameOf(match[1]), times: match[0].length});
		end = match.index + match[0].length;
	}
	if (end < text.length)
		list.push({text: text.slice(end)});
	return list;
}
