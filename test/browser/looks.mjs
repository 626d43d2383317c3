// SPDX-License-Identifier: Apache-2.0
// looks - what can be measured of how a page looks and what a screen reader is told. Each function runs in the page and answers with the
// list of what is wrong.

// Controls without a name, pictures without a word, ids twice, more or less than one h1, no landmarks, levels of headings left out.
export function structure() {
	const visible = (node) => {
		const style = getComputedStyle(node), box = node.getBoundingClientRect();
		return style.visibility !== "hidden" && box.width > 1 && box.height > 1;
	};
	const wrong = [], all = (selector) => [...document.querySelectorAll(selector)].filter(visible);
	const nameOf = (node) => (node.getAttribute("aria-label") ?? "") +
		(node.getAttribute("aria-labelledby") ?? "").split(/\s+/).filter(Boolean).map((id) => document.getElementById(id)?.textContent ?? "").join(" ") +
		[...node.labels ?? []].map((label) => label.textContent).join(" ") + (["BUTTON", "A", "SUMMARY"].includes(node.tagName) ? node.textContent : "");
	const ids = [...document.querySelectorAll("[id]")].map((node) => node.id);
	let level = 0;

	for (const node of all("a[href], button, input, select, textarea, summary, [role=region], [role=meter], [role=img], dialog[open], nav, [role=search]")) {
		if (!nameOf(node).trim())
			wrong.push(`no name: ${node.outerHTML.slice(0, 120)}`);
	}
	for (const node of document.querySelectorAll("img:not([alt])"))
		wrong.push(`no alt: ${node.outerHTML}`);
	for (const id of ids.filter((id, i) => ids.indexOf(id) !== i))
		wrong.push(`twice: #${id}`);
	for (const node of document.querySelectorAll("[aria-describedby], [aria-labelledby]")) {
		for (const id of `${node.getAttribute("aria-describedby") ?? ""} ${node.getAttribute("aria-labelledby") ?? ""}`.split(/\s+/).filter(Boolean)) {
			if (!document.getElementById(id) && !id.endsWith("-error") && id !== "checker-note")
				wrong.push(`#${id} is described by nothing`);
		}
	}
	for (const node of all("h1, h2, h3, h4")) {
		const here = Number(node.tagName[1]);
		if (here > level + 1)
			wrong.push(`a level is left out before "${node.textContent}"`);
		level = here;
	}
	if (all("h1").length !== 1)
		wrong.push(`${all("h1").length} h1`);
	for (const selector of ["header", "main", "nav", "footer", "html[lang]", "title"]) {
		if (!document.querySelector(selector))
			wrong.push(`no ${selector}`);
	}
	if (!document.querySelector("[role=status][aria-live=polite]"))
		wrong.push("nothing announces");
	return wrong;
}

// Texts whose contrast to what is behind them is below 4.5 (3 for large ones), as WCAG 2 computes it.
export function contrast() {
	const visible = (node) => {
		const style = getComputedStyle(node), box = node.getBoundingClientRect();
		return style.visibility !== "hidden" && box.width > 1 && box.height > 1;
	};
	const wrong = [], canvas = document.createElement("canvas").getContext("2d", {willReadFrequently: true});
	const rgba = (colour) => {
		canvas.clearRect(0, 0, 1, 1);
		canvas.fillStyle = colour;
		canvas.fillRect(0, 0, 1, 1);
		const [r, g, b, a] = canvas.getImageData(0, 0, 1, 1).data;
		return [r, g, b, a / 255];
	};
	const over = ([r, g, b, a], under) => [r, g, b].map((c, i) => c * a + under[i] * (1 - a)).concat(1);
	const luminance = (colour) => colour.slice(0, 3).map((c) => c / 255).map((c) => c <= 0.04045 ? c / 12.92 : ((c + 0.055) / 1.055) ** 2.4)
		.reduce((sum, c, i) => sum + c * [0.2126, 0.7152, 0.0722][i], 0);
	const behind = (node) => {
		const layers = [];
		for (let at = node; at; at = at.parentElement)
			layers.push(rgba(getComputedStyle(at).backgroundColor));
		return layers.reverse().reduce((under, layer) => over(layer, under), rgba("Canvas"));
	};
	const judge = (node, style, colour, what) => {
		const ground = behind(node), ink = luminance(over(rgba(colour), ground)), paper = luminance(ground);
		const ratio = (Math.max(ink, paper) + 0.05) / (Math.min(ink, paper) + 0.05), size = parseFloat(style.fontSize);
		if (ratio < (size >= 24 || size >= 18.66 && style.fontWeight >= 700 ? 3 : 4.5))
			wrong.push(`${ratio.toFixed(2)}: ${what}`);
		return ratio;
	};
	let measured = 0;

	for (const node of document.querySelectorAll("body *")) {
		const style = getComputedStyle(node), own = [...node.childNodes].filter((child) => child.nodeType === 3).map((child) => child.data.trim()).join("");
		if (!visible(node) || node.tagName === "OPTION" || node.closest(".skip"))
			continue;
		if (own) {
			judge(node, style, node.namespaceURI.endsWith("svg") ? style.fill : style.color, `<${node.tagName} ${node.className}> ${own.slice(0, 40)}`);
			measured++;
		}
		if (node.placeholder)
			judge(node, style, getComputedStyle(node, "::placeholder").color, `placeholder ${node.placeholder}`);
	}
	if (measured < 10)
		wrong.push(`only ${measured} texts were found`);
	return wrong;
}

export function sideways() {
	const wide = [...document.querySelectorAll("body *")].filter((node) => node.getBoundingClientRect().right > innerWidth + 0.5 &&
		!node.closest(".visually-hidden, pre, .scroll, textarea, .gutter")).map((node) => `${node.tagName}.${node.className} reaches ${node.getBoundingClientRect().right}`);

	return document.documentElement.scrollWidth > innerWidth ? [`${document.documentElement.scrollWidth} of ${innerWidth}`, ...wide.slice(0, 5)] : [];
}

// Is it seen that this has the focus?
export function focusIsSeen() {
	const node = document.activeElement.closest(".editor") ?? document.activeElement, style = getComputedStyle(node);

	return style.outlineStyle !== "none" && parseFloat(style.outlineWidth) >= 2;
}
