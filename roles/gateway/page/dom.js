// SPDX-License-Identifier: Apache-2.0
// dom - elements from data. Text only ever becomes a text node: nothing here, or in what uses it, makes markup of a string.

const SVG = "http://www.w3.org/2000/svg";

function fill(node, attributes, children) {
	for (const [name, value] of Object.entries(attributes ?? {})) {
		if (value === undefined || value === null || value === false)
			continue;
		if (name.startsWith("on"))
			node.addEventListener(name.slice(2), value);
		else
			node.setAttribute(name, value === true ? "" : String(value));
	}
	for (const child of children.flat()) {
		if (child !== null && child !== undefined && child !== false)
			node.append(child);
	}
	return node;
}

// el("p", {class: "note", onclick: fn}, "text", otherElement, null)
export function el(tag, attributes, ...children) {
	return fill(document.createElement(tag), attributes, children);
}

export function svg(tag, attributes, ...children) {
	return fill(document.createElementNS(SVG, tag), attributes, children);
}

export function byId(id) {
	return document.getElementById(id);
}

// Only when it differs, so that a screen reader is not told the same thing again.
export function setText(node, text) {
	if (node.textContent !== text)
		node.textContent = text;
}

// For those who do not see the page change.
export function announce(text) {
	const node = byId("announcement");

	// The same sentence twice in a row would not be read: an invisible character makes it another one.
	setText(node, node.textContent === text ? text + "\u00a0" : text);
}


export function saveBytes(bytes, name) {
	const url = URL.createObjectURL(new Blob([bytes], {type: "application/octet-stream"}));
	const link = el("a", {href: url, download: name});

	document.body.append(link);
	link.click();
	link.remove();
	setTimeout(() => URL.revokeObjectURL(url), 60000);
}
