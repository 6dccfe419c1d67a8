// SPDX-License-Identifier: BSD-3-Clause
// Drawing: tracks, ruler, overview. Nothing here changes the model or what is shown.
'use strict';

const LANE = 22, HEAD = 26, NAME = 16;

// Where everything is, top down: a head for each process, its tracks below it unless it is folded.
function layout(model, view) {
	const rows = [];
	let y = 0, group = -1;
	model.tracks.forEach((t, i) => {
		if (t.group !== group) {
			group = t.group;
			rows.push({ y, height: HEAD, head: t.process, group });
			y += HEAD;
		}
		if (view.folded.has(group))
			return;
		const height = LANE + (view.narrow ? NAME : 6);
		rows.push({ y, height, track: i, bar: y + (view.narrow ? NAME : 3) });
		y += height;
	});
	view.rows = rows;
	view.height = y + 8;
}

function palette() {
	const style = getComputedStyle(document.documentElement);
	const get = name => style.getPropertyValue(name).trim();
	const kinds = [];
	for (let i = 0; get(`--k${i}`); i++)
		kinds.push(get(`--k${i}`));
	return { kinds, back: get('--back'), panel: get('--panel'), line: get('--line'), text: get('--text'),
		soft: get('--soft'), grid: get('--grid'), focus: get('--focus'), shade: get('--shade') };
}

// Black or white, whichever is easier to read on the colour.
function inkOn(colour) {
	const n = parseInt(colour.slice(1), 16);
	const part = shift => (v => v <= 0.03928 ? v / 12.92 : Math.pow((v + 0.055) / 1.055, 2.4))((n >> shift & 255) / 255);
	return 0.2126 * part(16) + 0.7152 * part(8) + 0.0722 * part(0) > 0.179 ? '#000' : '#fff';
}

function fitCanvas(canvas, width, height) {
	const ratio = window.devicePixelRatio || 1;
	const w = Math.round(width * ratio), h = Math.round(height * ratio);
	if (canvas.width !== w || canvas.height !== h) {
		canvas.width = w;
		canvas.height = h;
	}
	canvas.style.width = `${width}px`;
	canvas.style.height = `${height}px`;
	const c = canvas.getContext('2d');
	c.setTransform(ratio, 0, 0, ratio, 0, 0);
	return c;
}

// Steps of 1, 2 or 5 so that labels have room.
function ticks(from, to, width, room) {
	const least = (to - from) * room / width;
	const power = Math.pow(10, Math.floor(Math.log10(least)));
	const step = [1, 2, 5, 10].map(f => f * power).find(s => s >= least);
	const all = [];
	for (let t = Math.ceil(from / step) * step; t <= to; t += step)
		all.push(t);
	return { all, step };
}

function tickLabel(time, step) {
	const [unit, size] = step >= 1e9 ? ['s', 1e9] : step >= 1e6 ? ['ms', 1e6] : step >= 1e3 ? ['µs', 1e3] : ['ns', 1];
	const value = time / size;
	return `${Number.isInteger(Math.round(value * 1e6) / 1e6) ? Math.round(value) : value.toFixed(1)} ${unit}`;
}

class Painter {
	constructor(model, view) {
		this.model = model;
		this.view = view;
		this.drawn = 0; // events drawn one by one in the last picture
		this.visited = 0;
	}

	x(time) { return this.view.left + (time - this.view.from) * this.scale; }

	// Calls one(index) for events at least a pixel wide, dense(begin, end, busy, form, match) for what is less.
	walk(t, one, dense) {
		const { from, to } = this.view, matches = this.model.matches;
		const step = (level, i) => {
			this.visited++;
			if (level < 0) {
				const wide = (t.end[i] - t.begin[i]) * this.scale >= 1;
				if (t.end[i] < from || t.begin[i] > to)
					return;
				if (wide)
					one(i);
				else
					dense(t.begin[i], t.end[i], t.end[i] - t.begin[i], t.form[i],
						matches ? matches[t.form[i]] : 1);
				return;
			}
			const l = t.levels[level];
			if (l.end[i] < from || l.begin[i] > to)
				return;
			if ((l.end[i] - l.begin[i]) * this.scale < 1) {
				dense(l.begin[i], l.end[i], l.busy[i], l.form[i], l.match ? l.match[i] : 1);
				return;
			}
			const count = level ? t.levels[level - 1].count : t.count;
			for (let k = i * FAN; k < Math.min((i + 1) * FAN, count); k++)
				step(level - 1, k);
		};
		const top = t.levels.length - 1;
		for (let i = 0, n = top < 0 ? t.count : t.levels[top].count; i < n; i++)
			step(top, i);
	}

	drawTrack(c, t, y) {
		const width = this.view.width - this.view.left, height = LANE - 4;
		const busy = new Float32Array(width + 2), form = new Int32Array(width + 2).fill(-1);
		const lit = new Uint8Array(width + 2);
		const matches = this.model.matches, kinds = this.colours.kinds, faint = 0.22;
		this.walk(t, i => {
			const a = Math.max(this.x(t.begin[i]), this.view.left), b = Math.min(this.x(t.end[i]), this.view.width);
			const f = this.model.forms[t.form[i]];
			this.drawn++;
			c.globalAlpha = matches && !matches[t.form[i]] ? faint : 1;
			c.fillStyle = kinds[f.kind];
			c.fillRect(a, y, Math.max(b - a - (b - a > 3 ? 1 : 0), 1), height);
			if (b - a > 34) {
				c.fillStyle = inkOn(kinds[f.kind]);
				c.save();
				c.beginPath();
				c.rect(a, y, b - a - 4, height);
				c.clip();
				c.fillText(f.label, a + 4, y + height / 2 + 0.5);
				c.restore();
			}
		}, (begin, end, part, f, match) => {
			const p = Math.min(Math.max(Math.floor(this.x((begin + end) / 2) - this.view.left), 0), width);
			busy[p] += part * this.scale;
			if (form[p] < 0 || (match && !lit[p]))
				form[p] = f;
			lit[p] |= match;
		});
		for (let p = 0; p <= width; p++) {
			if (form[p] < 0)
				continue;
			/* seen however short, and the fuller the darker */
			c.globalAlpha = lit[p] ? Math.min(1, 0.45 + busy[p]) : faint;
			c.fillStyle = kinds[this.model.forms[form[p]].kind];
			c.fillRect(this.view.left + p, y, 1, height);
		}
		c.globalAlpha = 1;
	}

	drawGrid(c, height) {
		const { from, to, left, width } = this.view;
		c.fillStyle = this.colours.grid;
		for (const t of ticks(from, to, width - left, 110).all)
			c.fillRect(Math.round(this.x(t)), 0, 1, height);
	}

	drawSelection(c, row, offset) {
		const s = this.view.selected;
		if (!s || row.track !== s.track)
			return;
		const t = this.model.tracks[s.track];
		const a = Math.max(this.x(t.begin[s.index]), this.view.left - 3), b = Math.min(this.x(t.end[s.index]), this.view.width + 3);
		c.strokeStyle = this.colours.text;
		c.lineWidth = 2;
		c.strokeRect(a - 1, row.bar - offset - 1, Math.max(b - a, 2) + 2, LANE - 2);
	}

	drawRow(c, row, offset) {
		const v = this.view, y = row.y - offset;
		if (row.head !== undefined) {
			c.fillStyle = this.colours.panel;
			c.fillRect(0, y, v.width, row.height);
			c.fillStyle = this.colours.text;
			c.font = `600 13px ${this.font}`;
			c.fillText(`${v.folded.has(row.group) ? '▸' : '▾'} ${row.head}`, 8, y + row.height / 2 + 0.5);
			c.font = `12px ${this.font}`;
			return;
		}
		const t = this.model.tracks[row.track];
		c.fillStyle = this.colours.soft;
		if (v.narrow)
			c.fillText(t.name, 6, y + NAME / 2 + 1);
		else
			c.fillText(t.name, 14, row.bar - offset + LANE / 2 - 1, v.left - 20);
		this.drawTrack(c, t, row.bar - offset);
		this.drawSelection(c, row, offset);
	}

	draw(elements) {
		const v = this.view, offset = elements.scroller.scrollTop;
		const c = fitCanvas(elements.canvas, v.width, v.shown);
		this.colours = palette();
		this.font = getComputedStyle(document.body).fontFamily;
		this.scale = (v.width - v.left) / (v.to - v.from);
		this.drawn = this.visited = 0;
		c.fillStyle = this.colours.back;
		c.fillRect(0, 0, v.width, v.shown);
		c.textBaseline = 'middle';
		c.font = `12px ${this.font}`;
		this.drawGrid(c, v.shown);
		for (const row of v.rows)
			if (row.y + row.height >= offset && row.y <= offset + v.shown)
				this.drawRow(c, row, offset);
		this.drawRuler(elements.ruler);
		this.drawOverview(elements.overview);
	}

	drawRuler(canvas) {
		const v = this.view, c = fitCanvas(canvas, v.width, 24);
		const { all, step } = ticks(v.from, v.to, v.width - v.left, 110);
		c.fillStyle = this.colours.back;
		c.fillRect(0, 0, v.width, 24);
		c.font = `12px ${this.font}`;
		c.textBaseline = 'middle';
		for (const t of all) {
			c.fillStyle = this.colours.line;
			c.fillRect(Math.round(this.x(t)), 16, 1, 8);
			c.fillStyle = this.colours.soft;
			c.textAlign = this.x(t) < v.left + 20 ? 'left' : this.x(t) > v.width - 40 ? 'right' : 'center';
			c.fillText(tickLabel(t, step), this.x(t), 8);
		}
		c.textAlign = 'left';
	}

	// How busy calls are, over all ranks, and where we are in it. The picture is kept.
	drawOverview(canvas) {
		const v = this.view, c = fitCanvas(canvas, v.width, 44), span = this.model.end || 1;
		if (!this.density || this.density.length !== v.width)
			this.density = this.measure(v.width, span);
		const most = Math.max(...this.density) || 1;
		c.clearRect(0, 0, v.width, 44);
		c.fillStyle = this.colours.kinds[0];
		for (let p = 0; p < v.width; p++)
			if (this.density[p])
				c.fillRect(p, 44 - Math.max(2, 40 * this.density[p] / most), 1, 44);
		const a = v.from / span * v.width, b = v.to / span * v.width;
		c.fillStyle = this.colours.shade;
		c.fillRect(a, 0, Math.max(b - a, 2), 44);
		c.strokeStyle = this.colours.focus;
		c.lineWidth = 1;
		c.strokeRect(a + 0.5, 0.5, Math.max(b - a - 1, 2), 43);
	}

	measure(width, span) {
		const density = new Float32Array(width), whole = { ...this.view, from: 0, to: span, left: 0, width };
		const all = new Painter(this.model, whole);
		all.scale = width / span;
		const spread = (begin, end, part) => {
			const a = Math.max(Math.floor(begin * all.scale), 0), b = Math.min(Math.floor(end * all.scale), width - 1);
			for (let p = a; p <= b; p++)
				density[p] += part * all.scale / (b - a + 1) + 1e-3;
		};
		for (const t of this.model.tracks)
			if (t.name.startsWith('calls') || t.name.startsWith('GOAL'))
				all.walk(t, i => spread(t.begin[i], t.end[i], t.end[i] - t.begin[i]), spread);
		return density;
	}
}
