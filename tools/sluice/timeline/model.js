// SPDX-License-Identifier: BSD-3-Clause
// The events of the page, and a pyramid over each track: a node stands for eight of the level below, with
// the time it spans, how much of it is busy, and the form of its longest event. So a million events are
// drawn by looking at as many nodes as there are pixels.
'use strict';

const FAN = 8;

function decodeBase64(text) {
	if (Uint8Array.fromBase64)
		return Uint8Array.fromBase64(text);
	const binary = atob(text), bytes = new Uint8Array(binary.length);
	for (let i = 0; i < bytes.length; i++)
		bytes[i] = binary.charCodeAt(i);
	return bytes;
}

// Numbers of seven bits a byte, the low ones first. Beyond 2^31 by multiplication.
function reader(bytes) {
	let at = 0;
	return () => {
		let byte = bytes[at++], value = byte & 127, scale = 128;
		while (byte > 127) {
			byte = bytes[at++];
			value += (byte & 127) * scale;
			scale *= 128;
		}
		return value;
	};
}

function readTrack(next, meta) {
	const n = meta.events;
	const t = {
		process: meta.process, name: meta.name, group: meta.group, count: n,
		begin: new Float64Array(n), end: new Float64Array(n), form: new Uint32Array(n),
		bytes: new Float64Array(n), extra: new Float64Array(n), levels: [],
	};
	let begin = 0;
	for (let i = 0; i < n; i++) {
		begin += next();
		t.begin[i] = begin;
		t.end[i] = begin + next();
		t.form[i] = next();
		t.bytes[i] = next();
		t.extra[i] = next();
	}
	return t;
}

function buildLevels(t) {
	let below = { count: t.count, begin: t.begin, end: t.end, form: t.form, longest: null, busy: null };
	const span = (l, i) => l.busy ? l.busy[i] : l.end[i] - l.begin[i];
	const longest = (l, i) => l.longest ? l.longest[i] : l.end[i] - l.begin[i];
	while (below.count > FAN) {
		const n = Math.ceil(below.count / FAN);
		const l = {
			count: n, begin: new Float64Array(n), end: new Float64Array(n), form: new Uint32Array(n),
			longest: new Float64Array(n), busy: new Float64Array(n), match: null,
		};
		for (let i = 0; i < n; i++) {
			const first = i * FAN, last = Math.min(first + FAN, below.count);
			l.begin[i] = below.begin[first];
			l.longest[i] = -1;
			for (let k = first; k < last; k++) {
				l.end[i] = Math.max(l.end[i], below.end[k]);
				l.busy[i] += span(below, k);
				if (longest(below, k) > l.longest[i]) {
					l.longest[i] = longest(below, k);
					l.form[i] = below.form[k];
				}
			}
		}
		t.levels.push(l);
		below = l;
	}
}

function loadModel() {
	const meta = JSON.parse(document.getElementById('meta').textContent);
	const next = reader(decodeBase64(document.getElementById('events').textContent.trim()));
	const tracks = meta.tracks.map(m => readTrack(next, m));
	tracks.forEach(buildLevels);
	const forms = meta.forms.map(([kind, label, detail, place]) => ({
		kind, label: meta.strings[label], detail: meta.strings[detail], place: place ? meta.places[place - 1] : null,
	}));
	return { ...meta, tracks, forms, matches: null, matchCount: 0 };
}

// Filters by a search text, all words of which must occur.
function setSearch(model, text) {
	const words = text.toLowerCase().split(/\s+/).filter(w => w);
	model.matches = null;
	model.matchCount = 0;
	if (words.length) {
		model.matches = Uint8Array.from(model.forms, f => {
			const place = f.place ? `${f.place.function} ${f.place.where}` : '';
			const all = `${model.kinds[f.kind]} ${f.label} ${f.detail} ${place}`.toLowerCase();
			return words.every(w => all.includes(w)) ? 1 : 0;
		});
	}
	for (const t of model.tracks)
		matchTrack(model, t);
}

function matchTrack(model, t) {
	if (!model.matches) {
		t.levels.forEach(l => { l.match = null; });
		return;
	}
	for (let i = 0; i < t.count; i++)
		model.matchCount += model.matches[t.form[i]];
	let below = i => model.matches[t.form[i]], count = t.count;
	for (const l of t.levels) {
		l.match = new Uint8Array(l.count);
		for (let k = 0; k < count; k++)
			l.match[Math.floor(k / FAN)] |= below(k);
		below = i => l.match[i];
		count = l.count;
	}
}

// Index of the first event of the track that begins at or after `time`.
function firstFrom(t, time) {
	let lo = 0, hi = t.count;
	while (lo < hi) {
		const mid = (lo + hi) >> 1;
		if (t.begin[mid] < time)
			lo = mid + 1;
		else
			hi = mid;
	}
	return lo;
}

function eventAt(t, time, slack) {
	let best = -1, distance = slack;
	for (let i = firstFrom(t, time + slack) - 1, steps = 0; i >= 0 && steps < 64; i--, steps++) {
		if (t.end[i] >= time && t.begin[i] <= time)
			return i;
		const d = time < t.begin[i] ? t.begin[i] - time : time - t.end[i];
		if (d <= distance) {
			distance = d;
			best = i;
		}
	}
	return best;
}

function formatTime(ns, digits) {
	const units = [['s', 1e9], ['ms', 1e6], ['µs', 1e3], ['ns', 1]];
	const [unit, size] = units.find(([, s]) => Math.abs(ns) >= s) || units[3];
	const value = ns / size;
	return `${value.toFixed(unit === 'ns' ? 0 : digits ?? (value >= 100 ? 0 : value >= 10 ? 1 : 2))} ${unit}`;
}

function formatBytes(n) {
	const units = ['B', 'KiB', 'MiB', 'GiB', 'TiB'];
	let u = 0;
	for (; n >= 1024 && u < units.length - 1; u++)
		n /= 1024;
	return `${Number.isInteger(n) ? n : n.toFixed(1)} ${units[u]}`;
}
