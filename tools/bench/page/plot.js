// SPDX-License-Identifier: BSD-3-Clause
// What all plots share: the figure with its caption, legend, picture, reading by pointer and by keys, and the
// table of the same numbers; axes; marks. A plot is drawn anew when its width changes, so letters keep their size.
'use strict';

const SVG = 'http://www.w3.org/2000/svg';

// html('p', { class: 'note' }, 'text', element ...): text is text, never markup.
function html(name, attributes = {}, ...children) {
	return fill(document.createElement(name), attributes, children);
}

function svg(name, attributes = {}, ...children) {
	return fill(document.createElementNS(SVG, name), attributes, children);
}

function fill(element, attributes, children) {
	for (const [key, value] of Object.entries(attributes))
		if (value !== undefined && value !== null && value !== false)
			element.setAttribute(key, value === true ? '' : value);
	element.append(...children.flat().filter(c => c !== null && c !== undefined));
	return element;
}

const ruler = document.createElement('canvas').getContext('2d');

function textWidth(text, bold) {
	ruler.font = `${bold ? '600 ' : ''}12px system-ui, "Segoe UI", Roboto, "DejaVu Sans", sans-serif`;
	return ruler.measureText(text).width;
}

// ---- looks: a colour, a mark and a texture each, so that no one of them alone has to be seen -----------------

const DASHES = ['', '', '7 3', '2 3', '9 3 2 3', '4 2', '1 2', '10 4'];
const MARKS = [
	r => `M${-r},0a${r},${r} 0 1,0 ${2 * r},0a${r},${r} 0 1,0 ${-2 * r},0`,
	r => `M${-r},${-r}h${2 * r}v${2 * r}h${-2 * r}z`,
	r => `M0,${-1.3 * r}L${1.2 * r},${r}H${-1.2 * r}z`,
	r => `M0,${-1.4 * r}L${1.4 * r},0L0,${1.4 * r}L${-1.4 * r},0z`,
	r => `M0,${1.3 * r}L${1.2 * r},${-r}H${-1.2 * r}z`,
	r => `M${-r},${-0.4 * r}H${-0.4 * r}V${-r}H${0.4 * r}V${-0.4 * r}H${r}V${0.4 * r}H${0.4 * r}V${r}H${-0.4 * r}` +
		`V${0.4 * r}H${-r}z`,
];

const markPath = (look, radius) => MARKS[look % MARKS.length](radius);
const LOOKS = 8;

// Textures of bars: none, lines one way, the other way, dots, level lines, a net ...
const TEXTURES = ['', 'M0,8L8,0M-2,2L2,-2M6,10L10,6', 'M0,0L8,8M-2,6L2,10M6,-2L10,2', 'M3,4h2M7,0h2M-1,8h2', 'M0,4H8',
	'M0,4H8M4,0V8', 'M4,0V8', 'M0,8L8,0M0,0L8,8'];

function texture(id, look) {
	return svg('pattern', { id: `${id}-t${look}`, width: 8, height: 8, patternUnits: 'userSpaceOnUse', class: `c${look}` },
		svg('rect', { width: 8, height: 8, fill: 'currentColor' }),
		svg('path', { d: TEXTURES[look % TEXTURES.length], class: 'weave' }));
}

function swatch(look, isBar, id) {
	const picture = svg('svg', { width: 26, height: 14, class: `c${look}`, 'aria-hidden': 'true', focusable: 'false' });
	if (isBar)
		picture.append(svg('rect', { x: 5, y: 1, width: 16, height: 12, rx: 2, fill: `url(#${id}-t${look})` }));
	else
		picture.append(svg('path', { d: 'M1,7H25', class: 'line', 'stroke-dasharray': DASHES[look % DASHES.length] }),
			svg('path', { d: markPath(look, 4), transform: 'translate(13,7)', class: 'mark' }));
	return picture;
}

// ---- the figure ----------------------------------------------------------------------------------------------------

const plots = [];

class Plot {
	/*
	 * title, letter (of the run, where there are two), note, what the axes mean (xTitle, yTitle); series: { name, look }. A kind of plot has measure(), which
	 * makes the scales from what is shown, paint(), which draws and fills stops (where a pointer or a key can
	 * stop: x, y, label, lines), summary() and rows() for the table.
	 */
	constructor(options) {
		Object.assign(this, { series: [], height: 280, note: '', isBar: false, hidden: new Set(), at: -1, stops: [],
			family: [this] }, options);
		this.id = `plot${plots.length}`;
		this.caption = this.letter ? `${this.letter}: ${this.title}` : this.title;
		this.build();
		plots.push(this);
	}

	// Both have the same axes from now on.
	join(other) {
		this.family = other.family = [this, other];
	}

	get shown() {
		return this.series.filter(s => !this.hidden.has(s));
	}

	build() {
		this.picture = svg('svg', { role: 'img', focusable: 'false', class: 'picture' });
		this.tip = html('div', { class: 'tip', hidden: true, 'aria-hidden': 'true' });
		this.status = html('p', { class: 'unseen', role: 'status' });
		this.box = html('div', { class: 'box', tabindex: 0, role: 'application', 'aria-roledescription': 'plot',
			'aria-label': `${this.caption}. Arrow keys read its points; the numbers follow as a table.` },
		this.picture, this.tip);
		this.element = html('figure', { class: 'plot', id: this.id },
			html('figcaption', {}, html('h4', {}, this.caption), this.note ? html('p', {}, this.note) : null),
			this.legend(), this.box, this.status, this.numbers());
		this.listen();
	}

	legend() {
		if (this.series.length < 2 && !this.keepLegend)
			return null;
		const items = this.series.map(s => {
			const button = html('button', { type: 'button', 'aria-pressed': 'true', title: 'Show or hide' },
				swatch(s.look, this.isBar, this.id), html('span', {}, s.name));
			button.addEventListener('click', () => this.toggle(s, button));
			return html('li', {}, button);
		});
		return html('ul', { class: 'legend', 'aria-label': 'What is shown' }, items);
	}

	toggle(series, button) {
		if (!this.hidden.delete(series) && this.hidden.size < this.series.length - 1)
			this.hidden.add(series);
		button.setAttribute('aria-pressed', String(!this.hidden.has(series)));
		this.draw();
	}

	numbers() {
		const [head, ...rows] = this.rows();
		const table = html('table', {}, html('caption', { class: 'unseen' }, this.caption),
			html('thead', {}, html('tr', {}, head.map(c => html('th', { scope: 'col' }, c)))),
			html('tbody', {}, rows.map(row => html('tr', {}, row.map((cell, i) =>
				html(i ? 'td' : 'th', i ? {} : { scope: 'row' }, cell))))));
		return html('details', {}, html('summary', {}, 'Numbers', html('span', { class: 'unseen' }, ` of ${this.caption}`)),
			html('div', { class: 'wide', tabindex: 0, role: 'region', 'aria-label': `Numbers of ${this.caption}` }, table));
	}

	draw() {
		const width = Math.max(Math.floor(this.box.clientWidth), 200);
		this.width = width;
		this.measure(width);
		this.stops = [];
		this.picture.replaceChildren(svg('title', {}, this.caption),
			svg('defs', {}, this.series.map(s => texture(this.id, s.look))));
		this.picture.setAttribute('viewBox', `0 0 ${width} ${this.height}`);
		this.picture.setAttribute('height', this.height);
		this.picture.setAttribute('aria-label', `${this.caption}: ${this.summary()}`);
		this.cursor = svg('g', { class: 'cursor' });
		this.paint();
		this.picture.append(this.cursor);
		this.leave();
	}

	// ---- axes ------------------------------------------------------------------------------------------

	// Room at the left for the widest number, at the top for the name of the axis.
	frame(width, y) {
		this.y = y;
		this.yTicks = y.ticks(Math.max(2, Math.floor((this.height - 70) / 30)));
		const left = Math.ceil(Math.max(...this.yTicks.map(t => textWidth(y.format(t))), 12)) + 10;
		this.area = { left, right: width - 12, top: 26, bottom: this.height - (this.xTitle ? 42 : 26) };
	}

	px(part) {
		return this.area.left + part * (this.area.right - this.area.left);
	}

	py(n) {
		return this.area.bottom - this.y.at(n) * (this.area.bottom - this.area.top);
	}

	axes(x) {
		const { left, right, top, bottom } = this.area, g = svg('g', { class: 'axes' });
		for (const tick of this.yTicks) {
			const at = Math.round(this.py(tick)) + 0.5;
			g.append(svg('path', { d: `M${left},${at}H${right}`, class: tick === 0 && this.isBar ? 'zero' : 'grid' }),
				svg('text', { x: left - 6, y: at + 4, class: 'end' }, this.y.format(tick)));
		}
		g.append(svg('path', { d: `M${left},${bottom + 0.5}H${right}`, class: 'zero' }));
		g.append(svg('text', { x: 0, y: 12, class: 'name' }, this.yTitle || ''));
		this.xTicks(g, x);
		if (this.xTitle)
			g.append(svg('text', { x: (left + right) / 2, y: this.height - 6, class: 'middle name' }, this.xTitle));
		this.picture.append(g);
		return top;
	}

	// As many numbers as there is room for.
	xTicks(g, x) {
		const { left, right, bottom } = this.area, room = right - left;
		let most = 40, ticks;
		const fits = list => list.every((t, i) => !i || this.px(x.at(t)) - this.px(x.at(list[i - 1])) >=
			(textWidth(x.format(t)) + textWidth(x.format(list[i - 1]))) / 2 + 10);
		do
			ticks = x.ticks(most);
		while (!fits(ticks) && --most > 1 && room > 0);
		for (const tick of ticks) {
			const at = this.px(x.at(tick)), half = textWidth(x.format(tick)) / 2;
			const middle = Math.min(at, this.width - half - 1);
			g.append(svg('path', { d: `M${Math.round(at) + 0.5},${bottom}v5`, class: 'zero' }),
				svg('text', { x: middle, y: bottom + 18, class: 'middle' }, x.format(tick)));
		}
	}

	// ---- reading ---------------------------------------------------------------------------------------------

	listen() {
		this.box.addEventListener('pointermove', e => this.stopAt(this.nearest(e)));
		this.box.addEventListener('pointerleave', () => this.leave());
		this.box.addEventListener('blur', () => this.leave());
		this.box.addEventListener('keydown', e => this.key(e));
	}

	nearest(e) {
		const box = this.picture.getBoundingClientRect(), scale = this.width / (box.width || 1);
		const x = (e.clientX - box.left) * scale, y = (e.clientY - box.top) * scale;
		const far = s => Math.abs(s.x - x) * (this.isList ? 0 : 1) + Math.abs(s.y - y) * (this.isList ? 1 : 0);
		return this.stops.reduce((best, s, i) => best < 0 || far(s) < far(this.stops[best]) ? i : best, -1);
	}

	key(e) {
		const last = this.stops.length - 1;
		const to = { ArrowRight: this.at + 1, ArrowDown: this.at + 1, ArrowLeft: this.at - 1, ArrowUp: this.at - 1,
			Home: 0, End: last }[e.key];
		if (e.key === 'Escape')
			this.leave();
		if (to === undefined || last < 0)
			return;
		e.preventDefault();
		this.stopAt(Math.min(Math.max(to, 0), last));
		const stop = this.stops[this.at];
		this.status.textContent = [stop.label, ...stop.lines.map(l => `${l.name} ${l.text}`)].join('; ');
	}

	stopAt(index) {
		const stop = this.stops[index];
		if (!stop)
			return;
		this.at = index;
		const { left, right, top, bottom } = this.area;
		const d = this.isList ? `M${left},${stop.y}H${right}` : `M${stop.x},${top}V${bottom}`;
		this.cursor.replaceChildren(svg('path', { d }));
		this.tip.replaceChildren(html('b', {}, stop.label), ...stop.lines.map(l => html('div', {},
			l.look === undefined ? null : swatch(l.look, this.isBar, this.id), html('span', {}, l.name),
			html('em', {}, l.text))));
		this.tip.hidden = false;
		const part = this.picture.getBoundingClientRect().width / this.width, wide = this.tip.offsetWidth;
		const room = this.box.clientWidth, x = stop.x * part, beside = x + 14 + wide > room ? x - 14 - wide : x + 14;
		this.tip.style.left = `${Math.max(0, Math.min(this.isList ? room - wide : beside, room - wide))}px`;
		this.tip.style.top = `${this.isList ? stop.y * part + 12 : top}px`;
	}

	leave() {
		this.at = -1;
		this.tip.hidden = true;
		this.cursor.replaceChildren();
	}
}

const drawAll = () => plots.forEach(p => p.box.clientWidth && p.draw());
