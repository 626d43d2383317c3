// SPDX-License-Identifier: Apache-2.0
// main - which view the address names (a row a view), the token, and what is the same on every page.
//
// A view is {enter(match, signal, params)}: it fills its section and looks after it until the signal fires, which is when another address is
// opened. Addresses are behind the #, so every one of them can be reloaded, kept and sent.

import * as api from "./api.js";
import {byId} from "./dom.js";
import * as executors from "./executors.js";
import {askForToken} from "./notice.js";
import * as submit from "./submit.js";
import * as task from "./task.js";
import * as tasks from "./tasks.js";

const VIEWS = [
	{path: /^\/?$/, name: "submit", page: "submit", title: "Submit", enter: submit.enter},
	{path: /^\/task\/([0-9a-f]{24})$/, name: "task", page: "tasks", title: "Task", enter: task.enter},
	{path: /^\/tasks$/, name: "tasks", page: "tasks", title: "Tasks", enter: tasks.enter},
	{path: /^\/executors$/, name: "executors", page: "executors", title: "Executors", enter: executors.enter},
	{path: /^/, name: "missing", page: "", title: "Nothing is here", enter: async () => {}},
];

let leave = new AbortController();
let entered = false; // some view, once: then the focus goes along with the view

function show(view) {
	for (const {name} of VIEWS)
		byId(`view-${name}`).hidden = name !== view.name;
	for (const link of document.querySelectorAll("nav [data-page]")) {
		if (link.dataset.page === view.page)
			link.setAttribute("aria-current", "page");
		else
			link.removeAttribute("aria-current");
	}
	document.title = `${view.title} · Conclave`;
}

function route() {
	const [path, search = ""] = location.hash.replace(/^#/, "").split(/\?(.*)/s);
	const view = VIEWS.find((row) => row.path.test(path));

	leave.abort();
	leave = new AbortController();
	show(view);
	view.enter(view.path.exec(path), leave.signal, new URLSearchParams(search)).catch((error) => {
		if (error.name !== "AbortError")
			console.error(error);
	});
	if (entered) {
		scrollTo(0, 0);
		byId(`view-${view.name}`).querySelector("h1")?.focus({preventScroll: true});
	}
	entered = true;
}

// --- the token -----------------------------------------------------------------------------------------------------

let asked = false; // by itself it opens once

function onTokenWanted() {
	byId("token-button").hidden = false;
	if (!asked && !byId("token-dialog").open)
		askForToken();
	asked = true;
}

function onUse(event) {
	const value = byId("token").value.trim(), error = byId("token-error");

	event.preventDefault();
	error.hidden = /^[\x21-\x7e]+$/.test(value);
	error.textContent = value ? "A token has only letters, digits and signs, and no blanks." : "There is no token yet.";
	if (!error.hidden) {
		byId("token").focus();
		return;
	}
	byId("token-dialog").close();
	api.setToken(value);
}

function onForget() {
	byId("token-dialog").close();
	api.setToken("");
}

function setUpToken() {
	const dialog = byId("token-dialog");

	byId("token-button").hidden = !api.token();
	byId("token-button").addEventListener("click", askForToken);
	byId("token-form").addEventListener("submit", onUse);
	byId("token-close").addEventListener("click", () => dialog.close());
	byId("token-forget").addEventListener("click", onForget);
	dialog.addEventListener("close", () => {
		byId("token").value = "";
		byId("token-error").hidden = true;
	});
	document.addEventListener("token-wanted", onTokenWanted);
	document.addEventListener("token", () => {
		byId("token-forget").hidden = !api.token();
		route();
	});
	byId("token-forget").hidden = !api.token();
}

async function showVersion() {
	try {
		const response = await fetch("healthz", {credentials: "omit"});
		const health = await response.json();
		if (response.ok)
			byId("version").textContent = `Conclave ${health.version}`;
	} catch {
		// only the version; what is wrong is told where it matters
	}
}

byId("skip").addEventListener("click", (event) => {
	event.preventDefault(); // the address says which view is open
	byId("main").focus();
});
setUpToken();
submit.setUp();
tasks.setUp();
addEventListener("hashchange", route);
route();
showVersion();
