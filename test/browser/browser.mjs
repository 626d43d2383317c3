// SPDX-License-Identifier: Apache-2.0
// browser - what the browser tests share: Chromium by playwright-core, test points, and a guard on every page that is opened: no request may
// leave the gateway, nothing may go against the Content-Security-Policy, no script may fail.
//
// Nothing waits for a time: playwright's calls and `until` wait for a fact, DEADLINE_MS at most.

const {chromium} = await import(process.env.PLAYWRIGHT);

export const DEADLINE_MS = 60000; // a busy machine with sanitizers; seconds when all is well
export const base = process.argv[2];

let failures = 0, browser;
const trouble = {elsewhere: [], policy: [], script: []};

// --- test points -------------------------------------------------------------------------------------------------------

export async function check(what, test) {
	try {
		await test();
		console.log(`ok - ${what}`);
	} catch (error) {
		failures++;
		console.log(`not ok - ${what}`);
		console.error(`--- ${what}\n${error.stack.slice(0, 3000)}`);
	}
}

export function assert(fact, text) {
	if (!fact)
		throw new Error(text ?? "not so");
}

export function same(found, wanted) {
	assert(JSON.stringify(found) === JSON.stringify(wanted), `found ${JSON.stringify(found)}, wanted ${JSON.stringify(wanted)}`);
}

export function matches(text, pattern) {
	assert(pattern.test(text), `${JSON.stringify(text)} is not like ${pattern}`);
}

// What the function returns, once that is true in JavaScript's sense.
export async function until(fact) {
	const end = Date.now() + DEADLINE_MS;
	let error = null;

	while (Date.now() < end) {
		try {
			const found = await fact();
			if (found)
				return found;
		} catch (caught) {
			error = caught;
		}
		await new Promise((resolve) => setTimeout(resolve, 50));
	}
	throw new Error(`not within the time: ${fact}${error ? `\n${error.stack}` : ""}`);
}

// --- pages ----------------------------------------------------------------------------------------------------------------

// Failed requests are what some tests are about; the page tells them as sentences.
function isExpected(text) {
	return text.startsWith("Failed to load resource:");
}

function guard(page) {
	page.on("request", (request) => {
		const address = request.url();
		if (!address.startsWith(base) && !/^(blob|data):/.test(address))
			trouble.elsewhere.push(address);
	});
	page.on("pageerror", (error) => trouble.script.push(error.stack));
	page.on("console", (message) => {
		if (message.text().includes("Content Security Policy"))
			trouble.policy.push(message.text());
		else if (message.type() === "error" && !isExpected(message.text()))
			trouble.script.push(message.text());
	});
}

// A page of its own (storage too). options: of playwright's context; guarded: false for tests of the guard.
export async function open(hash = "", options = {}) {
	const context = await browser.newContext({viewport: {width: 1280, height: 800}, reducedMotion: "reduce", locale: "en-GB", ...options});
	const page = await context.newPage();

	page.setDefaultTimeout(DEADLINE_MS);
	if (options.guarded !== false)
		guard(page);
	await page.goto(base + hash, {timeout: DEADLINE_MS});
	return page;
}

export async function close(page) {
	await page.context().close();
}

// open, test, close
export async function on(hash, test, options) {
	const page = await open(hash, options);

	try {
		return await test(page);
	} finally {
		await close(page);
	}
}

export async function heading(page, text) {
	await page.locator("main section:not([hidden]) h1", {hasText: text}).waitFor();
}

export async function textOf(page, selector) {
	return page.locator(selector).innerText();
}

// --- the interface, beside the page ---------------------------------------------------------------------------------------------

export async function api(path, options = {}, token = "") {
	const response = await fetch(`${base}api/v1/${path}`, {...options, headers: {...options.headers, ...token && {Authorization: `Bearer ${token}`}}});

	return {status: response.status, body: await response.json()};
}

export async function post(task, token) {
	const {status, body} = await api("tasks", {method: "POST", headers: {"Content-Type": "application/json"}, body: JSON.stringify(task)}, token);

	assert(status === 201, `status ${status}: ${JSON.stringify(body)}`);
	return body;
}

export async function judged(task, token) {
	const {id} = await post(task, token);

	return until(async () => {
		const {body} = await api(`tasks/${id}?wait=10000`, {}, token);
		return body.done && body;
	});
}

export async function cancel(id, token) {
	return api(`tasks/${id}`, {method: "DELETE"}, token);
}

// --- start and end -----------------------------------------------------------------------------------------------------------------

// Tests run as root, where Chromium's own sandbox does not.
export async function run(tests) {
	browser = await chromium.launch({executablePath: "/usr/bin/chromium", args: ["--no-sandbox"], timeout: DEADLINE_MS});
	for (const test of tests)
		await test();
	await check("no request has left the gateway", () => same(trouble.elsewhere, []));
	await check("nothing went against the Content-Security-Policy", () => same(trouble.policy, []));
	await check("no script has failed", () => same(trouble.script, []));
	await browser.close();
	process.exitCode = failures ? 1 : 0;
}
