// SPDX-License-Identifier: Apache-2.0
// page - what people do on the web page, in Chromium against a real judge without tokens. The judge has one slot, so that a task can be kept
// waiting behind another. Arguments: its address, then its run directory.
import {readdirSync, readFileSync} from "node:fs";

import {api, assert, base, cancel, check, close, heading, judged, matches, on, open, post, run, same, textOf, until} from "./browser.mjs";
import {contrast, focusIsSeen, sideways, structure} from "./looks.mjs";

const SUM = "a, b = map(int, input().split())\nprint(a + b)\n";
const FOREVER = {language: "python", source: "while True:\n    pass\n", limits: {cpu_ms: 60000, wall_ms: 120000}};
const HOSTILE = "<script>window.owned = 1</script><img src=x onerror='window.owned = 2'>";
const BYTES = [...Buffer.from(HOSTILE), 0x1b, 0x5b, 0x33, 0x31, 0x6d, 0, 0, 0xff, 0xfe, 0x0d, 0x0a, ...Buffer.from("\u202eabc\n")];
const PHONE = {viewport: {width: 360, height: 740}};

// The form, filled in; `more` is {id: text} of further inputs.
async function fillIn(page, language, source, input = "", expected = "", more = {}) {
	await page.locator(`#language option[value="${language}"]`).waitFor({state: "attached"});
	await page.selectOption("#language", language);
	await page.fill("#source", source);
	await page.getByLabel("Input").fill(input);
	await page.getByLabel("Expected output").fill(expected);
	if (Object.keys(more).length)
		await page.locator("#more").evaluate((node) => node.open = true);
	for (const [id, text] of Object.entries(more)) {
		if (id === "checker")
			await page.selectOption("#checker", text);
		else
			await page.fill(`#${id}`, text);
	}
}

async function submitted(page) {
	await page.click("#send");
	await page.waitForURL(/#\/task\/[0-9a-f]{24}$/);
	return page.url().slice(-24);
}

async function submits(page, ...form) {
	await fillIn(page, ...form);
	return submitted(page);
}

// --- submitting ------------------------------------------------------------------------------------------------------------

const submitting = [
	() => check("the example of C++ is submitted and accepted", () => on("", async (page) => {
		await page.locator("#example").waitFor();
		same(await page.inputValue("#language"), "cpp");
		await page.click("#example");
		await submitted(page);
		await heading(page, "Accepted");
		same(await page.title(), "Accepted · Conclave");
		matches(await textOf(page, "pre[aria-label='Output']"), /^3\n?$/);
		matches(await textOf(page, ".about"), /C\+\+17/);
		await until(() => page.evaluate(() => document.querySelector("#announcement").textContent.startsWith("Accepted.")));
	})),
	() => check("so is a Python program, and its page can be opened again", () => on("", async (page) => {
		await submits(page, "python", SUM, "20 22\n", "42\n");
		await heading(page, "Accepted");
		await page.reload();
		await heading(page, "Accepted");
	})),
	() => check("a wrong answer says where", () => on("", async (page) => {
		await submits(page, "python", "print('one\\n4')", "", "one\n3\n");
		await heading(page, "Wrong answer");
		matches(await textOf(page, ".verdict"), /line 2: expected "3", got "4"/);
		await page.locator("pre[aria-label='Expected output']", {hasText: "3"}).waitFor();
		assert(!await page.locator("pre[aria-label='Input']").isVisible());
	})),
	() => check("the page of a task shows its source and its input, and makes a copy to edit", async () => {
		const cases = [{input: "1 2\n", expected: "3\n"}, {input: "4 5\n"}];
		const task = await judged({language: "python", source: SUM, cases, labels: ["copied", "two"]});
		await on(`#/task/${task.id}`, async (page) => {
			await page.click("summary:has-text('Case 1')");
			await page.locator("pre[aria-label='Input']", {hasText: "1 2"}).waitFor();
			await page.locator("pre[aria-label='Expected output']", {hasText: "3"}).waitFor();
			await page.click("summary:has-text('Case 2')");
			await page.locator(".results .hint:text-is('Any output is right.')").waitFor();
			await page.click("summary:has-text('The source')");
			await page.locator(".source pre", {hasText: "print(a + b)"}).waitFor();
			await page.click("text=Edit a copy");
			await heading(page, "Submit a program");
			same(await page.evaluate(() => [...document.querySelectorAll("#language, #source, #labels, #cases textarea")].map((node) => node.value)),
				["python", SUM, "1 2\n", "3\n", "4 5\n", "", "copied, two"]);
			await submitted(page);
			await heading(page, "Accepted");
		});
	}),
	() => check("a time limit says what was allowed and what was measured", () => on("", async (page) => {
		await submits(page, "c", "int main(void) { for (;;); }", "", "", {cpu_ms: "200"});
		await heading(page, "Time limit");
		const text = await textOf(page, ".verdict .limit"), measured = /^CPU time: (\d+) ms of 200 ms allowed$/.exec(text);
		assert(measured && Number(measured[1]) >= 200, text);
	})),
	() => check("so does an output limit", () => on("", async (page) => {
		await submits(page, "python", "print('x' * 5000)", "", "", {output: "1"});
		await heading(page, "Output limit");
		same(await textOf(page, ".verdict .limit"), "Output: more than the 1 KiB allowed");
	})),
	() => check("a crash says how the program ended", () => on("", async (page) => {
		await submits(page, "c", "#include <stdlib.h>\nint main(void) { abort(); }");
		await heading(page, "Runtime error");
		matches(await textOf(page, ".verdict"), /Ended by signal 6 \(SIGABRT/);
	})),
	() => check("a compile error shows what the compiler says", () => on("", async (page) => {
		await submits(page, "cpp", "int main() { return nothing; }");
		await heading(page, "Compile error");
		matches(await textOf(page, ".compile pre"), /error: .nothing. was not declared/);
	})),
	() => check("several cases have their points and their outputs", () => on("", async (page) => {
		await fillIn(page, "python", "n = int(input())\nprint(n if n < 3 else 'many')", "1\n", "1\n");
		for (const n of [2, 3]) {
			await page.click("#add-case");
			await page.getByLabel("Input").last().fill(`${n}\n`);
			await page.getByLabel("Expected output").last().fill(`${n}\n`);
			await page.getByLabel("Points").last().fill(String(n));
		}
		await submitted(page);
		await heading(page, "Wrong answer");
		matches(await textOf(page, ".verdict"), /line 1: expected "3", got "many"[^]*First in case 3 of 3/);
		matches(await textOf(page, ".about"), /Score\s+3 of 6/);
		same(await page.locator(".results details.fold[open] h3").allInnerTexts(), ["Case 3"]);
		await page.click(".results details:has-text('Case 2') summary");
		await page.locator(".results details:has-text('Case 2') pre[aria-label='Output']", {hasText: "2"}).waitFor();
	})),
	() => check("numbers are compared with the checker that was chosen", () => on("", async (page) => {
		await submits(page, "python", "print(0.30000001)", "", "0.3\n", {checker: "float"});
		await heading(page, "Accepted");
	})),
	() => check("a source of almost 1 MiB is accepted", () => on("", async (page) => {
		const source = `${`# ${"0123456789".repeat(100)}\n`.repeat(1040)}print(42)\n`;
		await fillIn(page, "python", "", "", "42\n");
		await page.setInputFiles("#open", {name: "large.py", mimeType: "text/plain", buffer: Buffer.from(source)});
		await until(() => page.evaluate((length) => document.querySelector("#source").value.length === length, source.length));
		await submitted(page);
		await heading(page, "Accepted");
	})),
	() => check("a double click is one task", () => on("", async (page) => {
		await fillIn(page, "bash", "echo once", "", "", {labels: "twice"});
		await page.dblclick("#send");
		await heading(page, "Accepted");
		same((await api("tasks?label=twice")).body.tasks.length, 1);
	})),
	() => check("a second try after a lost answer is the same task", () => on("", async (page) => {
		let tries = 0;
		await page.route("**/api/v1/tasks", async (route) => {
			if (route.request().method() === "POST" && ++tries === 1) {
				await route.fetch();
				return route.abort();
			}
			return route.continue();
		});
		await fillIn(page, "bash", "echo lost", "", "", {labels: "lost"});
		await page.click("#send");
		await page.locator("#submit-problem", {hasText: "does not answer"}).waitFor();
		await submitted(page);
		await heading(page, "Accepted");
		same([tries, (await api("tasks?label=lost")).body.tasks.length], [2, 1]);
	})),
	() => check("a limit out of range is told at its input, which gets the focus", () => on("", async (page) => {
		await fillIn(page, "bash", "echo", "", "", {cpu_ms: "0", memory: "x"});
		await page.click("#send");
		await page.locator("#memory[aria-invalid=true]").waitFor();
		await page.fill("#memory", "");
		await page.click("#send");
		await page.locator("#cpu_ms[aria-invalid=true]").waitFor();
		matches(await textOf(page, "#cpu_ms-error"), /1/);
		same(await page.evaluate(() => [document.activeElement.id, document.activeElement.getAttribute("aria-describedby"), location.hash]), ["cpu_ms", "cpu_ms-error", ""]);
	})),
	() => check("what was typed is there after a reload, and after looking at a task", () => on("", async (page) => {
		await fillIn(page, "ruby", "puts 1", "in", "out", {labels: "kept"});
		await page.reload();
		await page.locator('#language option[value="ruby"]').waitFor({state: "attached"});
		same(await page.evaluate(() => ["language", "source", "labels"].map((id) => document.getElementById(id).value)), ["ruby", "puts 1", "kept"]);
		await page.click("nav >> text=Tasks");
		await heading(page, "Tasks");
		await page.goBack();
		await heading(page, "Submit a program");
		same(await page.inputValue("#source"), "puts 1");
	})),
	() => check("a file is opened, and names its language", () => on("", async (page) => {
		await page.locator('#language option[value="lua"]').waitFor({state: "attached"});
		await page.setInputFiles("#open", {name: "sum.lua", mimeType: "text/plain", buffer: Buffer.from("print('héllo')\n")});
		await until(async () => await page.inputValue("#source") === "print('héllo')\n");
		same(await page.inputValue("#language"), "lua");
		await page.setInputFiles("#open", {name: "bad.c", mimeType: "text/plain", buffer: Buffer.from([0xff, 0xfe])});
		await page.locator("#source-error", {hasText: "cannot be read as UTF-8"}).waitFor();
		same(await page.inputValue("#source"), "print('héllo')\n");
	})),
	() => check("the example of every language is accepted", () => on("", async (page) => {
		const {EXAMPLES, INPUT, EXPECTED} = await page.evaluate(() => import("./page/examples.js").then((module) => ({...module})));
		const {languages} = (await api("languages")).body;
		same(Object.keys(EXAMPLES), languages.map((language) => language.name).sort());
		for (const [language, source] of Object.entries(EXAMPLES)) {
			const task = await judged({language, source, input: INPUT, expected: EXPECTED});
			assert(task.verdict === "accepted", `${language}: ${JSON.stringify(task)}`);
		}
	})),
];

// SIGKILL to each web worker; a worker that is down just now has -1 in its file, which is everybody's.
function killWorkers() {
	for (const name of readdirSync(process.argv[3]).filter((file) => /^gateway\.\d+\.pid$/.test(file))) {
		const pid = Number(readFileSync(`${process.argv[3]}/${name}`, "utf8"));
		if (Number.isInteger(pid) && pid > 1)
			process.kill(pid, "SIGKILL");
	}
}

// --- live status, cancelling --------------------------------------------------------------------------------------------------

const living = [
	() => check("a task is followed from waiting to its verdict, without a reload", async () => {
		const blocker = await post(FOREVER);
		await on("", async (page) => {
			await until(async () => (await api(`tasks/${blocker.id}`)).body.status === "running");
			const id = await submits(page, "python", SUM, "1 2\n", "3\n");
			await heading(page, "Waiting");
			same(await page.locator(".steps [aria-current=step]").innerText(), "Waiting");
			assert(await page.locator("#view-task button:has-text('Cancel')").isVisible());
			await cancel(blocker.id);
			await heading(page, "Accepted");
			same(page.url().slice(-24), id);
			assert(!await page.locator("#view-task button:has-text('Cancel')").isVisible());
		});
	}),
	() => check("a running task is cancelled", () => on("", async (page) => {
		const id = await submits(page, FOREVER.language, FOREVER.source, "", "", {cpu_ms: "60000", wall_ms: "120000"});
		await heading(page, "Running");
		await page.click("#view-task button:has-text('Cancel')");
		await heading(page, "Cancelled");
		same((await api(`tasks/${id}`)).body.status, "cancelled");
		await until(() => page.evaluate(() => document.activeElement.tagName === "H1"));
	})),
	() => check("by events, and without asking again and again", async () => {
		const task = await post(FOREVER), asked = [];
		await on("", async (page) => {
			page.on("request", (request) => asked.push(request.url().replace(`${base}api/v1/tasks/${task.id}`, "")));
			await page.goto(`${base}#/task/${task.id}`);
			await heading(page, "Running");
			await cancel(task.id);
			await heading(page, "Cancelled");
		});
		same(asked.filter((address) => !address.startsWith("http")), ["", "/events"]);
	}),
	() => check("a gateway that dies is told, and the next one goes on with the task", async () => {
		const task = await post(FOREVER);
		await on(`#/task/${task.id}`, async (page) => {
			let fails = true;
			await heading(page, "Running");
			await page.route("**/api/v1/**", (route) => fails ? route.abort() : route.continue());
			killWorkers();
			await page.locator("#view-task .notice", {hasText: "does not answer"}).waitFor();
			await until(() => cancel(task.id));
			fails = false;
			await heading(page, "Cancelled");
			assert(!await page.locator("#view-task .notice").isVisible());
		});
	}),
	() => check("so is a gateway that has no events", async () => {
		const task = await post(FOREVER);
		await on("", async (page) => {
			let fails = false;
			await page.route("**/api/v1/**", (route) => fails ? route.abort() :
				route.request().url().endsWith("/events") ? route.fulfill({status: 404, json: {code: "not_found"}}) : route.continue());
			await page.goto(`${base}#/task/${task.id}`);
			await heading(page, "Running");
			fails = true;
			await page.locator("#view-task .notice", {hasText: "does not answer"}).waitFor();
			await cancel(task.id);
			fails = false;
			await heading(page, "Cancelled");
			assert(!await page.locator("#view-task .notice").isVisible());
		});
	}),
	() => check("a task that is not there is told as such, and a page that is not, too", () => on(`#/task/${"0".repeat(24)}`, async (page) => {
		await heading(page, "No such task");
		matches(await textOf(page, "#view-task .notice"), /no such task, or it is somebody else's/);
		await page.goto(`${base}#/elsewhere`);
		await heading(page, "Nothing is here");
	})),
];

// --- lists -----------------------------------------------------------------------------------------------------------------------

async function rows(page) {
	return page.locator(".tasks tbody tr").count();
}

const listing = [
	() => check("the list has pages", async () => {
		for (let i = 0; i < 30; i++)
			await judged({language: "bash", source: `echo ${i}`, user: i % 2 ? "alice" : "bob", labels: ["paged", `n${i}`]});
		await on("#/tasks?label=paged", async (page) => {
			await until(async () => await rows(page) === 25);
			const first = await page.locator(".tasks tbody a").first().getAttribute("href");
			await page.click("text=Older tasks");
			await until(async () => await rows(page) === 5);
			matches(page.url(), /label=paged&after=\d+/);
			assert(!await page.locator("text=Older tasks").isVisible());
			await page.click("text=Newest tasks");
			await until(async () => await rows(page) === 25);
			same(await page.locator(".tasks tbody a").first().getAttribute("href"), first);
		});
	}),
	() => check("the list is filtered by user, label, status, language and text", () => on("#/tasks", async (page) => {
		await page.fill("#f-label", "paged");
		await page.fill("#f-user", "alice");
		await page.click("text=Search");
		await until(async () => await rows(page) === 15);
		await page.fill("#f-text", "n17");
		await page.click("text=Search");
		await until(async () => await rows(page) === 1);
		matches(await textOf(page, ".tasks tbody tr"), /alice/);
		await page.fill("#f-text", "accepted bash n3");
		await page.click("text=Search");
		await page.locator("#tasks-summary", {hasText: /^1 task among 15 tasks/}).waitFor(); // alice has the odd ones only: n3
		await page.fill("#f-text", "nowhere");
		await page.click("text=Search");
		await page.locator("#tasks-summary", {hasText: "No task is like that among 15 tasks"}).waitFor();
		await page.click("#f-clear");
		await until(async () => await rows(page) === 25);
		await page.locator('#f-language option[value="cpp"]').waitFor({state: "attached"});
		await page.selectOption("#f-language", "cpp");
		await page.locator("#tasks-summary", {hasText: /^\d tasks, the newest first$/}).waitFor();
		await page.selectOption("#f-status", "compile_failed");
		await until(async () => (await page.locator(".tasks tbody th").allInnerTexts()).join() === "Compile error");
	})),
	() => check("the number of a task opens it", () => on("#/tasks", async (page) => {
		const {id} = (await api("tasks?limit=1")).body.tasks[0];
		await page.fill("#f-text", id);
		await page.press("#f-text", "Enter");
		await page.waitForURL(new RegExp(`#/task/${id}$`));
		await heading(page, "Accepted");
	})),
	() => check("new tasks come by themselves, and are cancelled from the list", () => on("#/tasks?label=fresh", async (page) => {
		await page.locator("#tasks-summary", {hasText: "No task is like that"}).waitFor();
		const {id} = await post({...FOREVER, labels: ["fresh"]});
		await page.click(`[aria-label="Cancel task ${id}"]`);
		await until(async () => (await page.locator(".tasks tbody th").allInnerTexts()).join() === "Cancelled");
		same((await api(`tasks/${id}`)).body.status, "cancelled");
	})),
	() => check("executors show their load and their languages", async () => {
		const {id} = await post(FOREVER);
		await on("#/executors", async (page) => {
			await page.locator(".lead", {hasText: "1 executor, 1 of 1 slot busy."}).waitFor();
			same(await page.locator(".executor [role=meter]").getAttribute("aria-valuenow"), "1");
			await page.click(".executor summary");
			matches(await textOf(page, ".executor .tools"), /C\+\+17 \(g\+\+\)\s+g\+\+/);
			await cancel(id);
			await page.locator(".lead", {hasText: "1 executor, 0 of 1 slot busy."}).waitFor();
			assert(await page.locator(".executor .tools").isVisible(), "what was open stays open");
		});
	}),
	() => check("the last hour is a chart and a table of the same numbers", () => on("#/executors", async (page) => {
		const sum = (list) => list.reduce((total, n) => total + n, 0);
		await page.locator("svg.panel").first().waitFor();
		await page.click("text=As a table");
		const cells = await page.locator(".numbers tbody tr").evaluateAll((list) => list.map((row) => [...row.querySelectorAll("td")].map((cell) => Number(cell.textContent))));
		const stats = (await api("stats")).body;
		same(cells.length, 60);
		same([0, 1, 2].map((i) => sum(cells.map((row) => row[i]))), [sum(stats.added), sum(stats.done), sum(stats.accepted)]);
		assert(sum(stats.accepted) > 30, "tasks of this test are counted");
		const label = await page.locator("svg.panel").first().getAttribute("aria-label");
		same(label, `Tasks a minute in the last hour: ${sum(stats.added)} submitted, ${sum(stats.done)} done, ${sum(stats.accepted)} of them accepted.`);
		const bars = await page.locator("rect.accepted").count();
		same(bars, stats.accepted.filter((n) => n > 0).length);
		assert(await page.locator("path.added").getAttribute("d"));
	})),
	() => check("without these numbers there is no chart, and no complaint", () => on("", async (page) => {
		await page.route("**/api/v1/stats", (route) => route.fulfill({status: 404, json: {code: "not_found"}}));
		await page.goto(`${base}#/executors`);
		await page.locator(".executor").waitFor();
		assert(!await page.locator("#hour-title").isVisible());
		assert(!await page.locator(".notice").first().isVisible());
	})),
];

// --- hostile --------------------------------------------------------------------------------------------------------------------------

const hostile = [
	() => check("what a program prints does nothing", async () => {
		const source = `import sys\nfor stream in sys.stdout, sys.stderr:\n    stream.buffer.write(bytes(${JSON.stringify(BYTES)}))\n`;
		const task = await judged({language: "python", source, expected: "x", labels: [HOSTILE.slice(0, 60), "hostile"], user: "<b>mallory</b>"});
		await on(`#/task/${task.id}`, async (page) => {
			await heading(page, "Wrong answer");
			const text = await page.locator("pre[aria-label='Output']").innerText();
			assert(text.startsWith(HOSTILE), text);
			matches(text, /ESC\[31mNUL×2\ufffd\ufffdCR\nU\+202Eabc/);
			same(await page.evaluate(() => [window.owned, document.querySelectorAll("main script, main img, main b").length]), [undefined, 0]);
			same(await page.locator("pre[aria-label='Output']").evaluate((node) => [...node.children].every((child) => child.className === "control")), true);
			matches(await textOf(page, ".about"), /<b>mallory<\/b>/);
			await page.goto(`${base}#/tasks?label=hostile`);
			await page.locator(".tasks tbody tr").waitFor();
			same(await page.evaluate(() => [window.owned, document.querySelectorAll("main script, main img, main b").length]), [undefined, 0]);
		});
	}),
	() => check("it is saved byte for byte", async () => {
		const {id} = (await api("tasks?label=hostile")).body.tasks[0];
		await on(`#/task/${id}`, async (page) => {
			await heading(page, "Wrong answer");
			const [download] = await Promise.all([page.waitForEvent("download"), page.click("[aria-label='Save: Output']")]);
			const chunks = [];
			for await (const chunk of await download.createReadStream())
				chunks.push(chunk);
			same([...Buffer.concat(chunks)], BYTES);
			same(download.suggestedFilename(), "case-1-stdout.txt");
		});
	}),
	() => check("what the compiler repeats of a source does nothing", () => on("", async (page) => {
		await submits(page, "cpp", `int main() { return "${HOSTILE.replaceAll("'", "\\'")}"; }`);
		await heading(page, "Compile error");
		matches(await textOf(page, ".compile pre"), /<script>window\.owned/);
		same(await page.evaluate(() => window.owned), undefined);
	})),
	// Without the guard, since this is what the guard is for.
	() => check("the policy stops markup that came in, and requests elsewhere", () => on("", async (page) => {
		const violations = await page.evaluate(async (text) => {
			const list = [];
			document.addEventListener("securitypolicyviolation", (event) => list.push(event.effectiveDirective));
			const script = document.createElement("script");
			script.textContent = "window.owned = 3";
			document.body.append(script);
			const place = document.createElement("div");
			place.innerHTML = text.replaceAll("'", "\"") + "<p style='color: red'>x</p><img src='http://127.0.0.1:9/x'>";
			document.body.append(place);
			await fetch("http://127.0.0.1:9/").catch(() => {});
			while (new Set(list).size < 5)
				await new Promise((resolve) => document.addEventListener("securitypolicyviolation", resolve, {once: true}));
			return [...new Set(list)].sort();
		}, HOSTILE);
		same(violations, ["connect-src", "img-src", "script-src-attr", "script-src-elem", "style-src-attr"]);
		same(await page.evaluate(() => window.owned), undefined);
	}, {guarded: false})),
	() => check("no other page may put this one into a frame, or be told where it came from", async () => {
		const {headers} = await fetch(base);
		matches(headers.get("Content-Security-Policy"), /frame-ancestors 'none'/);
		same([headers.get("Referrer-Policy"), headers.get("X-Content-Type-Options")], ["no-referrer", "nosniff"]);
	}),
];

// --- for everybody --------------------------------------------------------------------------------------------------------------------------

// [name, address, what is there when it is drawn]
async function views() {
	const find = async (query) => (await api(`tasks?limit=1&${query}`)).body.tasks[0].id;
	const many = (await api("tasks?limit=1000&language=python")).body.tasks.find((task) => task.max_score === 6);

	return [["the form", "", "#example"], ["a list", "#/tasks", ".tasks tbody tr"], ["executors", "#/executors", "svg.panel"],
		["a hostile task", `#/task/${await find("label=hostile")}`, ".printed"], ["an accepted task", `#/task/${await find("label=n3")}`, ".printed"],
		["a compile error", `#/task/${await find("status=compile_failed")}`, ".compile pre"], ["a task that failed", `#/task/${await find("status=run_failed")}`, ".results"],
		["a cancelled task", `#/task/${await find("status=cancelled")}`, ".verdict.quiet"], ["several cases", `#/task/${many?.id ?? await find("label=n4")}`, ".results"],
		["nothing", "#/nowhere", "#view-missing h1"]];
}

async function drawn(page, selector) {
	await page.locator(selector).first().waitFor();
	await page.locator("#version", {hasText: /\d/}).waitFor();
	// Everything that can be opened is looked at too.
	await page.evaluate(() => document.querySelectorAll("main section:not([hidden]) details").forEach((node) => node.open = true));
}

const seeing = [
	async () => {
		for (const colorScheme of ["light", "dark"]) {
			for (const [name, hash, selector] of await views()) {
				await check(`${name}, ${colorScheme}: names, structure, contrast`, () => on(hash, async (page) => {
					await drawn(page, selector);
					same([await page.evaluate(structure), await page.evaluate(contrast)], [[], []]);
				}, {colorScheme}));
			}
		}
	},
	async () => {
		for (const [name, hash, selector] of await views()) {
			await check(`${name} fits a phone`, () => on(hash, async (page) => {
				await drawn(page, selector);
				same(await page.evaluate(sideways), []);
			}, PHONE));
		}
	},
	() => check("what measures contrast, names and width would notice", () => on("", async (page) => {
		await drawn(page, "#example");
		await page.evaluate(() => {
			const add = (tag, text, set) => Object.assign(document.querySelector("main").appendChild(document.createElement(tag)), {textContent: text, ...set});
			add("p", "pale").style.color = "#aaa";
			add("button", "");
			add("h1", "Second");
			add("div", "wide").style.width = "3000px";
		});
		const [structural, pale, wide] = [await page.evaluate(structure), await page.evaluate(contrast), await page.evaluate(sideways)];
		same([structural.length, pale.length, wide.length > 0], [2, 1, true]);
	})),
	() => check("who wants no motion sees none", async () => {
		const {id} = await post(FOREVER);
		for (const [reducedMotion, name] of [["reduce", "none"], ["no-preference", "busy"]]) {
			await on(`#/task/${id}`, async (page) => {
				await heading(page, "Running");
				same(await page.locator(".busy").evaluate((node) => getComputedStyle(node).animationName), name);
			}, {reducedMotion});
		}
		await cancel(id);
	}),
	() => check("a program is submitted by keyboard alone, and where the focus is is always seen", () => on("", async (page) => {
		const at = () => page.evaluate(() => document.activeElement.id || document.activeElement.textContent);
		const tabTo = async (id) => {
			for (let i = 0; i < 40 && await at() !== id; i++) {
				await page.keyboard.press("Tab");
				assert(await page.evaluate(focusIsSeen), `not seen: ${await at()}`);
			}
			same(await at(), id);
		};
		await page.locator('#language option[value="python"]').waitFor({state: "attached"});
		await tabTo("skip");
		await page.keyboard.press("Enter");
		same([await at(), new URL(page.url()).hash], ["main", ""]);
		await tabTo("language");
		await page.keyboard.type("Pyth");
		await until(async () => await page.inputValue("#language") === "python");
		await tabTo("source");
		await page.keyboard.type("for i in range(2):\n");
		await page.keyboard.press("Tab");
		await page.keyboard.type("print(i)");
		same([await page.inputValue("#source"), await at()], ["for i in range(2):\n\tprint(i)", "source"]);
		await page.keyboard.press("Shift+Tab");
		same(await at() === "source", false);
		await page.keyboard.press("Tab");
		same(await at(), "source");
		await page.keyboard.press("Escape");
		await page.keyboard.press("Tab");
		same(await at() === "source", false);
		await tabTo("expected-1");
		await page.keyboard.type("0\n1\n");
		await tabTo("send");
		await page.keyboard.press("Enter");
		await heading(page, "Accepted");
		same(await page.evaluate(() => document.activeElement.tagName), "H1");
	})),
	() => check("Ctrl+Enter in the editor submits", () => on("", async (page) => {
		await fillIn(page, "bash", "echo ctrl");
		await page.focus("#source");
		await page.keyboard.press("Control+Enter");
		await heading(page, "Accepted");
	})),
	() => check("the rows of the list stay where they are while it is brought up to date", () => on("#/tasks", async (page) => {
		await page.locator(".tasks tbody a").first().focus();
		const href = await page.evaluate(() => document.activeElement.getAttribute("href"));
		const {id} = await judged({language: "bash", source: "echo new"});
		await page.locator(`.tasks a[href="#/task/${id}"]`).waitFor();
		same(await page.evaluate(() => document.activeElement.getAttribute("href")), href);
	})),
];

await run([...submitting, ...living, ...listing, ...hostile, ...seeing]);
