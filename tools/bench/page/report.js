// SPDX-License-Identifier: BSD-3-Clause
// The page: what has gone wrong, what is gained and lost, a section for each scenario, and where it was measured.
'use strict';

function table(caption, head, rows, options = {}) {
	const cell = (value, i) => value instanceof Node ? value : html(i ? 'td' : 'th', i ? {} : { scope: 'row' }, value);
	return html('div', { class: 'wide', tabindex: 0, role: 'region', 'aria-label': caption },
		html('table', { class: options.isText ? 'text' : null }, html('caption', { class: 'unseen' }, caption),
			html('thead', {}, html('tr', {}, head.map(h => html('th', { scope: 'col' }, h)))),
			html('tbody', {}, rows.map(row => html('tr', {}, row.map(cell))))));
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
	const all = COUNTED.reduce((n, v) => n + counts[v], 0) || 1;
	return html('div', { class: 'share', role: 'img', 'aria-label': COUNTED.map(v => `${counts[v]} ${VERDICTS[v].slice(2)}`)
		.join(', ') }, COUNTED.filter(v => counts[v]).map(v => html('span', { class: v,
		style: `flex-grow:${counts[v] / all}` })));
}

function sideRow(run, side, list) {
	const counts = countVerdicts(list), sorted = list.map(c => c.ratio.value).sort((a, b) => a - b);
	return [html('th', { scope: 'row' }, run.title(side)), html('td', { class: 'gain' }, `\u25b2 ${counts.gain}`),
		html('td', {}, `= ${counts.even}`), html('td', { class: 'loss' }, `\u25bc ${counts.loss}`),
		html('td', {}, share(counts)), html('td', {}, formatRatio(sorted[sorted.length - 1])),
		html('td', {}, formatRatio(sorted[0]))];
}

function extremes(run, list, verdict) {
	const isGain = verdict === 'gain', sign = isGain ? -1 : 1;
	const some = list.filter(c => verdictOf(c.ratio) === verdict).sort((a, b) => sign * (a.ratio.value - b.ratio.value));
	const item = c => html('li', {}, html('b', { class: verdict }, formatRatio(c.ratio.value)), ' ',
		html('a', { href: `#${idOf(c.scenario.name)}` }, nameOf(c.result, c.scenario.results)),
		html('small', {}, ` ${timedFor(c.result.timed)}, ${ranksFor(c.result.ranks)}; ${run.title(c.side)}; ` +
			formatRange(c.ratio.low, c.ratio.high, 'ratio')));
	return html('div', { class: `extremes ${verdict}` }, html('h3', {}, isGain ? '\u25b2 Largest gains' : '\u25bc Largest losses'),
		some.length ? html('ol', {}, some.slice(0, 5).map(item)) : html('p', {}, 'None that the measurement is sure of.'));
}

function overview(run, list, against) {
	if (!list.length)
		return html('section', { id: 'first', 'aria-label': 'Gains and losses' }, html('p', {}, 'Nothing was compared.'));
	const sides = [...new Set([...run.sides.map(s => s.name), ...list.map(c => c.side)])];
	const rows = sides.map(s => [s, list.filter(c => c.side === s)]).filter(([, l]) => l.length).map(([s, l]) =>
		sideRow(run, s, l));
	return html('section', { id: 'first', 'aria-labelledby': 'gains' }, html('h2', { id: 'gains' }, 'Gains and losses'),
		html('p', { class: 'note' }, `Each result is compared with ${against}. Faster or slower is said where the 95 % ` +
			'interval of the ratio leaves no doubt. A ratio above 1 is a gain.'),
		table('Gains and losses', ['', 'faster', 'no difference', 'slower', '', 'best', 'worst'], rows),
		html('div', { class: 'pair' }, extremes(run, list, 'gain'), extremes(run, list, 'loss')));
}

function problemList(runs) {
	const all = runs.flatMap(run => run.problems().map(text => runs.length > 1 ? `${run.letter}: ${text}` : text));
	return all.length ? html('section', { class: 'problems', 'aria-labelledby': 'wrong' },
		html('h2', { id: 'wrong' }, 'What to know before reading on'), html('ul', {}, all.map(t => html('li', {}, t)))) : null;
}

// ---- scenarios --------------------------------------------------------------------------------------------------

function allNumbers(run, scenario) {
	const head = ['', 'timed', 'ranks', 'side', 'P0', 'P50', '95 %', 'P99', 'ratio', '95 %', 'samples'];
	const rows = scenario.results.flatMap(r => run.sidesOf([r]).map(side => {
		const v = r.sides[side], ratio = r.ratios[side];
		return [nameOf(r, scenario.results), timedFor(r.timed), r.ranks, run.title(side), formatValue(v.p0, r.unit),
			formatValue(v.p50, r.unit), formatRange(v.low, v.high, r.unit), formatValue(v.p99, r.unit),
			ratio ? html('td', { class: verdictOf(ratio) }, formatRatio(ratio.value)) : DASH,
			ratio ? formatRange(ratio.low, ratio.high, 'ratio') : DASH,
			`${v.samples} of ${plural(v.launches, 'launch')}${v.launches > 1 ? 'es' : ''}`.replace('launchs', 'launch') +
				(v.dropped ? `, ${v.dropped} dropped` : '') + (v.wrong ? `, ${v.wrong} WRONG` : '') + (r.settled ? '' : ', scattered')];
	}));
	return html('details', { class: 'all' }, html('summary', {}, `All numbers${run.letter ? ` of ${run.letter}` : ''}`,
		html('span', { class: 'unseen' }, ` of ${scenario.title}`)), table(`All numbers: ${scenario.title}`, head, rows));
}

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
		lists.map(list => html('div', { class: 'plots' }, list.map(p => p.element))), numbers);
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
