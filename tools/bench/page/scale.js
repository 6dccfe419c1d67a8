// SPDX-License-Identifier: BSD-3-Clause
// Where a value lies between the two ends of an axis, from 0 to 1, and which values are written at it.
'use strict';

function extent(values) {
	const all = values.filter(isNumber);
	return all.length ? [Math.min(...all), Math.max(...all)] : null;
}

// Every second, third ... of them, so that at most `most` are left.
function thinOut(ticks, most) {
	const step = Math.ceil(ticks.length / Math.max(most, 1));
	return ticks.filter((_, i) => i % step === 0);
}

class LogScale {
	// steps: the marks within a power of base.
	constructor(values, { base = 10, steps = [1, 2, 5], format = formatNumber, includes = [] } = {}) {
		const all = extent([...values, ...includes].filter(n => n > 0)) || [1, base];
		Object.assign(this, { base, steps, format: n => trimmed(format(n)) });
		[this.from, this.to] = base === 2 ? this.padded(all) : this.rounded(all);
	}

	padded([from, to]) {
		return from === to ? [from / 2, to * 2] : [from / 1.25, to * 1.25];
	}

	rounded([from, to]) {
		const marks = this.marks(from / this.base, to * this.base, this.steps);
		const low = marks.filter(m => m <= from * 0.999).pop(), high = marks.find(m => m >= to * 1.001);
		return [low, high];
	}

	at(n) {
		return Math.log(n / this.from) / Math.log(this.to / this.from);
	}

	back(part) {
		return this.from * (this.to / this.from) ** part;
	}

	marks(from, to, steps) {
		const marks = [];
		const lowest = Math.floor(Math.log(from) / Math.log(this.base) - 1e-9);
		for (let power = lowest; this.base ** power <= to * 1.000001; power++)
			for (const step of steps) {
				const mark = Number((step * this.base ** power).toPrecision(12));
				if (mark >= from * 0.999999 && mark <= to * 1.000001)
					marks.push(mark);
			}
		return marks;
	}

	ticks(most) {
		if (this.base === 2)
			return this.powersOfTwo(most);
		for (const steps of [this.steps, [1, 3], [1]]) {
			const marks = this.marks(this.from, this.to, steps);
			if (marks.length <= most && marks.length > 1)
				return marks;
		}
		return thinOut(this.marks(this.from, this.to, [1]), most);
	}

	// 1, 4, 16 ... or 1, 8, 64 ... or 1, 32, 1 K, 32 K ...: always ones that meet 1 KB and 1 MB.
	powersOfTwo(most) {
		const marks = this.marks(this.from, this.to, [1]);
		for (const apart of [1, 2, 5, 10, 20]) {
			const some = marks.filter(m => Math.round(Math.log2(m)) % apart === 0);
			if (some.length <= most && (some.length > 1 || apart === 20 || marks.length === 1))
				return some;
		}
		return thinOut(marks, most);
	}
}

// Around 1: twice as fast is as far from it as half as fast. Never so near that noise fills the picture.
class RatioScale extends LogScale {
	constructor(values) {
		super(values, { includes: [0.8, 1.25], format: formatRatio });
		[this.from, this.to] = extent([...values.filter(n => n > 0), 0.8, 1.25]).map((n, i) => i ? n * 1.06 : n / 1.06);
	}

	// The roundest first, then others where there is room between.
	ticks(most) {
		const chosen = [];
		for (const n of [1, 2, 0.5, 5, 10, 0.2, 20, 50, 0.1, 100, 1.5, 3, 0.67, 1.25, 0.8, 7, 1.1, 0.9, 4, 1.75, 0.33])
			if (n >= this.from && n <= this.to && chosen.every(c => Math.abs(this.at(c) - this.at(n)) > 0.7 / most))
				chosen.push(n);
		return chosen.sort((a, b) => a - b);
	}
}

class LinearScale {
	constructor(values, { unit = '', includes = [0] } = {}) {
		const [from, to] = extent([...values, ...includes]) || [0, 1];
		this.value = formatFor(Math.max(Math.abs(from), Math.abs(to)), unit);
		this.format = n => trimmed(this.value(n));
		this.step = this.niceStep((to - from || Math.abs(to) || 1) / 5);
		this.from = Math.floor(from / this.step + 1e-9) * this.step;
		this.to = Math.ceil(to / this.step - 1e-9) * this.step;
		if (this.from === this.to)
			this.to += this.step;
	}

	niceStep(rough) {
		const power = 10 ** Math.floor(Math.log10(rough));
		return power * [1, 2, 2.5, 5, 10].find(n => n * power >= rough * 0.999);
	}

	at(n) {
		return (n - this.from) / (this.to - this.from);
	}

	back(part) {
		return this.from + part * (this.to - this.from);
	}

	ticks(most) {
		const marks = [];
		for (let i = Math.round(this.from / this.step); i * this.step <= this.to + this.step / 1e6; i++)
			marks.push(Number((i * this.step).toPrecision(10)));
		return thinOut(marks, most);
	}
}

// Names side by side, each with the same room.
class BandScale {
	constructor(names) {
		this.names = names;
		this.format = String;
	}

	at(name) {
		return (this.names.indexOf(name) + 0.5) / this.names.length;
	}

	ticks() {
		return this.names;
	}
}
