// SPDX-License-Identifier: BSD-3-Clause
// Numbers as people read them. KB, MB and GB are powers of 1024, as in the paper and in OSU's tables.
'use strict';

const MINUS = '\u2212', TIMES = '\u00d7', DASH = '\u2013', NBSP = '\u00a0';

const isNumber = n => typeof n === 'number' && Number.isFinite(n);

// Three digits that mean something: 1234, 123, 12.3, 1.23, 0.0123.
function formatNumber(n, digits = 3) {
	if (!isNumber(n))
		return DASH;
	if (n === 0)
		return '0';
	const size = Math.abs(n), whole = Math.floor(Math.log10(Number(size.toPrecision(digits)))) + 1;
	const text = size.toFixed(Math.min(Math.max(digits - whole, 0), 9));
	return (n < 0 ? MINUS : '') + (text.includes('.') ? text : Number(text).toLocaleString('en'));
}

// Without digits that say nothing: 2.50 is 2.5, and 2.00 is 2.
const trimmed = text => text.replace(/(\.\d*?)0+(?!\d)/, '$1').replace(/\.(?!\d)/, '');

function inUnit(n, steps) {
	const size = Math.abs(Number(n.toPrecision(3)));
	let [factor, name] = steps[0];
	for (const [from, unit] of steps)
		if (size >= from)
			[factor, name] = [from, unit];
	return [n / factor, name];
}

const BYTES = [[1, 'B'], [1024, 'KB'], [2 ** 20, 'MB'], [2 ** 30, 'GB']];
const TIME = [[0.001, 'ns'], [1, '\u00b5s'], [1e3, 'ms'], [1e6, 's']];

function formatBytes(n) {
	if (!isNumber(n))
		return DASH;
	let [factor, name] = BYTES[0];
	for (const [from, unit] of BYTES)
		if (n >= from)
			[factor, name] = [from, unit];
	return (Number.isInteger(n / factor) ? String(n / factor) : formatNumber(n / factor)) + NBSP + name;
}

function formatTime(us, digits = 3) {
	if (!isNumber(us))
		return DASH;
	if (us === 0)
		return '0';
	const [n, unit] = inUnit(us, TIME);
	return formatNumber(n, digits) + NBSP + unit;
}

const formatRatio = n => isNumber(n) ? n.toFixed(n < 9.995 ? 2 : n < 99.95 ? 1 : 0) + TIMES : DASH;
const formatPercent = n => isNumber(n) ? trimmed(formatNumber(Number(n.toFixed(1)))) + NBSP + '%' : DASH;

// A value in one of the units that a report knows.
function formatValue(n, unit) {
	switch (unit) {
	case 'us':
		return formatTime(n);
	case 'ns':
		return formatTime(isNumber(n) ? n / 1e3 : n);
	case 'ms':
		return formatTime(isNumber(n) ? n * 1e3 : n);
	case 'KiB':
		return formatBytes(isNumber(n) ? n * 1024 : n);
	case 'count':
		return formatNumber(n, isNumber(n) && Number.isInteger(n) ? 9 : 3);
	case 'B':
		return formatBytes(n);
	case '%':
		return formatPercent(n);
	case 'ratio':
		return formatRatio(n);
	default:
		return formatNumber(n) + (unit ? NBSP + unit : '');
	}
}

const IN_US = { ns: 1e-3, us: 1, ms: 1e3 };

// All values of an axis in the unit that suits its greatest one.
function formatFor(most, unit) {
	if (!(unit in IN_US) || !(most > 0))
		return n => formatValue(n, unit);
	const [n, name] = inUnit(most * IN_US[unit], TIME), factor = most / n;
	return value => formatNumber(value / factor, Math.abs(value) < factor ? 2 : 3) + (value ? NBSP + name : '');
}

// The unit of both ends once, if it is the same.
function formatRange(low, high, unit) {
	const [a, b] = [formatValue(low, unit), formatValue(high, unit)], [number, name] = a.split(NBSP);
	if (unit === 'ratio')
		return `${a.slice(0, -1)} to ${b}`;
	return `${name && name === b.split(NBSP)[1] ? number : a} to ${b}`;
}
