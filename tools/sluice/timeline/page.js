// SPDX-License-Identifier: BSD-3-Clause
// User input: move, zoom, search, select, by mouse, touch and keyboard.
'use strict';

const $ = id => document.getElementById(id);
const elements = { canvas: $('canvas'), scroller: $('scroller'), ruler: $('ruler'), overview: $('overview') };
const model = loadModel();
const view = { from: 0, to: model.end || 1, folded: new Set(), selected: null, rows: [], left: 0, width: 0 };
const painter = new Painter(model, view);
let isDue = false;

function redraw() {
	if (isDue)
		return;
	isDue = true;
	requestAnimationFrame(() => {
		isDue = false;
		painter.draw(elements);
	});
}

function resize() {
	view.width = elements.scroller.clientWidth;
	view.narrow = view.width < 640;
	view.left = view.narrow ? 0 : 176;
	layout(model, view);
	$('tall').style.height = `${view.height}px`;
	view.shown = elements.scroller.clientHeight;
	view.width = elements.scroller.clientWidth; /* a scroll bar may have come */
	redraw();
}

function show(from, to) {
	const all = model.end || 1, span = Math.min(Math.max(to - from, 20), all * 1.02);
	const pad = all * 0.01;
	view.from = Math.min(Math.max(from, -pad), all + pad - span);
	view.to = view.from + span;
	redraw();
}

const timeAt = x => view.from + (x - view.left) * (view.to - view.from) / (view.width - view.left);

function zoom(factor, at) {
	const centre = at ?? (view.from + view.to) / 2;
	show(centre - (centre - view.from) * factor, centre + (view.to - centre) * factor);
}

const pan = part => show(view.from + part * (view.to - view.from), view.to + part * (view.to - view.from));

// ---- choosing --------------------------------------------------------------------------------------

function fact(name, value) {
	const span = document.createElement('span'), em = document.createElement('em');
	em.textContent = value;
	span.append(`${name} `, em);
	return span;
}

function describe(s) {
	const t = model.tracks[s.track], f = model.forms[t.form[s.index]], box = $('details');
	const head = document.createElement('b');
	head.textContent = f.label;
	box.replaceChildren(head, fact('', model.kinds[f.kind]), fact('', `${t.process}, ${t.name}`),
		fact('from', formatTime(t.begin[s.index], 3)), fact('for', formatTime(t.end[s.index] - t.begin[s.index])));
	if (t.bytes[s.index])
		box.append(fact('bytes', `${formatBytes(t.bytes[s.index])} (${t.bytes[s.index]})`));
	if (model.extras[f.kind])
		box.append(fact(model.extras[f.kind].replace('_ns', ''), model.extras[f.kind].endsWith('_ns') ?
			formatTime(t.extra[s.index]) : String(t.extra[s.index])));
	if (f.detail)
		box.append(fact('why', f.detail));
	if (f.place)
		box.append(fact('called by', `${f.place.function || '?'} (${f.place.where})`));
}

function choose(s, follow) {
	view.selected = s;
	if (!s) {
		$('details').textContent = 'Choose an event to see what it was.';
		redraw();
		return;
	}
	describe(s);
	if (follow)
		bringToSight(s);
	redraw();
}

function bringToSight(s) {
	const t = model.tracks[s.track], span = view.to - view.from, length = t.end[s.index] - t.begin[s.index];
	const row = view.rows.find(r => r.track === s.track);
	if (t.begin[s.index] < view.from || t.end[s.index] > view.to) {
		const middle = (t.begin[s.index] + t.end[s.index]) / 2, half = Math.max(span, length * 1.5) / 2;
		show(middle - half, middle + half);
	}
	if (!row)
		return;
	const box = elements.scroller;
	if (row.y < box.scrollTop)
		box.scrollTop = row.y - HEAD;
	else if (row.y + row.height > box.scrollTop + view.shown)
		box.scrollTop = row.y + row.height - view.shown;
}

function rowAt(y) {
	const at = y + elements.scroller.scrollTop;
	return view.rows.find(r => at >= r.y && at < r.y + r.height);
}

function chooseAt(x, y) {
	const row = rowAt(y);
	if (!row)
		return;
	if (row.head !== undefined) {
		if (!view.folded.delete(row.group))
			view.folded.add(row.group);
		resize();
		return;
	}
	const slack = 6 * (view.to - view.from) / (view.width - view.left);
	const index = eventAt(model.tracks[row.track], timeAt(x), slack);
	choose(index < 0 ? null : { track: row.track, index }, false);
}

// The next event in the same track, or, of those that are looked for, in any.
function step(direction) {
	const s = view.selected;
	if (!s) {
		const track = model.tracks.findIndex(t => t.count);
		if (track >= 0)
			choose({ track, index: Math.min(firstFrom(model.tracks[track], view.from), model.tracks[track].count - 1) }, true);
		return;
	}
	const index = s.index + direction;
	if (index >= 0 && index < model.tracks[s.track].count)
		choose({ track: s.track, index }, true);
}

function otherTrack(direction) {
	const s = view.selected, time = s ? model.tracks[s.track].begin[s.index] : view.from;
	const rows = view.rows.filter(r => r.track !== undefined && model.tracks[r.track].count);
	const at = s ? rows.findIndex(r => r.track === s.track) : -direction;
	const row = rows[at + direction];
	if (!row)
		return;
	const t = model.tracks[row.track];
	choose({ track: row.track, index: Math.min(firstFrom(t, time), t.count - 1) }, true);
}

function nextMatch(direction) {
	if (!model.matches || !model.matchCount)
		return;
	const s = view.selected;
	const now = s ? [model.tracks[s.track].begin[s.index], s.track, s.index] : direction > 0 ? [-1, -1, -1] : [Infinity, Infinity, 0];
	const after = (a, b) => direction * (a[0] - b[0] || a[1] - b[1] || a[2] - b[2]) > 0;
	let best = null;
	model.tracks.forEach((t, track) => {
		let i = direction > 0 ? firstFrom(t, now[0]) : Math.min(firstFrom(t, now[0] + 1), t.count) - 1;
		for (; i >= 0 && i < t.count; i += direction) {
			const here = [t.begin[i], track, i];
			if (best && after(here, best))
				break;
			if (model.matches[t.form[i]] && after(here, now)) {
				best = here;
				break;
			}
		}
	});
	if (!best)
		return;
	if (view.folded.delete(model.tracks[best[1]].group))
		resize();
	choose({ track: best[1], index: best[2] }, true);
}

function search(text) {
	setSearch(model, text);
	$('found').textContent = model.matches ? `${model.matchCount.toLocaleString('en')} found` : '';
	redraw();
}

// ---- mouse, touch, keys --------------------------------------------------------------------------------

function listenPointers() {
	const box = elements.scroller, down = new Map();
	let moved = 0, pinch = 0;
	const place = e => ({ x: e.clientX - box.getBoundingClientRect().left, y: e.clientY - box.getBoundingClientRect().top });
	const spread = () => {
		const [a, b] = [...down.values()];
		return Math.abs(a.x - b.x) || 1;
	};
	box.addEventListener('pointerdown', e => {
		if (e.button)
			return;
		down.set(e.pointerId, place(e));
		moved = 0;
		if (down.size === 2)
			pinch = spread();
	});
	box.addEventListener('pointermove', e => {
		const was = down.get(e.pointerId), now = place(e);
		if (!was)
			return;
		down.set(e.pointerId, now);
		if (down.size === 2) {
			const [a, b] = [...down.values()];
			zoom(pinch / spread(), timeAt((a.x + b.x) / 2));
			pinch = spread();
			moved = 10;
			return;
		}
		moved += Math.abs(now.x - was.x) + Math.abs(now.y - was.y);
		if (moved > 3) {
			box.classList.add('dragged');
			box.setPointerCapture(e.pointerId);
			pan((was.x - now.x) / (view.width - view.left));
			if (e.pointerType === 'mouse')
				box.scrollTop += was.y - now.y;
		}
	});
	const up = e => {
		const was = down.get(e.pointerId);
		down.delete(e.pointerId);
		box.classList.remove('dragged');
		if (was && moved <= 3 && e.type === 'pointerup')
			chooseAt(was.x, was.y);
	};
	box.addEventListener('pointerup', up);
	box.addEventListener('pointercancel', up);
	box.addEventListener('dblclick', e => zoom(0.4, timeAt(place(e).x)));
	box.addEventListener('wheel', e => {
		if (e.ctrlKey || e.metaKey || e.altKey)
			zoom(Math.exp(Math.max(-60, Math.min(60, e.deltaY)) / 150), timeAt(place(e).x));
		else if (e.shiftKey || Math.abs(e.deltaX) > Math.abs(e.deltaY))
			pan((e.deltaX || e.deltaY) / view.width);
		else
			return; /* down and up are the browser's */
		e.preventDefault();
	}, { passive: false });
	box.addEventListener('scroll', redraw);
}

function listenOverview() {
	const box = elements.overview;
	const move = e => {
		if (!(e.buttons & 1))
			return;
		const r = box.getBoundingClientRect(), half = (view.to - view.from) / 2;
		const centre = (e.clientX - r.left) / r.width * (model.end || 1);
		show(centre - half, centre + half);
	};
	box.addEventListener('pointerdown', e => {
		box.setPointerCapture(e.pointerId);
		move(e);
	});
	box.addEventListener('pointermove', move);
}

const keys = {
	ArrowLeft: () => pan(-0.15), ArrowRight: () => pan(0.15), a: () => pan(-0.15), d: () => pan(0.15),
	ArrowUp: () => otherTrack(-1), ArrowDown: () => otherTrack(1),
	'+': () => zoom(0.6), '=': () => zoom(0.6), w: () => zoom(0.6), '-': () => zoom(1 / 0.6), s: () => zoom(1 / 0.6),
	0: () => show(0, model.end || 1), Home: () => show(0, view.to - view.from),
	End: () => show(model.end - (view.to - view.from), model.end),
	Enter: () => step(1), Backspace: () => step(-1), '.': () => step(1), ',': () => step(-1),
	n: () => nextMatch(1), N: () => nextMatch(-1), Escape: () => choose(null), '/': () => $('search').focus(),
};

function listenKeys() {
	elements.scroller.addEventListener('keydown', e => {
		if (e.ctrlKey || e.metaKey || e.altKey || !keys[e.key])
			return;
		e.preventDefault();
		keys[e.key]();
	});
	$('search').addEventListener('input', e => search(e.target.value));
	$('search').addEventListener('keydown', e => {
		if (e.key === 'Enter')
			nextMatch(e.shiftKey ? -1 : 1);
	});
	$('in').onclick = () => zoom(0.6);
	$('out').onclick = () => zoom(1 / 0.6);
	$('fit').onclick = () => show(0, model.end || 1);
	$('next').onclick = () => nextMatch(1);
	$('previous').onclick = () => nextMatch(-1);
}

// ---- words and tables ------------------------------------------------------------------------------------

function fillTable(table, heads, rows) {
	const head = table.createTHead().insertRow(), body = table.createTBody();
	for (const [name, isText] of heads) {
		const th = document.createElement('th');
		th.textContent = name;
		th.scope = 'col';
		th.className = isText ? 'text' : '';
		head.append(th);
	}
	return rows.map(cells => {
		const row = body.insertRow();
		cells.forEach((cell, i) => {
			const td = row.insertCell();
			td.textContent = cell;
			td.className = heads[i][1] ? 'text' : '';
		});
		return row;
	});
}

const signed = ns => ns ? `${ns < 0 ? '−' : '+'}${formatTime(Math.abs(ns))}` : '0';

function fillPlaces() {
	const shown = model.places.filter(p => p.calls).sort((a, b) => b.in_call_ns + b.waited_ns - a.in_call_ns - a.waited_ns);
	const rows = fillTable($('places'), [['Call', true], ['Called by', true], ['Calls'], ['Bytes'], ['Admitted'], ['Early'],
		['In calls'], ['Late'], ['Waited'], ['Gain'], ['Own / peers / channel']], shown.map(p => {
		const all = p.own + p.peers + p.channel, part = n => all ? `${Math.round(n * 100 / all)} %` : '–';
		return [p.name, `${p.function || '?'} (${p.where})`, p.calls.toLocaleString('en'), formatBytes(p.bytes),
			p.admitted.toLocaleString('en'), p.early.toLocaleString('en'), formatTime(p.in_call_ns),
			p.late_ns < 0 ? '–' : formatTime(p.late_ns), p.early || p.started ? formatTime(p.waited_ns) : '–', p.early ? signed(p.saved_ns - p.cost_ns) : '–',
			`${part(p.own)} / ${part(p.peers)} / ${part(p.channel)}`];
	}));
	rows.forEach((row, i) => {
		row.onclick = () => {
			$('search').value = `${shown[i].name} ${shown[i].where}`;
			search($('search').value);
		};
	});
}

function fillProcesses() {
	const rows = fillTable($('processes'), [['Process', true], ['Pid'], ['Host', true], ['Records'], ['Made room'], ['Dropped'],
		['End', true]], model.processes.map(p => [p.name, p.pid, p.host, p.records.toLocaleString('en'),
		p.overwritten.toLocaleString('en'), p.dropped.toLocaleString('en'),
		p.ended ? 'MPI_Finalize' : 'without MPI_Finalize']));
	rows.forEach((row, i) => {
		if (!model.processes[i].ended)
			row.lastChild.classList.add('bad');
	});
}

function fillWords() {
	const used = new Set(model.forms.map(f => f.kind)), count = model.tracks.reduce((n, t) => n + t.count, 0);
	document.title = `${model.title} – Sluice timeline`;
	$('title').textContent = model.title;
	$('subtitle').textContent = `${model.program}, ${count.toLocaleString('en')} events in ${formatTime(model.end)}`;
	model.kinds.forEach((name, kind) => {
		if (!used.has(kind))
			return;
		const li = document.createElement('li'), box = document.createElement('i');
		box.style.background = `var(--k${kind})`;
		li.append(box, name);
		$('legend').append(li);
	});
}

fillWords();
fillPlaces();
fillProcesses();
choose(null);
listenPointers();
listenOverview();
listenKeys();
new ResizeObserver(resize).observe(elements.scroller);
matchMedia('(prefers-color-scheme: dark)').addEventListener('change', redraw);
resize();
