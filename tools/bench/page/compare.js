// SPDX-License-Identifier: BSD-3-Clause
// Two runs side by side: the same plots with the same axes, and how many times as good the second one is.
'use strict';

/*
 * Intervals of two runs are not of pairs, so the ratio's is as wide as both together allow:
 * it has no doubt only where they do not overlap.
 */
function ratioOfRuns(a, b, side) {
	const one = a.sides[side], other = b.sides[side];
	if (!one || !other || !(one.p50 > 0 && other.p50 > 0))
		return undefined;
	const [least, most] = [one.low / other.high, other.low > 0 ? one.high / other.low : Infinity];
	const isLess = a.better !== 'more', turn = n => isLess ? n : 1 / n;
	const [low, high] = extent([turn(least), turn(most)]) || [];
	const ratio = { y: turn(one.p50 / other.p50), low, high, isUnsure: !(a.settled && b.settled) };
	return { ...ratio, x: a.bytes, verdict: verdictOfRuns(ratio), note: VERDICTS[verdictOfRuns(ratio)] };
}

const SMALL = 0.05; /* as stats.SMALL_SPREAD: between two runs other things differ too */

const verdictOfRuns = ratio => Math.abs(1 / ratio.y - 1) <= SMALL ? 'even' : verdictOf(ratio);

// [{ name, title, results: [[a, b], ...] }]: what both have measured, by the keys that are the same in every run.
function matched(a, b) {
	return a.scenarios.flatMap(scenario => {
		const other = b.scenarios.find(s => s.name === scenario.name);
		const pairs = other ? scenario.results.map(r => [r, other.results.find(o => o.key === r.key && o.unit === r.unit)])
			.filter(([, o]) => o) : [];
		return pairs.length ? [{ scenario, other, pairs }] : [];
	});
}

function sidesOfPairs(a, pairs) {
	const has = name => pairs.some(([r, o]) => ratioOfRuns(r, o, name));
	return [...new Set([...a.sides.map(s => s.name), ...pairs.flatMap(([r]) => Object.keys(r.sides))])].filter(has);
}

function runRatios(a, pairs, title) {
	const names = sidesOfPairs(a, pairs), some = pairs.map(([r]) => r);
	if (!names.length)
		return null;
	const options = { title: `${title}: B compared with A`, keepLegend: true, unit: 'ratio',
		note: 'Times as good as in A; whiskers: what both intervals allow.' };
	if (!isOverBytes(some))
		return new Forest({ ...options, series: seriesOf(a, names, () => []), entries: pairs.map(([r, o]) => ({
			name: nameOf(r, some), points: names.map(n => ratioOfRuns(r, o, n)) })) });
	return new Lines({ ...options, spread: 'whisker', xTitle: 'message size', yTitle: '', y: values => new RatioScale(values),
		references: [{ y: 1 }], series: seriesOf(a, names, n => pairs.map(([r, o]) => ratioOfRuns(r, o, n)).filter(Boolean)) });
}

// What both runs' own plots of one group are, one beside the other.
function twinPlots(a, b, scenario, group, others) {
	const of = (run, results) => (PLOTS[scenario.plot] || PLOTS.table)(run, { ...group, results }).filter(Boolean);
	const [mine, theirs] = [of(a, group.results), of(b, others)];
	return mine.flatMap(plot => {
		const twin = theirs.find(p => p.title === plot.title);
		if (twin)
			plot.join(twin);
		return twin ? [plot, twin] : [plot];
	});
}

function comparedPlots(a, b, { scenario, pairs }) {
	const partner = new Map(pairs), mine = { ...scenario, results: pairs.map(([r]) => r) };
	const lists = scenario.plot === 'table' ? [[runRatios(a, pairs, scenario.title)]] : plotGroups(mine).map(group =>
		[...twinPlots(a, b, scenario, group, group.results.map(r => partner.get(r))),
			runRatios(a, group.results.map(r => [r, partner.get(r)]), group.title)]);
	return lists.map(list => list.filter(Boolean)).filter(list => list.length);
}
