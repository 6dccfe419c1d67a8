# SPDX-License-Identifier: BSD-3-Clause
"""sluice bench compare A.json B.json: reports significant differences."""
import json
import stats
from table import table
from units import number

FACTS = (('machine', 'name'), ('machine', 'cpu'), ('machine', 'cores'), ('machine', 'kernel'),
         ('mpi', 'version'), ('sluice', 'version'))


def differences_of_setup(a, b):
    """Returns the differences of the two set-ups: (what, in A, in B)."""
    out = [(f'{part} {name}', str(a[part][name]), str(b[part][name])) for part, name in FACTS
           if a[part][name] != b[part][name]]
    old, new = ({o['name']: o['value'] for o in d['sluice']['options']} for d in (a, b))
    out += [(n, old.get(n, 'none'), new.get(n, 'none')) for n in dict.fromkeys([*old, *new])
            if old.get(n) != new.get(n)]
    return out


def doubts(a, b):
    return [f'{name} was disturbed: {d["machine"]["disturbed"]}' for name, d in (('A', a), ('B', b))
            if d['machine']['disturbed']]


def verdict(result, x, y):
    """Returns better, worse or same. A difference counts when the intervals are disjoint and it exceeds the
    noise."""
    if x['low'] <= y['high'] and y['low'] <= x['high']:
        return 'same'
    if not x['p50'] or not y['p50'] or abs(y['p50'] / x['p50'] - 1) <= stats.SMALL_SPREAD:
        return 'same'
    return 'better' if (y['p50'] < x['p50']) == (result['better'] == 'less') else 'worse'


def pairs(a, b):
    """Yields (scenario, result of A, side, stat of A, stat of B) for everything in both."""
    theirs = {(s['name'], r['key']): r for s in b['scenarios'] for r in s['results']}
    for s in a['scenarios']:
        for r in s['results']:
            other = theirs.get((s['name'], r['key']))
            for side, stat in r['sides'].items() if other else ():
                if side in other['sides']:
                    yield s['name'], r, side, stat, other['sides'][side]


def lone(a, b):
    """Returns the number of results in only one of the two."""
    keys = [{(s['name'], r['key']) for s in d['scenarios'] for r in s['results']} for d in (a, b)]
    return len(keys[0] - keys[1]), len(keys[1] - keys[0])


def compared(a, b):
    return [{'scenario': name, 'key': r['key'], 'label': r['label'], 'timed': r['timed'],
             'ranks': r['ranks'], 'bytes': r['bytes'], 'unit': r['unit'], 'side': side, 'a': x['p50'],
             'b': y['p50'], 'ratio': y['p50'] / x['p50'] if x['p50'] else None,
             'verdict': verdict(r, x, y)} for name, r, side, x, y in pairs(a, b)]


def text(a, b, everything):
    rows = compared(a, b)
    out = [f'  {what}: {old}  ->  {new}' for what, old, new in differences_of_setup(a, b)]
    out = ['A and B differ in:', *out] if out else ['A and B: the same machine, MPI and options']
    out += doubts(a, b)
    counts = {v: sum(r['verdict'] == v for r in rows) for v in ('better', 'worse', 'same')}
    out.append(f'\n{len(rows)} figures: B is better in {counts["better"]}, worse in {counts["worse"]}, '
               f'the same within the spread in {counts["same"]}')
    only = lone(a, b)
    if any(only):
        out.append(f'only in A: {only[0]} results; only in B: {only[1]}')
    shown = [r for r in rows if everything or r['verdict'] != 'same']
    if shown:
        lines = [['scenario', 'what', 'ranks', 'side', 'A', 'B', 'unit', 'B/A', '']]
        lines += [[r['scenario'], f'{r["label"]} ({r["timed"]})', str(r['ranks']), r['side'],
                   number(r['a']), number(r['b']), r['unit'], number(r['ratio']), r['verdict']]
                  for r in shown]
        out += ['', table(lines, left=2)]
    return '\n'.join(out)


def as_json(a, b):
    found = [{'what': w, 'a': x, 'b': y} for w, x, y in differences_of_setup(a, b)]
    return json.dumps({'setup': found, 'figures': compared(a, b)}, indent=1)
