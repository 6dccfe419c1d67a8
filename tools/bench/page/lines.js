// SPDX-License-Identifier: BSD-3-Clause
// Points over sizes (or other numbers), joined by lines; their spread as a band or as whiskers.
'use strict';

class Lines extends Plot {
	/* series: { name, look, points: [{ x, y, low, high, note }] }; x and y: makers of scales; xText, unit: for reading. */
	constructor(options) {
		super({ x: values => new LogScale(values, { base: 2, steps: [1], format: formatBytes }), xText: formatBytes,
			y: values => new LogScale(values, { format: formatTime }), unit: 'us', spread: 'band', spreadName: 'P0 to P99',
			references: [], ...options });
	}

	// On a logarithmic axis there is no place for 0 and less.
	points(series) {
		const has = n => isNumber(n) && (!(this.y instanceof LogScale) || n > 0);
		return series.points.filter(p => has(p.y)).sort((a, b) => a.x - b.x);
	}

	measure(width) {
		const all = this.family.flatMap(p => p.shown.flatMap(s => s.points)), make = this.makeY ||= this.y;
		const values = all.flatMap(p => [p.y, p.low, p.high]);
		this.xScale = (this.makeX ||= this.x)(all.map(p => p.x));
		this.frame(width, make([...values, ...this.references.map(r => r.y)]));
	}

	paint() {
		this.shade();
		this.axes(this.xScale);
		for (const r of this.references)
			this.reference(r);
		const dodge = this.spread === 'whisker' ? 3 : 0;
		this.shown.forEach((s, i) => this.one(s, (i - (this.shown.length - 1) / 2) * dodge));
		this.findStops();
	}

	// What is below 1 in a plot of ratios is a loss, and looks like one.
	shade() {
		if (!(this.y instanceof RatioScale))
			return;
		const { left, right, top, bottom } = this.area, one = this.py(1);
		this.picture.append(
			svg('rect', { x: left, y: top, width: right - left, height: one - top, class: 'gain' }),
			svg('rect', { x: left, y: one, width: right - left, height: bottom - one, class: 'loss' }),
			svg('text', { x: 0, y: 12, class: 'gain' }, '\u25b2 above 1: faster'),
			svg('text', { x: textWidth('\u25b2 above 1: faster') + 16, y: 12, class: 'loss' }, '\u25bc below 1: slower'));
	}

	reference({ y, text }) {
		const at = Math.round(this.py(y)) + 0.5, { left, right } = this.area;
		this.picture.append(svg('path', { d: `M${left},${at}H${right}`, class: 'reference' }),
			text ? svg('text', { x: left + 4, y: at - 4, class: 'aside' }, text) : '');
	}

	one(series, shift) {
		const points = this.points(series), g = svg('g', { class: `series c${series.look}`, 'data-series': series.name });
		const x = p => this.px(this.xScale.at(p.x)) + shift, y = n => this.py(n);
		const spread = points.filter(p => isNumber(p.low) && isNumber(p.high) && !(this.y instanceof LogScale && p.low <= 0));
		if (this.spread === 'band' && spread.length > 1)
			g.append(svg('path', { class: 'band', d: `M${spread.map(p => `${x(p)},${y(p.high)}`).join('L')}L` +
				spread.reverse().map(p => `${x(p)},${y(p.low)}`).join('L') + 'z' }));
		else
			spread.forEach(p => g.append(svg('path', { class: 'whisker',
				d: `M${x(p)},${y(p.low)}V${y(p.high)}M${x(p) - 3},${y(p.low)}h6M${x(p) - 3},${y(p.high)}h6` })));
		g.append(svg('path', { class: 'line', 'stroke-dasharray': DASHES[series.look % DASHES.length],
			d: points.length ? `M${points.map(p => `${x(p)},${y(p.y)}`).join('L')}` : '' }));
		const radius = points.length > 16 ? 2.6 : 4;
		for (const p of points)
			g.append(svg('path', { d: markPath(series.look, radius), transform: `translate(${x(p)},${y(p.y)})`,
				class: `mark${p.isUnsure ? ' unsure' : ''}`, 'data-x': p.x, 'data-y': p.y, 'data-low': p.low, 'data-high': p.high }));
		this.picture.append(g);
	}

	findStops() {
		for (const x of this.xs()) {
			const lines = this.shown.flatMap(s => s.points.filter(p => p.x === x).map(p => ({ look: s.look, name: s.name,
				text: this.text(p) })));
			if (lines.length)
				this.stops.push({ x: this.px(this.xScale.at(x)), y: this.area.top, label: this.xText(x), lines });
		}
	}

	xs() {
		return [...new Set(this.series.flatMap(s => s.points.map(p => p.x)))].sort((a, b) => a - b);
	}

	text(p) {
		const range = isNumber(p.low) && isNumber(p.high) ? ` (${formatRange(p.low, p.high, this.unit)})` : '';
		return formatValue(p.y, this.unit) + range + (p.note ? `, ${p.note}` : '');
	}

	summary() {
		const name = this.series.map(s => s.name).join(', '), xs = this.xs();
		return xs.length ? `${name}, from ${this.xText(xs[0])} to ${this.xText(xs[xs.length - 1])}` : 'no values';
	}

	rows() {
		return [[this.xTitle || '', ...this.series.map(s => s.name)], ...this.xs().map(x => [this.xText(x),
			...this.series.map(s => s.points.filter(p => p.x === x).map(p => this.text(p)).join('; ') || DASH)])];
	}
}
