// SPDX-License-Identifier: BSD-3-Clause
// What a report of sluice bench says (sluice-bench-json(5)), put in the order in which it is shown.
'use strict';

const WORDS = { bcast: 'Broadcast', gather: 'Gather', scatter: 'Scatter', allreduce: 'Allreduce', reduce: 'Reduce',
	allgather: 'Allgather', alltoall: 'All-to-all', sendrecv: 'Send and receive', barrier: 'Barrier' };
const TIMED = { call: 'the call alone', use: 'until the data has been used', all: 'the whole run' };

const wordFor = what => WORDS[what] || what.charAt(0).toUpperCase() + what.slice(1);
const timedFor = timed => TIMED[timed] || timed;
const ranksFor = n => `${n} rank${n === 1 ? '' : 's'}`;

// Does an interval leave a doubt about which of two is better?
function verdictOf(ratio) {
	if (ratio.verdict)
		return ratio.verdict;
	return ratio.low > 1 ? 'gain' : ratio.high < 1 ? 'loss' : 'even';
}

const VERDICTS = { gain: '\u25b2 faster', loss: '\u25bc slower', even: '= no difference' };

function groupBy(list, keyOf) {
	const groups = new Map();
	for (const item of list) {
		const key = keyOf(item);
		groups.set(key, [...(groups.get(key) || []), item]);
	}
	return [...groups.values()];
}

class Run {
	constructor({ name, report }) {
		this.name = name;
		Object.assign(this, report);
		this.looks = new Map(this.sides.map((s, i) => [s.name, i % LOOKS]));
	}

	title(side) {
		return side === 'machine' ? 'this machine' : this.sides.find(s => s.name === side)?.title || side;
	}

	look(side) {
		return this.looks.get(side) ?? LOOKS - 1;
	}

	// In the order of sides, those that some of the results have.
	sidesOf(results, of = 'sides') {
		const has = name => results.some(r => name in r[of]);
		const others = [...new Set(results.flatMap(r => Object.keys(r[of])))].filter(n => !this.looks.has(n));
		return [...this.sides.map(s => s.name), ...others].filter(has);
	}

	// None where two runs are compared: there it would be one comparison too many.
	ratioSides(results) {
		return this.letter ? [] : this.sidesOf(results, 'ratios');
	}

	// [{ result, scenario, side, ratio }] of all that was compared with the plain MPI.
	compared() {
		return this.scenarios.flatMap(scenario => scenario.results.flatMap(result => Object.entries(result.ratios)
			.map(([side, ratio]) => ({ scenario, result, side, ratio }))));
	}

	problems() {
		const all = [];
		if (this.run.stopped)
			all.push(`The run ended early: ${this.run.stopped}. What was measured until then is shown.`);
		if (this.machine.disturbed)
			all.push(this.machine.disturbed);
		const wrong = this.scenarios.flatMap(s => s.results.flatMap(r => Object.values(r.sides).map(v => v.wrong)))
			.reduce((n, w) => n + w, 0);
		if (wrong)
			all.push(`WRONG CONTENTS were found ${wrong} time${wrong > 1 ? 's' : ''} after a call.`);
		const rest = this.scenarios.filter(s => !s.complete && !this.failures.some(f => f.scenario === s.name));
		if (rest.length)
			all.push(`Not complete: ${rest.map(s => s.title).join('; ')}`);
		return all;
	}

	failureTexts() {
		return this.failures.map(f => `Failed: ${f.scenario}, ${this.title(f.side)}, ${ranksFor(f.ranks)}: ${f.why}`);
	}
}

// What distinguishes one result from others that are alike in what, timed and ranks.
function parametersText(result) {
	return Object.entries(result.parameters || {}).map(([name, value]) => {
		const [, plain, unit] = /^(.*)_(us|ms|ns|bytes)$/.exec(name) || [null, name, ''];
		const words = plain.replaceAll('_', ' ');
		return `${words} ${isNumber(value) && unit ? formatValue(value, unit === 'bytes' ? 'B' : unit) : value}`;
	}).join(', ');
}

const isOverBytes = results => results.every(r => r.bytes > 0) && new Set(results.map(r => r.bytes)).size === results.length;

// Results that belong into one plot: alike in everything but the bytes, and in what follows from them.
function plotGroups(scenario) {
	const varies = name => new Set(scenario.results.map(r => r[name])).size > 1;
	const alike = groupBy(scenario.results, r => JSON.stringify([r.what, r.timed, r.ranks, r.unit]));
	const split = results => isOverBytes(results) ? [results] : groupBy(results, parametersText);
	return alike.flatMap(results => split(results).map((some, _, all) => ({ results: some, first: some[0],
		isOverBytes: isOverBytes(some), title: [wordFor(some[0].what), varies('timed') && timedFor(some[0].timed),
			varies('ranks') && ranksFor(some[0].ranks), all.length > 1 && parametersText(some[0])].filter(Boolean).join(', ') })));
}

function noteOf(result, value) {
	return [result.settled ? '' : 'still scattered', value.wrong ? `WRONG CONTENTS ${value.wrong} times` : '',
		value.samples === 1 ? 'one sample' : ''].filter(Boolean).join(', ');
}

// A measured value as a point of a plot: with its spread (P0 to P99) or its confidence.
function pointOf(result, side, kind = 'spread') {
	const value = result.sides[side];
	if (!value)
		return undefined;
	const ends = kind === 'confidence' ? [value.low, value.high] : isNumber(value.p99) ? [value.p0, value.p99] : [];
	const [low, high] = extent(ends) || [];
	return { x: result.bytes, y: value.p50, low, high, note: noteOf(result, value), isUnsure: !result.settled };
}

function ratioOf(result, side) {
	const ratio = result.ratios[side];
	return ratio && { x: result.bytes, y: ratio.value, low: ratio.low, high: ratio.high, isUnsure: !result.settled,
		note: [VERDICTS[verdictOf(ratio)], `${ratio.pairs} pair${ratio.pairs > 1 ? 's' : ''}`].join(', ') };
}

function loadRuns() {
	return JSON.parse(document.getElementById('data').textContent).runs.map(r => new Run(r));
}
