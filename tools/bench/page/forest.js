// SPDX-License-Identifier: BSD-3-Clause
// Ratios in rows, with their confidence: what is left of 1 is a loss, what is right of it a gain.
'use strict';

const LANE = 15, WIDE = 480;

class Forest extends Plot {
	/* rows of the picture: entries: [{ name, points: by series, { y, low, high, note } }] */
	constructor(options) {
		super({ isList: true, keepLegend: true, ...options });
	}

	measure(width) {
		const points = this.entries.flatMap(e => this.shown.map(s => e.points[this.series.indexOf(s)])).filter(Boolean);
		this.scale = new RatioScale(points.flatMap(p => [p.y, p.low, p.high]));
		const isWide = width >= WIDE, lanes = this.shown.length * LANE;
		this.row = lanes + (isWide ? 8 : 24);
		this.nameRoom = isWide ? Math.min(Math.max(...this.entries.map(e => textWidth(e.name)), 60) + 14, width * 0.4) : 0;
		this.area = { left: this.nameRoom + 6, right: width - 16, top: 24, bottom: 24 + this.row * this.entries.length };
		this.height = this.area.bottom + 30;
		this.lanesFrom = isWide ? 4 : 20;
	}

	paint() {
		const { left, right, top, bottom } = this.area, x = n => this.px(this.scale.at(n)), one = x(1);
		this.picture.append(
			svg('rect', { x: left, y: top, width: one - left, height: bottom - top, class: 'loss' }),
			svg('rect', { x: one, y: top, width: right - one, height: bottom - top, class: 'gain' }),
			svg('text', { x: left, y: 15, class: 'loss' }, '\u25bc slower'),
			svg('text', { x: right, y: 15, class: 'end gain' }, 'faster \u25b2'));
		this.grid(x);
		this.entries.forEach((e, i) => this.entry(e, top + i * this.row, x));
	}

	grid(x) {
		const { left, right, top, bottom } = this.area, g = svg('g', { class: 'axes' });
		let most = 18, ticks;
		do
			ticks = this.scale.ticks(most);
		while (!ticks.every((t, i) => !i || x(t) - x(ticks[i - 1]) > 44) && --most > 1);
		for (const tick of ticks)
			g.append(svg('path', { d: `M${x(tick)},${top}V${bottom}`, class: tick === 1 ? 'zero' : 'grid' }),
				svg('text', { x: x(tick), y: bottom + 17, class: 'middle' }, this.scale.format(tick)));
		this.entries.forEach((_, i) => i && g.append(svg('path', { class: 'grid', d: `M${left - this.nameRoom},${top +
			i * this.row}H${right}` })));
		this.picture.append(g);
	}

	entry(e, y, x) {
		const isWide = this.nameRoom > 0, name = svg('text', { class: 'strong', x: isWide ? 2 : this.area.left + 4,
			y: isWide ? y + this.row / 2 + 4 : y + 14 }, e.name);
		this.picture.append(name);
		if (isWide && textWidth(e.name, true) > this.nameRoom)
			name.setAttribute('textLength', this.nameRoom - 6), name.setAttribute('lengthAdjust', 'spacingAndGlyphs');
		this.shown.forEach((s, lane) => {
			const p = e.points[this.series.indexOf(s)], at = y + this.lanesFrom + (lane + 0.5) * LANE;
			if (p && p.y > 0)
				this.point(s, e, p, at, x);
		});
		const lines = this.shown.map(s => ({ look: s.look, name: s.name, text: this.text(e.points[this.series.indexOf(s)]) }));
		this.stops.push({ x: this.area.right, y: y + this.row, label: e.name, lines });
	}

	point(series, e, p, y, x) {
		const g = svg('g', { class: `series c${series.look}`, 'data-series': series.name });
		if (p.low > 0 && isNumber(p.high))
			g.append(svg('path', { class: 'whisker', d: `M${x(p.low)},${y}H${x(p.high)}M${x(p.low)},${y - 3}v6` +
				`M${x(p.high)},${y - 3}v6` }));
		g.append(svg('path', { d: markPath(series.look, 4), transform: `translate(${x(p.y)},${y})`,
			class: `mark${p.isUnsure ? ' unsure' : ''}`, 'data-x': e.name, 'data-y': p.y, 'data-low': p.low, 'data-high': p.high }));
		this.picture.append(g);
	}

	text(p) {
		if (!p)
			return 'not measured';
		const range = isNumber(p.low) ? ` (${formatRange(p.low, p.high, 'ratio')})` : '';
		return formatRatio(p.y) + range + (p.note ? `, ${p.note}` : '');
	}

	summary() {
		return `${this.series.map(s => s.name).join(', ')}, for ${this.entries.map(e => e.name).join('; ')}`;
	}

	rows() {
		return [['', ...this.series.map(s => s.name)], ...this.entries.map(e => [e.name,
			...this.series.map((_, i) => this.text(e.points[i]))])];
	}
}
