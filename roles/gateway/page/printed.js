// SPDX-License-Identifier: Apache-2.0
// printed - bytes that came from outside, shown: what programs printed, and what was submitted. They are text to look at and nothing else.

import * as api from "./api.js";
import {el, saveBytes} from "./dom.js";
import * as words from "./words.js";

const HEAD_MAX = 64 * 1024; // shown of a file; a test may have 64 MiB

// Text as it is, and by name what would do something if it were shown.
export function shown(value) {
	return words.pieces(value).map((piece) => piece.text ??
		el("span", {class: "control"}, piece.times > 1 ? `${piece.control}×${piece.times}` : piece.control));
}

// part: {title, value, total, left, file, save}: `left` says what is left out, `save` gives all the bytes. Nothing, when there are none.
export function printed(part) {
	if (!part.total)
		return null;
	const facts = [words.bytes(part.total), part.left, words.isBinary(part.value) && "not all of it UTF-8: the rest is shown as \ufffd"].filter(Boolean).join(" · ");
	const save = async (event) => {
		const button = event.target;
		button.setAttribute("aria-disabled", "true");
		saveBytes(await (part.save ?? words.toBytes)(part.value), part.file);
		button.removeAttribute("aria-disabled");
	};

	return el("figure", {class: "printed"},
		el("figcaption", null, el("span", {class: "printed-title"}, part.title), el("span", {class: "printed-facts"}, facts),
			el("button", {type: "button", class: "plain", onclick: save, "aria-label": `Save: ${part.title}`}, "Save")),
		el("pre", {tabindex: "0", role: "region", "aria-label": part.title}, shown(part.value)));
}

// One of the task's files in the place of the node, or `none` when it has no such file. A gateway that cannot give it is no trouble: what
// matters is on the page already.
export async function showFile(node, id, name, title, none, signal) {
	const path = `tasks/${id}/files/${name}`;

	try {
		const {bytes, total} = await api.fileOf(path, HEAD_MAX, signal);
		const figure = printed({title, value: bytes, total, left: bytes.length < total && `the first ${words.bytes(bytes.length)} are shown`,
			file: name.replaceAll("/", "-"), save: async () => (await api.fileOf(path, Infinity)).bytes});
		node.replaceWith(figure ?? el("p", {class: "hint"}, `${title}: empty.`));
	} catch (error) {
		if (!(error instanceof api.Problem) && !signal.aborted)
			throw error;
		node.replaceWith(...none && error.status === 404 ? [el("p", {class: "hint"}, none)] : []);
	}
}
