// SPDX-License-Identifier: Apache-2.0
// notice - what goes wrong, told where it happens; and looks that are repeated while a view is open.

import * as api from "./api.js";
import {byId, el} from "./dom.js";

// Shows the problem in the node, with a way out where there is one; null hides it.
export function tell(node, problem) {
	node.hidden = !problem;
	if (!problem) {
		node.replaceChildren();
		return;
	}
	const button = problem.status === 401 || problem.status === 403 ?
		el("button", {type: "button", class: "second", onclick: askForToken}, "Enter a token") : null;
	node.replaceChildren(el("p", null, problem.message), ...button ? [button] : []);
}

export function askForToken() {
	byId("token-dialog").showModal();
	byId("token").focus();
}

function shown(signal) {
	return new Promise((resolve, reject) => {
		if (!document.hidden)
			return resolve();
		document.addEventListener("visibilitychange", () => resolve(), {once: true, signal});
		signal.addEventListener("abort", () => reject(signal.reason), {once: true});
	});
}

// Calls look() now and then `ms` after its end, and so on while the view is open and somebody sees it. A problem is told in the node.
export async function repeat(look, ms, node, signal) {
	let failures = 0;

	while (!signal.aborted) {
		let wait = ms;
		try {
			await shown(signal);
			await look();
			failures = 0;
			tell(node, null);
		} catch (error) {
			if (signal.aborted)
				return;
			if (!(error instanceof api.Problem))
				throw error;
			tell(node, error);
			if (!error.passes)
				return;
			wait = Math.max(error.retryMs, Math.min(1000 * 2 ** failures++, 15000));
		}
		await api.pause(wait, signal).catch(() => {});
	}
}
