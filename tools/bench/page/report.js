// SPDX-License-Identifier: BSD-3-Clause
// The page: what has gone wrong, what is gained and lost, a section for each scenario, and where it was measured.
'use strict';

function table(caption, head, rows, options = {}) {
	const cell = (value, i) => value instanceof Node ? value : html(i ? 'td' : 'th', i ? {} : { scope: 'row' }, value);
	return html('div', { class: 'wide', tabindex: 0, role: 'region', 'aria-label': caption },
		html('table', { class: options.isText ? 'text' : null }, html('caption', { class: 'unseen' }, caption),
			head.some(Boolean) ? html('thead', {}, html('tr', {}, head.map(h => html(h ? 'th' : 'td', h ? { scope: 'col' } : {},
				h)))) : null, html('tbody', {}, rows.map(row => html('tr', {}, row.map(cell))))));
}

const idOf = name => `s-${name.replace(/[^A-Za-z0-9_-]/g, '_')}`;
const plural = (n, word) => `${n} ${word}${n === 1 ? '' : 's'}`;

function formatSeconds(s) {
	const minutes = Math.floor(s / 60);
	return minutes ? `${minutes} min ${Math.round(s % 60)} s` : `${formatNumber(s)} s`;
}

// ---- gains and losses -----------------------------------------------------------------------------------------

const COUNTED = ['gain', 'even', 'loss'];

function countVerdicts(list) {
	const counts = { gain: 0, even: 0, loss: 0 };
	list.forEach(({ ratio }) => counts[verdictOf(ratio)]++);
	return counts;
}

function share(counts) {
	return html('div', { class: 'share', 'aria-hidden': 'true' }, COUNTED.filter(v => counts[v]).map(v =>
		html('span', { class: v, style: `flex-grow:${counts[v]}` })));
}

function sideCard(run, side, list) {
	const counts = countVerdicts(list), ratios = list.map(c => c.ratio.value);
	return html('li', {}, html('h3', {}, run.title(side)), share(counts), html('p', {},
		html('b', { class: 'gain' }, `\u25b2 ${counts.gain} faster`), ' ', html('b', { class: 'loss' }, `\u25bc ${counts.loss} slower`),
		' ', html('span', {}, `= ${counts.even} no difference`)), html('p', { class: 'note' },
		`from ${formatRatio(Math.min(...ratios))} to ${formatRatio(Math.max(...ratios))}`));
}

// The farthest of each line of a plot, so that one line does not fill the list.
function farthest(list, sign) {
	const lines = groupBy(list, c => JSON.stringify([c.scenario.name, c.result.what, c.result.timed, c.result.ranks, c.side]));
	const better = (a, b) => sign * (a.ratio.value - b.ratio.value);
	return lines.map(line => line.sort(better)[0]).sort(better).slice(0, 5);
}

function extremes(run, list, verdict) {
	const isGain = verdict === 'gain', some = list.filter(c => verdictOf(c.ratio) === verdict);
	const item = c => html('li', {}, html('b', { class: verdict }, formatRatio(c.ratio.value)), ' ',
		html('a', { href: `#${idOf(c.scenario.name)}` }, c.result.label),
		html('small', {}, [` ${timedFor(c.result.timed)}`, ranksFor(c.result.ranks), run.title(c.side),
			`95 %: ${formatRange(c.ratio.low, c.ratio.high, 'ratio')}`].join(' \u00b7 ')));
	return html('div', { class: `extremes ${verdict}` }, html('h3', {}, isGain ? '\u25b2 Largest gains' : '\u25bc Largest losses'),
		some.length ? html('ol', {}, farthest(some, isGain ? -1 : 1).map(item)) :
			html('p', {}, 'None that the measurement is sure of.'));
}

function overview(run, list, against) {
	if (!list.length)
		return html('section', { id: 'first', 'aria-label': 'Gains and losses' }, html('p', {}, 'Nothing was compared.'));
	const sides = [...new Set([...run.sides.map(s => s.name), ...list.map(c => c.side)])];
	const cards = sides.map(s => [s, list.filter(c => c.side === s)]).filter(([, l]) => l.length);
	return html('section', { id: 'first', 'aria-labelledby': 'gains' }, html('h2', { id: 'gains' }, 'Gains and losses'),
		html('p', { class: 'note' }, `Each result is compared with ${against}. Faster or slower is said where the 95 % ` +
			'interval of the ratio leaves no doubt. A ratio above 1 is a gain.'),
		html('ul', { class: 'cards' }, cards.map(([s, l]) => sideCard(run, s, l))),
		html('div', { class: 'pair' }, extremes(run, list, 'gain'), extremes(run, list, 'loss')));
}

function problemList(runs) {
	const of = texts => runs.flatMap(run => texts(run).map(text => runs.length > 1 ? `${run.letter}: ${text}` : text));
	const all = of(run => run.problems()), failures = of(run => run.failureTexts());
	const list = texts => html('ul', {}, texts.map(t => html('li', {}, t)));
	if (!all.length && !failures.length)
		return null;
	return html('section', { class: 'problems', 'aria-labelledby': 'wrong' }, html('h2', { id: 'wrong' },
		'What to know before reading on'), all.length ? list(all) : null, failures.length <= FEW ? list(failures) :
		html('details', {}, html('summary', {}, `${failures.length} launches failed, or had no undisturbed sample`),
			list(failures)));
}

const FEW = 4;

// ---- scenarios --------------------------------------------------------------------------------------------------

function samplesText(result, value) {
	return [`${value.samples} in ${value.launches} launch${value.launches === 1 ? '' : 'es'}`,
		value.dropped && `${value.dropped} dropped`, value.wrong && `${value.wrong} WRONG`,
		!result.settled && 'scattered'].filter(Boolean).join(', ');
}

// Names of columns and what stands in them; those in which nothing stands are left out.
const COLUMNS = [
	['', (run, scenario, r) => nameOf(r, scenario.results)], ['timed', (run, s, r) => timedFor(r.timed)],
	['ranks', (run, s, r) => String(r.ranks)], ['side', (run, s, r, side) => run.title(side)],
	['P0', (run, s, r, side) => formatValue(r.sides[side].p0, r.unit)],
	['P50', (run, s, r, side) => formatValue(r.sides[side].p50, r.unit)],
	['95 %', (run, s, r, side) => formatRange(r.sides[side].low, r.sides[side].high, r.unit)],
	['P99', (run, s, r, side) => formatValue(r.sides[side].p99, r.unit)],
	['ratio', (run, s, r, side) => r.ratios[side] ? formatRatio(r.ratios[side].value) : DASH],
	['95 %', (run, s, r, side) => r.ratios[side] ? formatRange(r.ratios[side].low, r.ratios[side].high, 'ratio') : DASH],
	['', (run, s, r, side) => r.ratios[side] ? VERDICTS[verdictOf(r.ratios[side])] : DASH],
	['samples', (run, s, r, side) => samplesText(r, r.sides[side])],
];

function allNumbers(run, scenario) {
	const all = scenario.results.flatMap(r => run.sidesOf([r]).map(side => COLUMNS.map(([, text]) =>
		text(run, scenario, r, side))));
	const isSame = i => all.every(row => row[i] === all[0][i]);
	const used = COLUMNS.map((_, i) => i).filter(i => !(isSame(i) && (all[0][i] === DASH || CONSTANT.includes(COLUMNS[i][0]))));
	const facts = [timedFor(scenario.results[0].timed), ranksFor(scenario.results[0].ranks)].filter((_, i) => isSame(i + 1));
	const looks = text => text.startsWith('\u25b2') ? 'gain' : text.startsWith('\u25bc') ? 'loss' : null;
	const cell = (text, i) => i ? html('td', { class: WORDY.includes(COLUMNS[i][0]) ? 'left' : looks(text) }, text) :
		html('th', { scope: 'row' }, text);
	return html('details', { class: 'all', open: scenario.plot === 'table' && all.length <= OPEN_ROWS }, html('summary', {},
		`All numbers${run.letter ? ` of ${run.letter}` : ''}`, facts.length ? ` (${facts.join(', ')})` : '', html('span', { class: 'unseen' }, `: ${scenario.title}`)),
	table(`All numbers: ${scenario.title}${run.letter ? `, ${run.letter}` : ''}`, used.map(i => COLUMNS[i][0]),
		all.map(row => used.map(i => cell(row[i], i)))));
}

const OPEN_ROWS = 60, CONSTANT = ['timed', 'ranks'], WORDY = ['timed', 'side'];

function factsOf(scenario) {
	const open = scenario.results.filter(r => !r.settled).length;
	return [plural(scenario.rounds, 'round'), scenario.warmup && `warm-up: ${scenario.warmup}`, formatSeconds(scenario.seconds),
		open ? `${open} of ${plural(scenario.results.length, 'result')} still scattered (hollow marks)` : 'all results settled',
		scenario.complete ? '' : 'not complete'].filter(Boolean).join(' \u00b7 ');
}

function section(scenario, facts, lists, numbers) {
	const id = idOf(scenario.name);
	return html('section', { id, 'aria-labelledby': `${id}-h`, class: 'scenario' }, html('h2', { id: `${id}-h` }, scenario.title),
		html('p', {}, scenario.about), facts.map(f => html('p', { class: 'note' }, f)),
		scenario.results.length ? null : html('p', { class: 'empty' }, 'No results.'),
		lists.map(list => html('div', { class: list.length % 3 ? 'plots' : 'plots many' }, list.map(p => p.element))), numbers);
}

function contents(scenarios) {
	return html('nav', { 'aria-label': 'Contents' }, html('ul', {}, scenarios.map(s => html('li', {},
		html('a', { href: `#${idOf(s.name)}` }, s.title))), html('li', {}, html('a', { href: '#where' }, 'Machine and options'))));
}

// ---- where ----------------------------------------------------------------------------------------------------------

function machineFacts({ machine: m, mpi, sluice, run }) {
	const facts = [['Machine', m.name], ['CPU', m.cpu], ['Architecture', m.arch], ['Kernel', m.kernel],
		['Packages, NUMA nodes', `${m.packages}, ${m.numa_nodes}`], ['Cores, hardware threads', `${m.cores}, ${m.threads}`],
		['CPUs allowed', m.allowed], ['Memory', formatBytes(m.memory_bytes)]];
	for (const c of m.caches)
		facts.push([c.name, `${c.count} of ${formatBytes(c.bytes)}, each for ${plural(c.threads, 'thread')}`]);
	facts.push(...Object.entries(m.settings), ['Load before, after', `${m.load.before}, ${m.load.after}`],
		['CPU time of other programs', formatPercent(m.load.others_percent)],
		['CPU time taken by the hypervisor', formatPercent(m.load.steal_percent)]);
	facts.push(['MPI', mpi.version], ['MPI library', `${mpi.library} (${mpi.abi} ABI)`], ['Launcher', mpi.launcher],
		['Sluice', sluice.version], ...sluice.trials.map(t => [`Trial: ${t.name}`, `${t.works ? '\u2713' : '\u2717 no:'} ${t.text}`]));
	return [...facts, ['Command', run.command], ['Began', run.began], ['Took', formatSeconds(run.seconds) +
		(run.quick ? ', quick' : '')], ['Seed', String(run.seed)]];
}

// One column a run; with two, what differs is marked.
function factTable(caption, runs, factsOfRun) {
	const lists = runs.map(r => new Map(factsOfRun(r))), names = [...new Set(lists.flatMap(l => [...l.keys()]))];
	const isDifferent = name => new Set(lists.map(l => l.get(name))).size > 1;
	const rows = names.map(name => [isDifferent(name) ? `\u2260 ${name}` : name, ...lists.map(l =>
		html('td', { class: isDifferent(name) ? 'different' : null }, l.get(name) ?? DASH))]);
	return rows.length ? table(caption, ['', ...runs.map(r => r.letter ? `${r.letter}: ${r.name}` : '')], rows,
		{ isText: true }) : html('p', { class: 'note' }, 'None.');
}

const optionText = o => `${o.value} (${o.source})`;
const optionsOf = changed => run => run.sluice.options.filter(o => !changed || o.value !== o.default)
	.map(o => [o.name, optionText(o) + (o.value === o.default ? '' : `; default ${o.default}`)]);
const sidesOfRun = run => run.sides.map(s => [s.title, Object.entries(s.options).map(([k, v]) => `${k}=${v}`).join(' ') ||
	'nothing set']);

function where(runs) {
	return html('section', { id: 'where', 'aria-labelledby': 'where-h' }, html('h2', { id: 'where-h' }, 'Machine and options'),
		html('h3', {}, 'What was compared'), factTable('What was compared', runs, sidesOfRun),
		html('h3', {}, 'Machine'), factTable('Machine', runs, machineFacts),
		html('h3', {}, 'Options that are not the default'), factTable('Options that are not the default', runs, optionsOf(true)),
		html('details', { class: 'all' }, html('summary', {}, 'All options'), factTable('All options', runs, optionsOf(false))));
}

// ---- the page -----------------------------------------------------------------------------------------------------------

function showOne(run) {
	document.title = `Sluice bench: ${run.machine.name}`;
	document.getElementById('title').textContent = `Sluice bench on ${run.machine.name}`;
	document.getElementById('subtitle').textContent = [run.machine.cpu, run.mpi.version, `Sluice ${run.sluice.version}`,
		run.run.began.replace('T', ' ').slice(0, 16), formatSeconds(run.run.seconds) + (run.run.quick ? ', quick' : '')]
		.join(' \u00b7 ');
	document.getElementById('main').append(...[problemList([run]), contents(run.scenarios),
		overview(run, run.compared(), 'plain MPI in the same rounds'), ...run.scenarios.map(s => section(s, [factsOf(s)],
			plotsOf(run, s), s.results.length ? allNumbers(run, s) : null)), where([run])].filter(Boolean));
}

function comparedRuns(a, all) {
	return all.flatMap(({ scenario, pairs }) => pairs.flatMap(([r, o]) => sidesOfPairs(a, [[r, o]]).map(side => {
		const ratio = ratioOfRuns(r, o, side);
		return { scenario, result: r, side, ratio: { ...ratio, value: ratio.y } };
	})));
}

function showTwo(a, b) {
	[a.letter, b.letter] = ['A', 'B'];
	document.title = `Sluice bench: ${a.name} and ${b.name}`;
	document.getElementById('title').textContent = 'Sluice bench: two runs compared';
	document.getElementById('subtitle').replaceChildren(...[a, b].map(r => html('span', { class: 'run' }, html('b', {}, r.letter),
		` ${r.name}: ${r.machine.name}, ${r.mpi.version}, Sluice ${r.sluice.version}, ` +
		r.run.began.replace('T', ' ').slice(0, 16))));
	const all = matched(a, b), names = all.map(m => m.scenario.name);
	const alone = [a, b].flatMap(r => r.scenarios.filter(s => !names.includes(s.name)).map(s => `Only in ${r.letter}: ${s.title}`));
	document.getElementById('main').append(...[problemList([a, b]),
		alone.length ? html('ul', { class: 'note' }, alone.map(t => html('li', {}, t))) : null,
		contents(all.map(m => m.scenario)), overview(a, comparedRuns(a, all), 'the same in A: faster means that B is'),
		...all.map(m => section(m.scenario, [`A: ${factsOf(m.scenario)}`, `B: ${factsOf(m.other)}`], comparedPlots(a, b, m),
			[allNumbers(a, m.scenario), allNumbers(b, m.other)])), where([a, b])].filter(Boolean));
}

const runs = loadRuns();
if (runs.length > 1)
	showTwo(...runs);
else
	showOne(runs[0]);
drawAll();
new ResizeObserver(() => requestAnimationFrame(drawAll)).observe(document.getElementById('main'));
