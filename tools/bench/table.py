# SPDX-License-Identifier: BSD-3-Clause
"""The text for people: one table a scenario."""
from units import bytes_text, number

TIMED = {'call': 'the call (as OSU times it)', 'use': 'until the data has been used'}


def table(rows, left=2):
    """Columns that line up; the first `left` to the left."""
    widths = [max(len(r[i]) for r in rows) for i in range(len(rows[0]))]
    return '\n'.join('  ' + '  '.join(c.ljust(w) if i < left else c.rjust(w)
                                      for i, (c, w) in enumerate(zip(r, widths))).rstrip() for r in rows)


def gain(result, side):
    r = result['ratios'].get(side)
    if not r:
        return '-'
    return f'{number(r["value"])} ({number(r["low"])}..{number(r["high"])})'


def cell(stat, unit):
    p99 = '' if stat['p99'] is None else f' / {number(stat["p99"])}'
    return f'{number(stat["p50"])}{p99}'


def group_title(results):
    r = results[0]
    return f'{r["what"]}, {TIMED.get(r["timed"], r["timed"])}, {r["ranks"]} ranks, {r["unit"]}'


def comparison(results, names):
    """One table of results that are one line of a plot: medians and 99th percentiles, then gains."""
    has_share = any('overlap_percent' in s for r in results for s in r['sides'].values())
    rows = [['', 'p50 / p99', *names[1:], *(f'plain/{n}' for n in names[1:]),
             *([f'hidden by {n}' for n in names] if has_share else []), '']]
    rows[0][1] = names[0]
    for r in results:
        row = [bytes_text(r['bytes']) if r['bytes'] else r['label']]
        row += [cell(r['sides'][n], r['unit']) if n in r['sides'] else '-' for n in names]
        row += [gain(r, n) for n in names[1:]]
        if has_share:
            row += [share(r['sides'].get(n)) for n in names]
        row.append(remarks(r))
        rows.append(row)
    return table(rows, left=1)


def share(stat):
    found = stat.get('overlap_percent') if stat else None
    return '-' if found is None else f'{found:.0f} %'


def remarks(result):
    wrong = sum(s['wrong'] for s in result['sides'].values())
    return ' '.join(filter(None, ['WRONG DATA' if wrong else '', '' if result['settled'] else '~']))


def plain_list(results):
    """What has no reference: a line each."""
    rows = []
    for r in results:
        for name, s in r['sides'].items():
            rows.append([r['label'], number(s['p50']), r['unit'],
                         f'{number(s["low"])}..{number(s["high"])}', '' if name == 'machine' else name,
                         remarks(r)])
    return table(rows, left=1)


def groups(results):
    out = {}
    for r in results:
        special = tuple(sorted((k, v) for k, v in r.get('parameters', {}).items() if k in ('cores', 'computes')))
        out.setdefault((r['what'], r['timed'], r['ranks'], r['unit'], special, bool(r['ratios'])), []).append(r)
    return out


def scenario(s, names):
    out = [f'\n== {s["title"]}', f'   {s["about"]}', f'   {s["warmup"]}; {s["rounds"]} rounds'
           + ('' if s['complete'] else '; NOT COMPLETE')]
    lists = []
    for key, results in groups(s['results']).items():
        present = [n for n in names if any(n in r['sides'] for r in results)]
        if not key[-1]:
            lists += results
            continue
        special = ''.join(f', {k}: {v}' for k, v in key[-2])
        out += ['', f'  {group_title(results)}{special}', comparison(results, present)]
    if lists:
        out += ['', plain_list(lists)]
    if not s['results']:
        out.append('   nothing was measured')
    return '\n'.join(out)


def head(d):
    m, run = d['machine'], d['run']
    out = [f'{m["name"]}: {m["cpu"]}, {m["cores"]} cores, {bytes_text(m["memory_bytes"])}, Linux {m["kernel"]}',
           f'{d["mpi"]["version"]}, launched by {d["mpi"]["launcher"]}',
           f'Sluice {d["sluice"]["version"]}'
           + ''.join(f', {o["name"]}={o["value"]}' for o in d['sluice']['options'] if o['source'] != 'default')]
    if m['disturbed']:
        out.append(f'DISTURBED: {m["disturbed"]}; do not rely on these figures')
    if run['stopped']:
        out.append(f'STOPPED: {run["stopped"]}; what was measured until then:')
    return '\n'.join(out)


LEGEND = '''
Times are the median / 99th percentile of the slowest rank; plain/X is how many times as fast as the
plain MPI side X is, with 95 % confidence; below 1 it is slower. ~ marks what has not settled within 5 %.'''


def document(d):
    names = [s['name'] for s in d['sides']]
    out = [head(d), LEGEND.strip('\n'), *(scenario(s, names) for s in d['scenarios'])]
    if d['failures']:
        out.append(f'\n{len(d["failures"])} launches failed:')
        seen = dict.fromkeys(f'  {f["scenario"]}, {f["side"]}, {f["ranks"]} ranks: {f["why"]}'
                             for f in d['failures'])
        out += list(seen)
    return '\n'.join(out)
