# SPDX-License-Identifier: BSD-3-Clause
"""The report of sluice bench in a real browser: its plots show the figures of the JSON, nothing is wider than
the screen, all text is readable in light and dark mode, and unusual runs work."""
import copy
import importlib.util
import json
import math

import pytest

from support import browser as browsers
from support.paths import ROOT

EXAMPLE = json.loads((ROOT / 'test/tools/data/bench_example.json').read_text())


def load(name):
    spec = importlib.util.spec_from_file_location(f'bench_{name}', ROOT / f'tools/bench/{name}.py')
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


page = load('page')


pytestmark = pytest.mark.xdist_group('bench_page')  # one browser


@pytest.fixture(scope='module')
def browser():
    if browsers.missing():
        pytest.skip(browsers.missing())
    with browsers.Browser(timeout=240) as it:
        yield it


OPEN = {}  # pages in the browser, shared by tests that only read


@pytest.fixture
def show(browser, tmp_path):
    """Opens the page of these reports, and checks afterwards that the browser logged no error."""
    browser.errors.clear()

    def it(*reports, width=1280, dark=False):
        text = page.text([(f'{i}.json', r) for i, r in enumerate(reports)])
        if OPEN.get(browser) != (text, width, dark):
            path = tmp_path / 'page.html'
            path.write_text(text, encoding='utf-8')
            browser.open(path, width=width, height=900, dark=dark, touch=width == 400)
            OPEN[browser] = (text, width, dark)
        assert browser.run('document.documentElement.scrollWidth') <= width
        return browser

    yield it
    assert browser.errors == []


MARKS = '''plots.flatMap(plot => [...plot.picture.querySelectorAll('[data-y]')].map(e => [plot.caption,
	e.closest('[data-series]')?.dataset.series ?? e.dataset.bar, e.dataset.x ?? e.dataset.group,
	...[e.dataset.y, e.dataset.low, e.dataset.high].map(n => n === undefined ? null : Number(n))]))'''
WORDS = {'bcast': 'Broadcast', 'gather': 'Gather'}
TIMED = {'call': 'the call alone', 'use': 'until the data has been used'}


def scenario(report, name):
    return next(s for s in report['scenarios'] if s['name'] == name)


def titles(report):
    return {s['name']: s['title'] for s in report['sides']}


def marks_of(marks, caption):
    return sorted((m[1:] for m in marks if m[0] == caption), key=str)


def size(n):
    return next(f'{n // u}\u00a0{name}' for u, name in ((1 << 20, 'MB'), (1 << 10, 'KB'), (1, 'B')) if n >= u)


def test_lines_and_ratios_carry_the_figures_of_the_json(show):
    marks, names = show(EXAMPLE).run(MARKS), titles(EXAMPLE)
    results = scenario(EXAMPLE, 'latency')['results']
    for what, word in WORDS.items():
        for timed, text in TIMED.items():
            some = [r for r in results if (r['what'], r['timed']) == (what, timed)]
            assert len(some) == 27
            want = [[names[s], str(r['bytes']), v['p50'], v['p0'], v['p99']] for r in some for s,
                    v in r['sides'].items()]
            assert marks_of(marks, f'{word}, {text}') == sorted(want, key=str)
            want = [[names[s], str(r['bytes']), v['value'], v['low'], v['high']] for r in some
                    for s, v in r['ratios'].items()]
            assert marks_of(marks, f'{word}, {text}: compared with plain MPI') == sorted(want, key=str)


def test_bars_and_stacks_carry_the_figures_of_the_json(show):
    marks, names = show(EXAMPLE).run(MARKS), titles(EXAMPLE)
    for what, ranks in (('bcast', 2), ('bcast', 4), ('gather', 2), ('gather', 4)):
        some = [r for r in scenario(EXAMPLE, 'overlap')['results'] if (r['what'], r['ranks']) == (what,
                                                                                                  ranks)]
        want = [[names[s], size(r['bytes']), v['overlap_percent'], None, None] for r in some for s,
                v in r['sides'].items()]
        assert marks_of(marks, f'{WORDS[what]}, {ranks} ranks: overlap') == sorted(want, key=str)
    for r in scenario(EXAMPLE, 'synthetic')['results']:
        want = [[p['title'], r['label'], p['p50'], None, None] for v in r['sides'].values()
                for p in v['parts']]
        want += [[s, r['label'], v['p50'], v['low'], v['high']] for s, v in r['sides'].items()]
        got = [[m[0], *m[2:]] for m in marks_of(marks, r['label'])]
        assert sorted(got, key=str) == sorted(([m[0], *m[2:]] for m in want), key=str), r['label']


# Where the marks of a line, or the ends of bars, are; and where the values written at the axis are.
PLACES = '''(plot => { const ticks = plot.yTicks.map(t => [t, plot.py(t)]);
	const y = e => e.matches('rect') ? (Number(e.dataset.y) < 0 ? Number(e.getAttribute('y')) +
		Number(e.getAttribute('height')) : Number(e.getAttribute('y'))) :
		Number(/,([-0-9.]+)/.exec(e.getAttribute('transform'))[1]);
	return [ticks, [...plot.picture.querySelectorAll('[data-y][class^="mark"], rect[data-y]')].map(
		e => [Number(e.dataset.y), y(e)])];
})(plots.find(p => p.caption === %s))'''


@pytest.mark.parametrize('caption, is_log', [('Broadcast, the call alone', True),
                                             ('Gather, 4 ranks: overlap', False),
                                             ('Broadcast, the call alone: compared with plain MPI', True)])
def test_marks_stand_where_the_axis_says(show, caption, is_log):
    ticks, marks = show(EXAMPLE).run(PLACES % json.dumps(caption))
    scale = math.log if is_log else float
    (low, at_low), (high, at_high) = ticks[0], ticks[-1]
    assert len(marks) > 10 and at_low > at_high
    for value, at in marks:
        want = at_low + (scale(value) - scale(low)) / (scale(high) - scale(low)) * (at_high - at_low)
        assert at == pytest.approx(want, abs=0.6)


def test_axes_have_round_numbers_with_units(show):
    text = show(EXAMPLE).run('[...plots[0].picture.querySelectorAll(".axes text")].map(t => t.textContent)')
    for word in ('1\u00a0B', '1\u00a0KB', '1\u00a0MB', '10\u00a0\u00b5s', '1\u00a0ms', 'message size'):
        assert word in text


OVERLAPS = '''plots.flatMap(plot => { const boxes = [...plot.picture.querySelectorAll('text')].filter(
	t => t.textContent &&
	!t.hasAttribute('transform')).map(t => [t.textContent, t.getBoundingClientRect()]);
	return boxes.flatMap(([a, p], i) => boxes.slice(i + 1).filter(
		([, q]) => p.left < q.right - 1 && q.left < p.right - 1 &&
		p.top < q.bottom - 3 && q.top < p.bottom - 3).map(
		([b]) => `${plot.caption}: ${a} | ${b}`)); })'''
OUTSIDE = '''[...document.querySelectorAll('main *, header *')].filter(
	e => !e.closest('.wide, .unseen, .tip') && e.getClientRects().length &&
	(e.getBoundingClientRect().right > innerWidth + 0.5 || e.getBoundingClientRect().left < -0.5)).map(
	e => e.outerHTML.slice(0, 99))'''


@pytest.mark.parametrize('dark', [False, True])
@pytest.mark.parametrize('width', [1280, 400])
def test_the_page_fits_and_no_words_lie_on_each_other(show, width, dark, tmp_path):
    browser = show(EXAMPLE, width=width, dark=dark)
    assert browser.run(OVERLAPS) == []
    assert browser.run(OUTSIDE) == []
    assert (browser.run('getComputedStyle(document.body).backgroundColor') == 'rgb(255, 255, 255)') != dark
    browser.picture(tmp_path / 'page.png')
    assert (tmp_path / 'page.png').stat().st_size > 20000


CONTRAST = '''(() => { const style = name =>
	getComputedStyle(document.documentElement).getPropertyValue(name).trim();
	const light = c => { const n = c.match(/[0-9a-f]{2}/gi).map(h => parseInt(h, 16) / 255)
		.map(v => v <= 0.03928 ? v / 12.92 : ((v + 0.055) / 1.055) ** 2.4);
	return 0.2126 * n[0] + 0.7152 * n[1] + 0.0722 * n[2]; };
	const ratio = (a, b) => { const [x, y] = [light(style(a)), light(style(b))].sort((p, q) => q - p);
		return (x + 0.05) / (y + 0.05); };
	const words = [['--text', '--back'], ['--soft', '--back'], ['--soft', '--panel'],
		['--gain', '--back'], ['--loss', '--back'],
		['--text', '--loss-back'], ['--focus', '--back']];
	const marks = Array.from({ length: 13 }, (_, i) => [`--c${i}`, '--back']);
	return [Math.min(...words.map(p => ratio(...p))), Math.min(...marks.map(p => ratio(...p)))]; })()'''


@pytest.mark.parametrize('dark', [False, True])
def test_words_and_marks_have_the_contrast_that_people_need(show, dark):
    words, marks = show(EXAMPLE, dark=dark).run(CONTRAST)
    assert words >= 4.5 and marks >= 2.9


def accessible(browser):
    """Returns roles and names as a screen reader gets them."""
    browser.call('Accessibility.enable')
    nodes = browser.call('Accessibility.getFullAXTree')['nodes']
    return [(n['role']['value'], n.get('name', {}).get('value', '')) for n in nodes if not n['ignored']]


def test_screen_readers_get_names_and_tables(show):
    browser = show(EXAMPLE)
    nodes = accessible(browser)
    named = [n for n in nodes if n[0] in ('button', 'image', 'application', 'link', 'region', 'table',
                                          'navigation', 'figure')]
    assert len(named) > 100 and all(name for role, name in named if role != 'figure')
    assert any(role == 'image' and name.startswith('Broadcast, the call alone: plain MPI, Sluice, blocking')
               for role, name in nodes)
    assert browser.run('document.querySelectorAll("h1").length') == 1
    assert browser.run('plots.every(p => p.element.querySelectorAll("tbody tr").length > 0)')


def test_keys_read_the_points_of_a_plot(show):
    browser = show(EXAMPLE)
    browser.run('plots[0].box.focus()')
    browser.key('ArrowRight')
    browser.key('ArrowRight')
    said = browser.run('plots[0].status.textContent')
    second = scenario(EXAMPLE, 'latency')['results'][1]
    assert said.startswith('2\u00a0B; plain MPI ')
    assert f"{second['sides']['plain']['p50'] * 1000:.0f}\u00a0ns" in said
    assert not browser.run('plots[0].tip.hidden')
    browser.key('End')
    assert browser.run('plots[0].status.textContent').startswith('64\u00a0MB; ')
    browser.key('Escape')
    assert browser.run('plots[0].tip.hidden')


def test_a_side_can_be_hidden_but_not_the_last(show):
    browser = show(EXAMPLE)
    press = '[...plots[0].element.querySelectorAll(".legend button")].forEach(b => b.click())'
    browser.run(press)
    OPEN.clear()
    assert browser.run('plots[0].picture.querySelectorAll("g.series").length') == 1
    assert browser.run('[...plots[0].element.querySelectorAll("[aria-pressed=true]")].length') == 1


def test_losses_are_as_plain_as_gains(show):
    browser = show(EXAMPLE)
    ratios = [(side, q) for s in EXAMPLE['scenarios'] for r in s['results'] for side,
              q in r['ratios'].items()]
    for i, side in enumerate(s for s in titles(EXAMPLE) if s != 'plain'):
        mine = [q for s, q in ratios if s == side]
        gains, losses = sum(q['low'] > 1 for q in mine), sum(q['high'] < 1 for q in mine)
        said = browser.run(f'document.querySelectorAll(".cards li")[{i}].textContent')
        assert f'\u25b2 {gains} faster' in said and f'\u25bc {losses} slower' in said
        assert f'= {len(mine) - gains - losses} no difference' in said and gains and losses
    worst, best = min(q['value'] for _, q in ratios), max(q['value'] for _, q in ratios)
    lists = [browser.run(f'document.querySelector(".extremes.{v} li b").textContent') for v in ('gain',
                                                                                                'loss')]
    assert lists == [f'{best:.2f}\u00d7', f'{worst:.2f}\u00d7']
    assert browser.run('[...document.querySelectorAll(".extremes")].map(e => '
                       'e.querySelectorAll("li").length)') == [5, 5]


def test_machine_and_options_are_recorded(show):
    text = show(EXAMPLE).run('document.getElementById("where").textContent')
    machine = EXAMPLE['machine']
    wanted = [machine['cpu'], machine['kernel'], *machine['settings'], EXAMPLE['mpi']['version'],
              EXAMPLE['mpi']['library'],
              EXAMPLE['sluice']['version'], 'SLUICE_EARLY=off', EXAMPLE['run']['command'],
              *(o['name'] for o in EXAMPLE['sluice']['options'])]
    assert [w for w in wanted if w not in text] == []


def test_it_prints_on_white_whatever_the_screen_is(show, tmp_path):
    browser = show(EXAMPLE, dark=True)
    dark = {'name': 'prefers-color-scheme', 'value': 'dark'}
    browser.call('Emulation.setEmulatedMedia', media='print', features=[dark])
    assert browser.run('getComputedStyle(document.body).backgroundColor') == 'rgb(255, 255, 255)'
    assert browser.run('getComputedStyle(document.querySelector("nav")).display') == 'none'
    browser.call('Emulation.setEmulatedMedia', media='', features=[])
    OPEN.clear()


# ---- odd runs -------------------------------------------------------------------------------------------

def bare(value):
    """Returns a side with one sample: no spread, no 99th percentile."""
    return dict(p0=value, p50=value, p99=None, low=value, high=value, samples=1, dropped=0, launches=1,
                wrong=0)


def only(scenario_of, *results, **more):
    report = copy.deepcopy(EXAMPLE)
    report['scenarios'] = [dict(scenario_of, results=list(results), **more)]
    report['failures'] = []
    return report


LATENCY = scenario(EXAMPLE, 'latency')


def test_one_sample_of_one_side_is_a_point(show):
    result = dict(LATENCY['results'][5], sides={'plain': bare(3.25)}, ratios={}, settled=False)
    browser = show(only(LATENCY, result))
    assert [m[1:] for m in browser.run(MARKS)] == [['plain MPI', '32', 3.25, None, None]]
    assert 'one sample' in browser.run('plots[0].element.querySelector("tbody").textContent')
    assert 'Nothing was compared' in browser.run('document.body.textContent')


def test_sides_that_are_missing_leave_gaps(show):
    results = copy.deepcopy(LATENCY['results'][:3])
    del results[1]['sides']['early'], results[1]['ratios']['early']
    browser = show(only(LATENCY, *results))
    xs = [m[2] for m in browser.run(MARKS) if m[0] == 'Broadcast' and m[1] == 'Sluice, early return']
    assert xs == ['1', '4']


@pytest.mark.parametrize('percent, ends', [(0, 'zero'), (-250.5, 'below'), (None, 'none'), (100, 'above')])
def test_overlap_of_nothing_less_than_nothing_and_unknown(show, percent, ends):
    overlap = scenario(EXAMPLE, 'overlap')
    result = copy.deepcopy(overlap['results'][0])
    result['sides']['early']['overlap_percent'] = percent
    browser = show(only(overlap, result), width=400)
    mine = [m for m in browser.run(MARKS) if m[0].endswith('overlap') and m[1] == 'Sluice, early return']
    assert [m[3] for m in mine] == ([] if percent is None else [percent])
    table = browser.run('plots[0].element.querySelector("tbody").textContent')
    assert ('could not be told' in table) == (percent is None)
    height, top, zero = browser.run('(p => { const e = p.picture.querySelector("g.c2 rect[data-y]"); '
                                    'return e ? ["height", "y"].map('
                                    'n => Number(e.getAttribute(n))).concat(p.py(0)) : [0, 0, 0]; '
                                    '})(plots[0])')
    if ends == 'zero':
        assert height <= 1
    elif ends == 'below':
        assert top == pytest.approx(zero, abs=0.6) and height > 50
    elif ends == 'above':
        assert top + height == pytest.approx(zero, abs=0.6) and height > 100


def test_times_of_zero_have_their_place(show):
    results = copy.deepcopy(LATENCY['results'][:3])
    for v in results[1]['sides'].values():
        v.update(p0=0, p50=0, low=0)
    marks = show(only(LATENCY, *results)).run(MARKS)
    assert sum(m[3] == 0 for m in marks) == 4


def test_a_scenario_that_failed_is_named_with_its_reason(show):
    report = only(LATENCY, complete=False)
    report['failures'] = [{'scenario': 'latency', 'side': 'early', 'ranks': 2,
                           'why': 'exit 9: <b>killed</b>'}]
    report['run']['stopped'] = 'SIGINT'
    browser = show(report, width=400)
    said = browser.run('document.querySelector(".problems").textContent')
    assert 'latency, Sluice, early return, 2 ranks: exit 9: <b>killed</b>' in said and 'SIGINT' in said
    assert 'No results.' in browser.run('document.getElementById("s-latency").textContent')


def test_many_failures_are_reduced_but_all_there(show):
    report = only(LATENCY, LATENCY['results'][0])
    report['failures'] = [{'scenario': 'latency', 'side': 'early', 'ranks': n, 'why': f'exit {n}'}
                          for n in range(1, 13)]
    browser = show(report)
    text = browser.run('document.querySelector(".problems summary").textContent')
    assert text.startswith('12 launches failed')
    assert browser.run('document.querySelectorAll(".problems details li").length') == 12


def test_wrong_contents_and_disturbance_stand_at_the_top(show):
    report = copy.deepcopy(EXAMPLE)
    report['scenarios'][0]['results'][0]['sides']['early']['wrong'] = 3
    report['machine']['disturbed'] = 'others had 40 % of the CPUs'
    said = show(report).run('document.querySelector(".problems").textContent')
    assert 'WRONG CONTENTS were found 3 times' in said and '40 % of the CPUs' in said


def test_names_cannot_become_markup(show):
    evil = ('</script><script>console.error("ran")</script><img src=x onerror="console.error(1)">'
            '@SCRIPT@ \u2028 & "')
    report = copy.deepcopy(EXAMPLE)
    report['machine'].update(name=evil, cpu=evil)
    report['sides'][1]['title'] = evil
    for s in report['scenarios']:
        s.update(title=evil, about=evil, warmup=evil)
        for r in s['results']:
            r.update(label=evil, parameters={evil: evil})
    browser = show(report, width=400)
    assert browser.run('document.querySelectorAll("img").length') == 0
    assert evil in browser.run('document.getElementById("title").textContent')


def test_every_result_is_in_a_table(show):
    rows = show(EXAMPLE).run('[...document.querySelectorAll("section.scenario")].map(s => '
                             's.querySelectorAll("details.all tbody tr").length)')
    assert rows == [sum(len(r['sides']) for r in s['results']) for s in EXAMPLE['scenarios']]


# ---- two runs ---------------------------------------------------------------------------------------------

def slower(factor):
    report = copy.deepcopy(EXAMPLE)
    report['machine'].update(name='node23', kernel='6.12.1')
    for v in (v for s in report['scenarios'] for r in s['results'] for v in r['sides'].values()):
        for name in ('p0', 'p50', 'p99', 'low', 'high'):
            v[name] *= factor
    return report


@pytest.mark.parametrize('width', [1280, 400])
def test_two_runs_stand_side_by_side_with_the_same_axes(show, width):
    other = slower(1.5)
    other['scenarios'].pop()
    browser = show(EXAMPLE, other, width=width, dark=width == 400)
    a, b = ({(side, x): y for caption, side, x, y, *_ in browser.run(MARKS)
             if caption == f'{letter}: Gather, the call alone'} for letter in 'AB')
    assert len(a) == 108 and b == pytest.approx({k: y * 1.5 for k, y in a.items()})
    ranges = browser.run('plots.filter(p => p.caption.endsWith(": Gather, the call alone")).map(p => '
                         '[p.y.from, p.y.to])')
    assert len(ranges) == 2 and ranges[0] == ranges[1]
    assert ranges[0][0] <= min(a.values()) and ranges[0][1] >= max(b.values())
    ratios = [m for m in browser.run(MARKS) if m[0] == 'Gather, the call alone: B compared with A']
    assert len(ratios) == 108 and all(m[3] == pytest.approx(1 / 1.5) for m in ratios)
    assert 'Only in A: Limits of this machine' in browser.run('document.body.textContent')
    assert browser.run(OUTSIDE) == []


def test_what_differs_between_two_machines_is_marked(show):
    browser = show(EXAMPLE, slower(1))
    marked = browser.run('[...document.querySelectorAll("#where tr")].filter(r => '
                         'r.querySelector(".different"))'
                         '.map(r => r.firstChild.textContent)')
    assert marked == ['\u2260 Machine', '\u2260 Kernel']
    said = browser.run('document.querySelector(".cards").textContent')
    assert '\u25b2 0 faster' in said and '\u25bc 0 slower' in said
