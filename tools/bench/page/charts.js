// SPDX-License-Identifier: BSD-3-Clause
// Which plots show a scenario.
'use strict';

const UNIT_NAMES = { us: 'time', ms: 'time', ns: 'time', 'GB/s': 'GB/s', count: 'number', KiB: 'memory' };
const betterText = better => better === 'more' ? 'higher is better' : 'lower is better';
const axisText = r => `${UNIT_NAMES[r.unit] || r.unit} (${betterText(r.better)})`;

const seriesOf = (run, names, points) => names.map(name => ({ name: run.title(name), look: run.look(name),
	points: points(name) }));

function scaleFor(unit) {
	return values => unit === 'count' || unit === 'KiB' || values.some(n => isNumber(n) && n <= 0) ?
		new LinearScale(values, { unit }) : new LogScale(values, { format: n => formatValue(n, unit) });
}

// Median over bytes, spread as a band; both axes logarithmic.
function valueLines(run, { results, first, title }) {
	const points = side => results.map(r => pointOf(r, side)).filter(Boolean);
	return new Lines({ letter: run.letter, title, note: 'Median; band from P0 to P99 of the slowest rank.', xTitle: 'message size',
		yTitle: axisText(first), unit: first.unit, y: scaleFor(first.unit),
		series: seriesOf(run, run.sidesOf(results), points) });
}

function ratioLines(run, { results, title }) {
	const names = run.ratioSides(results), points = side => results.map(r => ratioOf(r, side)).filter(Boolean);
	return names.length ? new Lines({ letter: run.letter, title: `${title}: compared with plain MPI`, keepLegend: true, unit: 'ratio',
		note: 'Times as fast as plain MPI; whiskers: 95 % confidence.', xTitle: 'message size', yTitle: '', spread: 'whisker',
		y: values => new RatioScale(values), references: [{ y: 1 }], series: seriesOf(run, names, points) }) : null;
}

// The same for results that have no size, or more than one of a size.
function ratioForest(run, results, title) {
	const names = run.ratioSides(results), some = results.filter(r => Object.keys(r.ratios).length);
	return names.length ? new Forest({ title: `${title}: compared with plain MPI`,
		note: 'Times as fast as plain MPI; whiskers: 95 % confidence.', series: seriesOf(run, names, () => []),
		entries: some.map(r => ({ name: nameOf(r, some), points: names.map(n => ratioOf(r, n)) })) }) : null;
}

// A result's label, and what it takes to tell it from others with the same one.
function nameOf(result, among) {
	const twins = among.filter(r => r.label === result.label);
	const differs = name => new Set(twins.map(r => r[name])).size > 1;
	return [result.label, differs('timed') && timedFor(result.timed), differs('ranks') && ranksFor(result.ranks),
		new Set(twins.map(parametersText)).size > 1 && parametersText(result)].filter(Boolean).join(', ');
}

const groupName = (r, group) => group.isOverBytes ? formatBytes(r.bytes) : nameOf(r, group.results);

function overlapBars(run, group) {
	const names = run.sidesOf(group.results);
	const percent = (r, name) => {
		const value = r.sides[name];
		return value && (isNumber(value.overlap_percent) ? { y: value.overlap_percent, note: noteOf(r, value),
			isUnsure: !r.settled } : { note: 'could not be told' });
	};
	return new Bars({ letter: run.letter, title: `${group.title}: overlap`, xTitle: group.isOverBytes ? 'message size' : '',
		note: 'Share of the communication that was hidden behind the computation. Below 0: both together took longer than ' +
			'one after the other.', yTitle: 'overlap (higher is better)', references: [{ y: 100, text: 'all of it hidden' }],
		series: seriesOf(run, names, () => []), groups: group.results.map(r => ({ name: groupName(r, group),
			values: names.map(n => percent(r, n)) })) });
}

// All parts that some side of some result has, in their order.
function partsOf(results) {
	const titles = new Map();
	for (const part of results.flatMap(r => Object.values(r.sides).flatMap(v => v.parts || [])))
		titles.set(part.name, part.title);
	return [...titles];
}

function partStacks(run, group, results, title) {
	const names = run.sidesOf(results), parts = partsOf(results), first = results[0];
	const part = (value, name) => {
		const found = value.parts?.find(p => p.name === name);
		return found && { y: found.p50 };
	};
	return new Bars({ letter: run.letter, title, unit: first.unit, yTitle: axisText(first), stacks: names, keepLegend: true, height: 330,
		note: 'Medians. Each part is its own slowest rank\u2019s, so they need not add up; the line across is the whole, with ' +
			'its 95 % confidence.',
		series: parts.map(([, name], i) => ({ name, look: PART_LOOKS[i % PART_LOOKS.length] })),
		groups: results.map(r => ({ name: groupName(r, group), values: names.map(n => r.sides[n] && {
			parts: parts.map(([name]) => part(r.sides[n], name)), whole: pointOf(r, n, 'confidence') }) })) });
}

const PART_LOOKS = [8, 9, 10, 11, 12];

function valueBars(run, group) {
	const names = run.sidesOf(group.results), first = group.first;
	return new Bars({ letter: run.letter, title: group.title, unit: first.unit, yTitle: axisText(first), note: 'Median; whiskers: 95 % confidence.',
		xTitle: group.isOverBytes ? 'message size' : '', series: seriesOf(run, names, () => []), keepLegend: true,
		groups: group.results.map(r => ({ name: groupName(r, group), values: names.map(n => pointOf(r, n, 'confidence')) })) });
}

// What only the machine itself was measured for: one line for each thing, those of a unit together.
function machinePlots(run, results) {
	return groupBy(results, r => JSON.stringify([r.unit, r.timed])).map(some => {
		const lines = groupBy(some, r => JSON.stringify([r.what, r.ranks])), isOver = some.every(r => r.bytes > 0) && lines.some(l => l.length > 2);
		if (!isOver)
			return null;
		const first = some[0];
		return new Lines({ letter: run.letter, title: wordFor(first.timed), note: 'Median; band from P0 to P99.', xTitle: 'size', unit: first.unit,
			yTitle: axisText(first), y: scaleFor(first.unit), series: lines.map((l, i) => ({ look: i + 1,
			name: wordFor(l[0].what) + (lines.some(o => o !== l && o[0].what === l[0].what) ? `, by ${l[0].ranks}` : ''),
				points: l.map(r => pointOf(r, 'machine')) })) });
	});
}

const PLOTS = {
	lines: (run, group) => group.isOverBytes ? [valueLines(run, group), ratioLines(run, group)] : PLOTS.bars(run, group),
	bars(run, group) {
		const all = [];
		if (group.results.some(r => Object.values(r.sides).some(v => 'overlap_percent' in v)))
			all.push(overlapBars(run, group));
		if (partsOf(group.results).length)
			all.push(partStacks(run, group, group.results, `${group.title}: time`));
		else
			all.push(valueBars(run, group));
		return [...all, group.isOverBytes ? ratioLines(run, group) : ratioForest(run, group.results, group.title)];
	},
	// Each with an axis of its own: a small matrix is not to be seen beside a large one.
	stacks: (run, group) => [...group.results.map(r => partStacks(run, group, [r], nameOf(r, group.results))),
		ratioForest(run, group.results, group.title)],
	table: () => [],
};

// [[plot, ...], ...]: a list for each thing that was measured.
function plotsOf(run, scenario) {
	const ofMachine = scenario.results.filter(r => Object.keys(r.sides).every(s => s === 'machine'));
	const others = { ...scenario, results: scenario.results.filter(r => !ofMachine.includes(r)) };
	const lists = [machinePlots(run, ofMachine)];
	if (scenario.plot === 'table')
		lists.push([ratioForest(run, others.results, scenario.title)]);
	for (const group of plotGroups(others))
		lists.push((PLOTS[scenario.plot] || PLOTS.table)(run, group));
	return lists.map(list => list.filter(Boolean)).filter(list => list.length);
}
