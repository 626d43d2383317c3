// SPDX-License-Identifier: Apache-2.0
// api - the gateway's interface: requests with the token, problems as sentences, a task followed until it is done.
//
// The token is kept for this tab only (sessionStorage) and travels in the Authorization header, never in an address.

const TOKEN = "conclave-token";
const ANSWER_MS = 30000; // of a request that waits for nothing

export class Problem extends Error {
	// what: {status, code, detail, pointer}; status 0 = no answer came. retryMs: when it is worth trying again, or 0.
	constructor(what, retryMs) {
		super(sentence(what, retryMs));
		this.status = what.status;
		this.code = what.code ?? "";
		this.pointer = what.pointer ?? "";
		this.retryMs = retryMs;
	}

	get passes() { // by itself
		return this.status === 0 || this.status === 429 || this.status >= 500 && this.status !== 502;
	}
}

const ADVICE = { // by code, else by status
	role_missing: "Your token does not allow this. Use another one, or ask whoever runs this judge.",
	user_forbidden: "Your token is for its own user only: leave the user out.",
	too_many_open: "You have as many unfinished tasks as you may. Wait for one to be done, or cancel one.",
	body_too_large: "This is larger than the judge accepts.",
	task_unknown: "There is no such task, or it is somebody else's.",
	task_conflict: "A task with this key is there already and has other content. Reload the page, then submit again.",
	no_judicator: "The judge's queue is not reachable at the moment.",
	disk_full: "The judge's disk is full, so it takes no new tasks. Tell whoever runs it.",
	401: "This judge wants a token, and the one given (if any) is not known to it.",
	403: "Your token does not allow this.",
	502: "The judge is not set up right. Tell whoever runs it.",
	503: "The judge has too much to do at the moment.",
};

function sentence(what, retryMs) {
	const when = retryMs ? ` Try again in ${Math.ceil(retryMs / 1000)} s.` : "";

	if (what.status === 0)
		return "The judge does not answer. It may be down, or the network is.";
	if (what.code === "rate_exceeded")
		return `That was too many requests in a short time.${when}`;
	const advice = ADVICE[what.code] ?? ADVICE[what.status];
	return advice ? advice + when : `${what.detail || `The judge answered with status ${what.status}.`}${when}`;
}

export function token() {
	return sessionStorage.getItem(TOKEN) ?? "";
}

export function setToken(value) {
	if (value)
		sessionStorage.setItem(TOKEN, value);
	else
		sessionStorage.removeItem(TOKEN);
	document.dispatchEvent(new Event("token"));
}

async function problemOf(response) {
	const after = Number(response.headers.get("Retry-After")) * 1000 || 0;
	let what = {};

	try {
		what = await response.json();
	} catch {
		// something in between answered, not the gateway
	}
	if (response.status === 401)
		document.dispatchEvent(new Event("token-wanted"));
	return new Problem({...what, status: response.status}, after);
}

// A good answer, or throws a Problem; an AbortError when the signal of options fires.
async function send(path, options = {}, answerMs = ANSWER_MS) {
	const headers = {...options.headers};
	const signals = [options.signal, answerMs && AbortSignal.timeout(answerMs)].filter(Boolean);
	let response;

	if (token())
		headers.Authorization = `Bearer ${token()}`;
	try {
		response = await fetch(path, {...options, headers, signal: AbortSignal.any(signals),
			cache: "no-store", credentials: "omit", redirect: "error"});
	} catch (error) {
		if (options.signal?.aborted)
			throw error;
		throw new Problem({status: 0}, 0);
	}
	if (!response.ok)
		throw await problemOf(response);
	return response;
}

async function ask(path, options, answerMs) {
	const response = await send(path, options, answerMs);

	try {
		return await response.json();
	} catch (error) {
		if (options?.signal?.aborted)
			throw error;
		throw new Problem({status: 0}, 0);
	}
}

export function get(path, signal) {
	return ask(`api/v1/${path}`, {signal});
}

// The first bytes of a file, `max` at most, and how many it has.
export async function fileOf(path, max, signal) {
	const response = await send(`api/v1/${path}`, {signal}, 0), reader = response.body.getReader(), parts = [];
	let n = 0;

	for (;;) {
		const {done, value} = await reader.read();
		if (done || n >= max)
			break;
		parts.push(value);
		n += value.length;
	}
	reader.cancel().catch(() => {});
	const bytes = new Uint8Array(await new Blob(parts).arrayBuffer());
	return {bytes: bytes.subarray(0, max), total: Number(response.headers.get("Content-Length") ?? n)};
}

export function submit(task, key) {
	return ask("api/v1/tasks", {method: "POST", body: JSON.stringify(task),
		headers: {"Content-Type": "application/json", "Idempotency-Key": key}}, 120000);
}

export function cancel(id) {
	return ask(`api/v1/tasks/${encodeURIComponent(id)}`, {method: "DELETE"});
}

// A key no other submission has. (crypto.randomUUID is for https only.)
export function newKey() {
	return Array.from(crypto.getRandomValues(new Uint8Array(16)), (b) => b.toString(16).padStart(2, "0")).join("");
}

// --- following a task ------------------------------------------------------------------------------------------

export function pause(ms, signal) {
	return new Promise((resolve, reject) => {
		const timer = setTimeout(resolve, ms);
		signal?.addEventListener("abort", () => {
			clearTimeout(timer);
			reject(signal.reason);
		}, {once: true});
	});
}

// The events of a text/event-stream: {event, data, id}; ends with the stream.
async function* eventsOf(body) {
	const reader = body.pipeThrough(new TextDecoderStream()).getReader();
	let text = "", event = {event: "message", data: ""};

	for (;;) {
		const {done, value} = await reader.read();
		if (done)
			return;
		text += value;
		const lines = text.split(/\r\n|\n/);
		text = lines.pop();
		for (const line of lines) {
			const [, name, content] = /^([^:]*):? ?(.*)$/s.exec(line);
			if (line === "") {
				if (event.data)
					yield event;
				event = {event: "message", data: "", id: event.id};
			} else if (name === "data") {
				event.data += (event.data ? "\n" : "") + content;
			} else if (name === "event" || name === "id") {
				event[name] = content;
			}
		}
	}
}

// Shows each change of the task until it is done or the stream ends. False: this gateway has no events.
async function followEvents(path, state, signal) {
	let response;

	try {
		response = await send(`${path}/events`, {signal, headers: {Accept: "text/event-stream",
			...state.lastId && {"Last-Event-ID": state.lastId}}}, 0);
	} catch (error) {
		if (error instanceof Problem && [404, 405, 406].includes(error.status))
			return false;
		throw error;
	}
	if (!response.headers.get("Content-Type")?.startsWith("text/event-stream")) {
		await response.body?.cancel();
		return false;
	}
	for await (const event of eventsOf(response.body)) {
		state.lastId = event.id ?? state.lastId;
		if (event.event === "task" || event.event === "done") {
			state.whole = event.event === "done";
			state.show({...state.task, ...JSON.parse(event.data)});
		}
		if (state.task.done)
			break;
	}
	return true;
}

// One look at the task, which comes back when it is done, and at the latest after `ms`.
async function look(path, state, ms, signal) {
	state.whole = true;
	state.show(await ask(ms ? `${path}?wait=${ms}` : path, {signal}, ms + ANSWER_MS));
}

// Until it is done: by events, or where there are none by looking again and again.
async function followOnce(path, state, signal) {
	if (!state.task)
		await look(path, state, 0, signal);
	while (!state.task.done) {
		if (state.events && (state.events = await followEvents(path, state, signal))) {
			if (!state.task.done)
				await pause(1000, signal); // the stream ended early: the gateway stops, perhaps
			if (!state.task.done)
				await look(path, state, 0, signal);
		} else {
			await look(path, state, 1000, signal);
		}
	}
	if (!state.whole) // an event said that it is done, but not how
		await look(path, state, 0, signal);
}

// Calls show(task) at each change until the task is done; trouble that passes is told by onTrouble(problem), and null when it has passed.
export async function follow(id, show, onTrouble, signal) {
	const path = `api/v1/tasks/${encodeURIComponent(id)}`;
	const state = {task: null, whole: false, events: true, lastId: null, show(task) {
		state.task = task;
		troubles = 0;
		onTrouble(null);
		show(task);
	}};
	let troubles = 0;

	for (;;) {
		try {
			return await followOnce(path, state, signal);
		} catch (error) {
			if (signal.aborted || error instanceof Problem && !error.passes)
				throw error;
			const problem = error instanceof Problem ? error : new Problem({status: 0}, 0);
			onTrouble(problem);
			await pause(Math.max(problem.retryMs, Math.min(500 * 2 ** troubles++, 10000)), signal);
		}
	}
}
