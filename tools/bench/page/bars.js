// SPDX-License-Identifier: BSD-3-Clause
// Bars in groups, from 0 up or down; side by side, or parts of a whole upon each other.
'use strict';

class Bars extends Plot {
	/*
	 * groups: [{ name, values }]; values: by series, { y, low, high, note }. Or with stacks (their names): values by
	 * stack, { parts: by series, whole }: the whole is measured too, and not the sum. unit; references: [{ y, text }].
	 */
	constructor(options) {
		super({ isBar: true, unit: '%', references: [], stacks: null, ...options });
	}

	// [{ name, bars: [{ label, parts: [{ series, value }], whole }] }]
	content() {
		const parts = values => this.shown.map(s => ({ series: s, value: values?.[this.series.indexOf(s)] }));
		return this.groups.map(group => ({ name: group.name, bars: this.stacks ?
			this.stacks.map((label, i) => ({ label, parts: parts(group.values[i]?.parts), whole: group.values[i]?.whole })) :
			parts(group.values).map(p => ({ label: p.series.name, parts: [p] })) }));
	}

	measure(width) {
		const sum = bar => bar.parts.reduce((n, p) => n + (p.value?.y ?? 0), 0);
		const ends = value => [value?.y, value?.low, value?.high];
		const values = this.family.flatMap(p => p.content()).flatMap(g => g.bars).flatMap(b => [sum(b), ...ends(b.whole),
			...(this.stacks ? [] : b.parts.flatMap(p => ends(p.value)))]);
		this.isLevel = this.stacks && this.fitsUnder(width);
		this.frame(width, new LinearScale([...values, ...this.references.map(r => r.y)],
			{ unit: this.unit }));
		if (this.stacks)
			this.area.bottom -= this.isLevel ? 16 : this.slantedRoom();
	}

	fitsUnder(width) {
		const room = (width - 80) / (this.groups.length * (this.stacks.length + 0.6));
		return this.stacks.every(s => textWidth(s) + 6 < room);
	}

	slantedRoom() {
		return Math.ceil(Math.max(...this.stacks.map(s => textWidth(s))) * 0.72) + 12;
	}

	paint() {
		const content = this.content(), each = (this.area.right - this.area.left) / (content.length || 1);
		const count = content[0]?.bars.length || 1, step = Math.min(each * 0.86 / count, this.stacks ? 90 : 46);
		this.groupAxis(content, each);
		for (const r of this.references)
			this.reference(r);
		content.forEach((group, g) => {
			const begin = this.area.left + each * (g + 0.5) - step * count / 2;
			group.bars.forEach((bar, b) => this.bar(group, bar, begin + step * (b + 0.06), step * 0.88));
			if (!this.stacks)
				this.stops.push({ x: this.area.left + each * (g + 0.5), y: this.area.top, label: group.name,
					lines: group.bars.flatMap(bar => this.lines(bar)) });
		});
	}

	groupAxis(content, each) {
		const x = new BandScale(content.map(g => g.name)), bottom = this.area.bottom;
		if (!this.stacks)
			return this.axes(x);
		this.area.bottom = bottom;
		this.axes({ ticks: () => [], at: () => 0, format: String });
		if (content.length < 2)
			return bottom;
		const y = this.height - (this.xTitle ? 24 : 8);
		content.forEach((g, i) => this.picture.append(svg('text', { class: 'middle strong', y,
			x: this.area.left + each * (i + 0.5) }, g.name)));
		return bottom;
	}

	reference({ y, text }) {
		const at = Math.round(this.py(y)) + 0.5, { left, right } = this.area;
		this.picture.append(svg('path', { d: `M${left},${at}H${right}`, class: 'reference' }),
			text ? svg('text', { x: right - 4, y: at - 4, class: 'end aside' }, text) : '');
	}

	bar(group, bar, x, width) {
		let top = 0;
		for (const { series, value } of bar.parts.filter(p => isNumber(p.value?.y))) {
			this.rect(group, bar, series, value, { x, width, from: top, to: top + value.y });
			top += value.y;
		}
		if (bar.parts.every(p => !isNumber(p.value?.y)))
			this.picture.append(svg('text', { x: x + width / 2, y: this.py(0) - 4, class: 'middle aside' }, DASH));
		if (this.stacks) {
			this.whole(group, bar, x, width);
			this.underStack(group, bar, x + width / 2, Math.max(top, bar.whole?.high ?? 0, bar.whole?.y ?? 0));
		}
	}

	whole(group, bar, x, width) {
		const { y, low, high } = bar.whole || {}, middle = x + width / 2;
		if (!isNumber(y))
			return;
		const limits = isNumber(low) && isNumber(high) ? `M${middle},${this.py(low)}V${this.py(high)}` : '';
		this.picture.append(svg('path', { class: `whisker over${bar.whole.isUnsure ? ' unsure' : ''}`,
			d: `M${x},${this.py(y)}h${width}${limits}`, 'data-group': group.name, 'data-bar': bar.label, 'data-y': y,
			'data-low': low, 'data-high': high }));
	}

	rect(group, bar, series, value, { x, width, from, to }) {
		const y = Math.min(this.py(from), this.py(to)), height = Math.abs(this.py(from) - this.py(to));
		const g = svg('g', { class: `series c${series.look}`, 'data-series': series.name });
		g.append(svg('rect', { x, width, y, height: Math.max(height, 0.5), fill: `url(#${this.id}-t${series.look})`,
			class: `bar${value.isUnsure ? ' unsure' : ''}`, 'data-group': group.name, 'data-bar': bar.label, 'data-y': value.y,
			'data-low': value.low, 'data-high': value.high }));
		if (!this.stacks && isNumber(value.low) && isNumber(value.high)) {
			const middle = x + width / 2, low = this.py(value.low), high = this.py(value.high);
			g.append(svg('path', { class: 'whisker over', d: `M${middle},${low}V${high}M${middle - 3},${low}h6M${middle - 3},${high}h6` }));
		}
		this.picture.append(g);
	}

	underStack(group, bar, x, top) {
		const y = this.area.bottom + 14, total = bar.whole?.y;
		const slanted = { class: 'end', x: x + 4, y, transform: `rotate(-45 ${x + 4} ${y})` };
		this.picture.append(svg('text', this.isLevel ? { class: 'middle', x, y } : slanted, bar.label));
		if (total > 0 && this.short(total))
			this.picture.append(svg('text', { class: 'middle aside', x, y: this.py(top) - 5 }, this.short(total)));
		this.stops.push({ x, y: this.area.top, label: `${group.name}, ${bar.label}`, lines: [...this.lines(bar),
			{ name: 'all of it', text: this.text(bar.whole) }] });
	}

	// The number above a stack, where there is room for it.
	short(n) {
		const room = (this.area.right - this.area.left) / (this.groups.length * this.stacks.length) - 2;
		const text = this.y.value(n);
		return [text, text.split(NBSP)[0]].find(t => textWidth(t) < room);
	}

	lines(bar) {
		return bar.parts.map(({ series, value }) => ({ look: series.look, name: series.name, text: this.text(value) }));
	}

	text(value) {
		if (!isNumber(value?.y))
			return value?.note || 'not measured';
		const range = isNumber(value.low) && isNumber(value.high) ? ` (${formatRange(value.low, value.high, this.unit)})` : '';
		return formatValue(value.y, this.unit) + range + (value.note ? `, ${value.note}` : '');
	}

	summary() {
		return `bars of ${this.series.map(s => s.name).join(', ')}, for ${this.groups.map(g => g.name).join(', ')}`;
	}

	rows() {
		const names = this.series.map(s => s.name), cells = values => this.series.map((_, i) => this.text(values?.[i]));
		if (!this.stacks)
			return [[this.xTitle || '', ...names], ...this.groups.map(g => [g.name, ...cells(g.values)])];
		return [[this.xTitle || '', ...names, 'all of it'], ...this.groups.flatMap(g => this.stacks.map((s, i) =>
			[`${g.name}, ${s}`, ...cells(g.values[i]?.parts), this.text(g.values[i]?.whole)]))];
	}
}
