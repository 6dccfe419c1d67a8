# SPDX-License-Identifier: BSD-3-Clause
"""The printed report: one table for each line of a plot."""
import textwrap

from units import bytes_text, number

TIMED = {'call': 'the call (as OSU times it)', 'use': 'until the data has been used'}
WIDTH = 100
MARKED = ('cores', 'computes')  # parameters that separate groups of results


def table(rows, left=1):
    """Returns aligned columns; the first `left` are left-aligned."""
    widths = [max(len(r[i]) for r in rows) for i in range(len(rows[0]))]
    return '\n'.join('  ' + '  '.join(c.ljust(w) if i < left else c.rjust(w)
                                      for i, (c, w) in enumerate(zip(r, widths))).rstrip() for r in rows)


def gain(result, side):
    r = result['ratios'].get(side)
    if not r:
        return '-'
    around = f' ({number(r["low"])}..{number(r["high"])})' if r['pairs'] > 1 else ''
    return number(r['value']) + around


def cell(stat):
    """Median; 99th percentile; share of the communication that is hidden."""
    if stat is None:
        return '-'
    out = number(stat['p50']) + ('' if stat['p99'] is None else f' / {number(stat["p99"])}')
    if stat.get('overlap_percent') is not None:
        out += f' ({stat["overlap_percent"]:.0f} %)'
    return out


def remarks(result):
    wrong = sum(s['wrong'] for s in result['sides'].values())
    return ' '.join(filter(None, ['WRONG DATA' if wrong else '', '' if result['settled'] else '~']))


def group_title(results):
    r = results[0]
    marks = ''.join(f', {k}: {r["parameters"][k]}' for k in MARKED if k in r['parameters'])
    return f'{r["what"]}, {TIMED.get(r["timed"], r["timed"])}, {r["ranks"]} ranks{marks}, {r["unit"]}'


def row_name(result, results):
    """Returns the size where sizes distinguish the rows of a table, else the label."""
    sizes = [r['bytes'] for r in results]
    is_by_size = None not in sizes and len(set(sizes)) == len(sizes)
    return bytes_text(result['bytes']) if is_by_size else result['label']


def comparison(results, names):
    """Returns one line of a plot: the times of each side, then the ratios."""
    gains = [n for n in names if any(n in r['ratios'] for r in results)]
    rows = [['', *names, *(f'plain/{n}' for n in gains), '']]
    for r in results:
        rows.append([row_name(r, results), *(cell(r['sides'].get(n)) for n in names),
                     *(gain(r, n) for n in gains), remarks(r)])
    return table(rows)


def limits(results):
    return table([[r['label'], number(s['p50']), r['unit'],
                   f'{number(s["low"])}..{number(s["high"])}' if s['launches'] > 1 else '', remarks(r)]
                  for r in results for s in r['sides'].values()])


def groups(results):
    out = {}
    for r in results:
        marks = tuple(r['parameters'].get(k) for k in MARKED)
        key = (r['what'], r['timed'], r['ranks'], r['unit'], marks)
        out.setdefault('machine' if 'machine' in r['sides'] else key, []).append(r)
    return out


def wrapped(text):
    return textwrap.fill(text, WIDTH, initial_indent='   ', subsequent_indent='   ')


def scenario(s, names):
    out = [f'\n== {s["title"]}', wrapped(s['about']),
           wrapped(f'Warm-up: {s["warmup"]}. {s["rounds"]} rounds'
                   + ('.' if s['complete'] else ', not complete.'))]
    for key, results in groups(s['results']).items():
        if key == 'machine':
            out += ['', limits(results)]
            continue
        present = [n for n in names if any(n in r['sides'] for r in results)]
        out += ['', f'  {group_title(results)}', comparison(results, present)]
    if not s['results']:
        out.append('   no results')
    return '\n'.join(out)


def head(d):
    m, run = d['machine'], d['run']
    changed = [f'{o["name"]}={o["value"]}' for o in d['sluice']['options'] if o['source'] != 'default']
    out = [f'{m["name"]}: {m["cpu"]}, {m["cores"]} cores, {bytes_text(m["memory_bytes"])}, '
           f'Linux {m["kernel"]}', f'{d["mpi"]["version"]}, launched by {d["mpi"]["launcher"]}',
           ', '.join([f'Sluice {d["sluice"]["version"]}', *changed])]
    if m['disturbed']:
        out.append(f'DISTURBED: {m["disturbed"]}; do not rely on these figures')
    if run['stopped']:
        out.append(f'STOPPED by {run["stopped"]}; the results so far:')
    return '\n'.join(out)


LEGEND = '''
Times are the median / 99th percentile of the slowest rank (and the share of the communication that is
hidden behind the computation). plain/X is the speed-up of side X over the plain MPI, with its 95 %
confidence interval; below 1, X is slower. ~ marks figures that did not settle within 5 %.'''


def document(d):
    names = [s['name'] for s in d['sides']]
    out = [head(d), LEGEND.strip('\n'), *(scenario(s, names) for s in d['scenarios'])]
    if d['failures']:
        out.append(f'\n{len(d["failures"])} launches failed or gave too few results:')
        out += dict.fromkeys(f'  {f["scenario"]}, {f["side"]}, {f["ranks"]} ranks: {f["why"]}'
                             for f in d['failures'])
    return '\n'.join(out)
