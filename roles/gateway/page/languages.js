// SPDX-License-Identifier: Apache-2.0
// languages - the languages of this judge, as last heard.

import * as api from "./api.js";

let known = [];

export async function load(signal) {
	known = (await api.get("languages", signal)).languages;
	return known;
}

export function all() {
	return known;
}

export function find(name) {
	return known.find((language) => language.name === name);
}

export function title(name) {
	return name ? find(name)?.title ?? name : "Commands";
}

// By the end of a file's name; "" = nobody knows it.
export function ofFile(name) {
	const extension = name.includes(".") ? name.split(".").pop().toLowerCase() : "";

	return known.find((language) => language.extensions.includes(extension))?.name ?? "";
}

// <option>s in place of those of the select; the choice stays if it is still one.
export function fill(select, options) {
	const chosen = select.value;

	select.replaceChildren(...options);
	if ([...select.options].some((option) => option.value === chosen))
		select.value = chosen;
}
