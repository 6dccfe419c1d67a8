# SPDX-License-Identifier: BSD-3-Clause
"""The timeline of sluice trace in a real browser: it draws the events of trace.json, also a million; it is
readable on large and small screens, light and dark."""
import json
import subprocess

import pytest

from support import browser as browsers
from support.paths import ROOT, SLUICE
from trace_file import VERSION, write_process

FORMAT = (ROOT / 'src/trace/format.h').read_text()


pytestmark = pytest.mark.xdist_group('trace_page')  # one browser


@pytest.fixture(scope='module')
def browser():
    if browsers.missing():
        pytest.skip(browsers.missing())
    with browsers.Browser() as it:
        yield it


def make(folder, calls_of_rank):
    for rank, calls in enumerate(calls_of_rank):
        write_process(folder, rank, calls)
    done = subprocess.run([SLUICE, 'trace', 'report', folder], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    return folder / 'timeline.html'


def some_calls(count, seed=1):
    at, calls = 1000, []
    for i in range(count):
        seed = seed * 6364136223846793005 + 1442695040888963407 & (1 << 64) - 1
        at += 10 + (seed >> 40) % (900 if i % 997 else 2000000)
        end = at + 5 + (seed >> 50) % 3000
        calls.append((at, end, seed >> 44, 2 + (seed >> 33 & 1)))
        at = end
    return calls


@pytest.fixture(scope='module')
def page(tmp_path_factory):
    folder = tmp_path_factory.mktemp('page')
    return make(folder, [some_calls(3000, rank) for rank in range(3)])


def json_events(page):
    events = json.loads((page.parent / 'trace.json').read_text())['traceEvents']
    return [e for e in events if e['ph'] == 'X']


EVENTS_OF_PAGE = '''model.tracks.flatMap((t, track) => Array.from({ length: t.count }, (_, i) => {
	const f = model.forms[t.form[i]];
	return [t.group, track, t.begin[i], t.end[i] - t.begin[i], f.label,
		model.kinds[f.kind], t.bytes[i], f.detail];
}))'''


def test_the_page_has_the_events_of_the_json(browser, page):
    browser.errors.clear()
    browser.open(page)
    want = [[e['pid'], e['tid'], round(e['ts'] * 1000), round(e['dur'] * 1000), e['name'], e['cat'],
             e['args']['bytes'],
             e['args']['why']] for e in json_events(page)]
    assert browser.run(EVENTS_OF_PAGE) == want and len(want) == 9000
    assert browser.errors == []


COLOUR_AT = '''(() => {
	const t = model.tracks[%d], i = %d, row = view.rows.find(r => r.track === %d);
	show(t.begin[i] - 5, t.end[i] + 5);
	painter.draw(elements);
	const x = painter.x((t.begin[i] + t.end[i]) / 2), y = row.bar - elements.scroller.scrollTop + 2;
	const [r, g, b] = elements.canvas.getContext('2d').getImageData(x, y, 1, 1).data;
	const hex = '#' + [r, g, b].map(n => n.toString(16).padStart(2, '0')).join('');
	return [hex, painter.colours.kinds[model.forms[t.form[i]].kind], painter.drawn];
})()'''


@pytest.mark.parametrize('dark', [False, True])
def test_what_is_drawn_has_the_colour_of_its_kind_where_it_was(browser, page, dark):
    browser.open(page, dark=dark)
    for track, index in ((0, 0), (1, 1500), (2, 2999)):
        drawn, want, count = browser.run(COLOUR_AT % (track, index, track))
        assert drawn == want and count >= 1


@pytest.mark.parametrize('width', [1280, 400])
@pytest.mark.parametrize('dark', [False, True])
def test_the_page_fits_the_screen_and_complains_about_nothing(browser, page, width, dark, tmp_path):
    browser.errors.clear()
    browser.open(page, width=width, height=900, dark=dark, touch=width == 400)
    assert browser.run('document.documentElement.scrollWidth') <= width
    assert browser.run('elements.canvas.getBoundingClientRect().right') <= width
    back = browser.run('getComputedStyle(document.body).backgroundColor')
    assert (back == 'rgb(255, 255, 255)') != dark
    browser.picture(tmp_path / 'page.png')
    assert browser.errors == [] and (tmp_path / 'page.png').stat().st_size > 10000


LUMINANCE = '''(() => {
	const lum = c => { const n = c.match(/[0-9a-f]{2}/gi).map(h => parseInt(h, 16) / 255)
		.map(v => v <= 0.03928 ? v / 12.92 : Math.pow((v + 0.055) / 1.055, 2.4));
		return 0.2126 * n[0] + 0.7152 * n[1] + 0.0722 * n[2]; };
	const ratio = (a, b) => (Math.max(lum(a), lum(b)) + 0.05) / (Math.min(lum(a), lum(b)) + 0.05);
	const p = palette(), ink = c => inkOn(c) === '#000' ? '#000000' : '#ffffff';
	return [ratio(p.text, p.back), ratio(p.soft, p.back), ratio(p.soft, p.panel),
		...p.kinds.map(k => ratio(k, ink(k)))];
})()'''


@pytest.mark.parametrize('dark', [False, True])
def test_all_words_have_the_contrast_that_people_need(browser, page, dark):
    browser.open(page, dark=dark)
    assert min(browser.run(LUMINANCE)) >= 4.5


def test_search_keys_and_mouse_move_and_choose(browser, page):
    browser.open(page)
    whole = browser.run('view.to - view.from')
    browser.run('elements.scroller.focus()')
    browser.key('+', '+')
    assert browser.run('view.to - view.from') < whole
    browser.key('0', '0')
    assert browser.run('view.to - view.from') == pytest.approx(whole)
    browser.run('search("returned early reason")')
    early = [e for e in json_events(page) if e['cat'] == 'returned early']
    assert browser.run('$("found").textContent') == f'{len(early):,} found'
    browser.key('n', 'n')
    first = min(early, key=lambda e: e['ts'])
    begin = browser.run('model.tracks[view.selected.track].begin[view.selected.index]')
    assert begin == round(first['ts'] * 1000)
    assert '<b>marks</b> & </script>' in browser.run('$("details").textContent')
    box = browser.run('(r => [r.left + 600, r.top + 40])(elements.scroller.getBoundingClientRect())')
    browser.mouse('mouseWheel', *box, deltaX=0, deltaY=-120, modifiers=2)
    browser.frame()
    zoomed = browser.run('view.to - view.from')
    assert zoomed < whole
    before = browser.run('view.from')
    browser.mouse('mousePressed', *box, button='left', buttons=1, clickCount=1)
    browser.mouse('mouseMoved', box[0] - 200, box[1], button='left', buttons=1)
    browser.mouse('mouseReleased', box[0] - 200, box[1], button='left', clickCount=1)
    browser.frame()
    assert browser.run('view.from') > before


def test_a_million_events_are_drawn_by_looking_at_few(browser, tmp_path):
    page = make(tmp_path, [some_calls(500000, rank) for rank in range(2)])
    assert page.stat().st_size < 24 << 20
    browser.errors.clear()
    browser.open(page)
    assert browser.run('model.tracks.reduce((n, t) => n + t.count, 0)') == 1000000
    for zoom in (1, 30, 1000, 30000):
        looked = browser.run(f'show(model.end / 3, model.end / 3 + model.end / {zoom}), '
                             'painter.draw(elements), '
                             'painter.visited')
        assert 0 < looked < 60000
    assert browser.run('search("early"), model.matchCount') == pytest.approx(500000, rel=0.01)
    assert browser.errors == []


def test_the_layout_of_the_file_is_that_of_the_header():
    """The layout that trace_file.py assumes is the header's."""
    for line in (f'#define TRACE_VERSION {VERSION}u', '#define TRACE_CHUNK_BYTES (64u << 10)',
                 '#define TRACE_RECORD_BYTES 64u'):
        assert line in FORMAT
