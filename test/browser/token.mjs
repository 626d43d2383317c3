// SPDX-License-Identifier: Apache-2.0
// token - the web page of a judge that wants tokens. Arguments: its address, then the tokens of alice (submit, one open task), carol (read) and
// dave (submit, very few requests).
import {api, assert, cancel, check, heading, matches, on, open, close, post, run, same, textOf, until} from "./browser.mjs";
import {contrast, sideways, structure} from "./looks.mjs";

const [ALICE, CAROL, DAVE] = process.argv.slice(3);
const FOREVER = {language: "bash", source: "while :; do :; done", limits: {cpu_ms: 60000, wall_ms: 120000}};
const seen = []; // every address that was asked for

async function give(page, token) {
	await page.fill("#token", token);
	await page.click("#token-form button[type=submit]");
}

// A page with the token of somebody.
async function as(token, hash, test) {
	const page = await open(hash);

	page.on("request", (request) => seen.push(request.url()));
	await page.locator("#token-dialog").waitFor();
	await give(page, token);
	try {
		await test(page);
	} finally {
		await close(page);
	}
}

await run([
	() => check("the page asks for a token at once, and the focus is where it goes", () => on("", async (page) => {
		await page.locator("#token-dialog").waitFor();
		same(await page.evaluate(() => [document.activeElement.id, document.activeElement.type]), ["token", "password"]);
		matches(await textOf(page, "#languages-problem"), /This judge wants a token/);
		same([await page.evaluate(structure), await page.evaluate(contrast)], [[], []]);
		await page.keyboard.press("Escape");
		await page.locator("#token-dialog").waitFor({state: "hidden"});
		await page.click("text=Enter a token");
		await page.locator("#token-dialog").waitFor();
		await page.click("#token-form button[type=submit]");
		await page.locator("#token-error", {hasText: "There is no token yet"}).waitFor();
		await give(page, "wrong-token");
		await page.locator("#languages-problem", {hasText: "not known"}).waitFor();
		await page.click("#token-button");
		await give(page, ALICE);
		await page.locator('#language option[value="bash"]').waitFor({state: "attached"});
		assert(!await page.locator("#languages-problem").isVisible());
	})),
	() => check("with it one submits, as its user", () => as(ALICE, "", async (page) => {
		await page.selectOption("#language", "bash");
		await page.fill("#source", "echo 1");
		await page.click("#send");
		await heading(page, "Accepted");
		matches(await textOf(page, ".about"), /User\s+alice/);
	})),
	() => check("it is kept in the tab, sent as a header, and in no address and nothing that lasts", () => as(ALICE, "#/tasks", async (page) => {
		await page.locator(".tasks tbody tr").first().waitFor();
		const [request] = await Promise.all([page.waitForRequest(/\/api\/v1\/tasks/), page.reload()]);
		same(await request.headerValue("authorization"), `Bearer ${ALICE}`);
		await page.locator(".tasks tbody tr").first().waitFor();
		same(await page.evaluate(() => [localStorage.length, document.cookie, location.href.includes("hush"), document.documentElement.outerHTML.includes("hush")]),
			[0, "", false, false]);
		same(await page.evaluate(() => sessionStorage.getItem("conclave-token")), ALICE);
		same(seen.filter((address) => address.includes("hush")), []);
		assert(seen.length > 10);
		await page.click("#token-button");
		await page.click("#token-forget");
		await page.locator("#tasks-problem", {hasText: "wants a token"}).waitFor();
		same(await page.evaluate(() => sessionStorage.getItem("conclave-token")), null);
	})),
	() => check("what a token does not allow is told, and what to do", () => as(CAROL, "", async (page) => {
		await page.selectOption("#language", "bash");
		await page.fill("#source", "echo 1");
		await page.click("#send");
		await page.locator("#submit-problem", {hasText: "Your token does not allow this. Use another one"}).waitFor();
		assert(await page.locator("#submit-problem button").isVisible());
	})),
	() => check("somebody else's task is as good as none", async () => {
		const {id} = (await api("tasks?limit=1", {}, CAROL)).body.tasks[0];
		await as(DAVE, `#/task/${id}`, (page) => heading(page, "No such task"));
	}),
	() => check("too many open tasks are told", async () => {
		const {id} = await post(FOREVER, ALICE);
		await as(ALICE, "", async (page) => {
			await page.selectOption("#language", "bash");
			await page.fill("#source", "echo 1");
			await page.click("#send");
			await page.locator("#submit-problem", {hasText: "as many unfinished tasks as you may"}).waitFor();
			await cancel(id, ALICE);
			await page.click("#send");
			await heading(page, "Accepted");
		});
	}),
	() => check("too many requests are told, with when to come again", () => as(DAVE, "#/tasks", async (page) => {
		await until(async () => {
			await page.click("text=Search");
			return page.locator("#tasks-problem", {hasText: /too many requests in a short time\. Try again in \d+ s\./}).isVisible();
		});
	})),
	() => check("the question fits a phone", () => on("", async (page) => {
		await page.locator("#token-dialog").waitFor();
		same(await page.evaluate(sideways), []);
		const box = await page.locator("#token-dialog").boundingBox();
		assert(box.x >= 0 && box.x + box.width <= 360, JSON.stringify(box));
	}, {viewport: {width: 360, height: 740}})),
]);
