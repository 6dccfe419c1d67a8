#!/usr/bin/env python3
# SPDX-License-Identifier: BSD-3-Clause
"""results/bench.md from the JSON of `sluice bench`, one file or several for each MPI:
bench/results.py A.json B.json ... > results/bench.md"""
import argparse
import json
import re
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
sys.path.insert(0, str(ROOT / 'tools/bench'))
import scenarios as S  # noqa: E402
import table as T  # noqa: E402
from units import bytes_text, number  # noqa: E402

# Section 4 of the paper: (what, of which results, on its machine: its better CPU form, with copy engine)
PAPER = (
    ('4.1 broadcast', ('latency', 'bcast', 'call'), 'up to 67 %', 'less gain: 60 us a call more'),
    ('4.1 gather', ('latency', 'gather', 'call'), 'up to 85 %', 'less gain: 60 us a call more'),
    ('4.2 broadcast and computation', ('overlap', 'bcast', 'use'), 'up to 45 %', 'up to 58 %'),
    ('4.2 gather and computation', ('overlap', 'gather', 'use'), 'up to 76 %', 'up to 72 %'),
    ('4.3 application', ('synthetic', 'synthetic', 'all'), 'up to 51 %', 'up to 57 %'),
)
PAPER_PARTS = (('bcast_compute', 'Bcast + computation', '77 %', '79 %'),
               ('gather_init', 'Gather + initialisation', '7 %', '18 %'))


def short(version):
    """Returns a name like 'MPICH 5.0.2' from the version text of a library."""
    found = re.search(r'(MPICH|Open MPI|Intel\(R\) MPI)\D*([\d.]+)', version)
    return f'{found.group(1).replace("(R)", "")} {found.group(2).rstrip(".")}' if found else version


def markdown(rows):
    out = ['| ' + ' | '.join(rows[0]) + ' |', '|---|' + '---:|' * (len(rows[0]) - 1)]
    return '\n'.join(out + ['| ' + ' | '.join(r) + ' |' for r in rows[1:]])


def sides_of(run):
    return [s['name'] for s in run['sides'] if s['name'] != 'plain']


def results_of(run, scenario):
    return [r for s in run['scenarios'] if s['name'] == scenario for r in s['results']]


def gain(result, side):
    r = result['ratios'].get(side) if result else None
    if not r:
        return '-'
    mark = '' if result['settled'] else ' ~'
    around = f' ({number(r["low"])}..{number(r["high"])})' if r['pairs'] > 1 else ''
    return number(r['value']) + around + mark


def side_cell(result, side):
    """Returns the time of a side, and its speed relative to the host MPI alone."""
    if not result or side not in result['sides']:
        return '-'
    found = gain(result, side)
    return T.cell(result['sides'][side]) + (f'; **{found}**' if found != '-' else '')


def group_rows(runs, results):
    """results: results of any run that form one line of a plot, by key."""
    rows = [['', *(head for run in runs
                   for head in (f'{short(run["mpi"]["version"])} alone', *sides_of(run)))]]
    for key, some in results.items():
        row = [T.row_name(some, list(results.values()))]
        for run in runs:
            mine = next((r for s in run['scenarios'] for r in s['results']
                         if r['key'] == key and s['name'] == some['scenario']), None)
            row += [side_cell(mine, s) for s in ('plain', *sides_of(run))]
        rows.append(row)
    return rows


def scenario_text(runs, name):
    first = next(s for run in runs for s in run['scenarios'] if s['name'] == name)
    out = [f'## {first["title"]}', '', f'{first["about"]} Warm-up: {first["warmup"]}.', '']
    out.append('; '.join(f'{short(run["mpi"]["version"])}: {s["rounds"]} rounds'
                         + ('' if s['complete'] else ', not complete')
                         for run in runs for s in run['scenarios'] if s['name'] == name) + '.')
    found = {}
    for run in runs:
        for r in results_of(run, name):
            found.setdefault(r['key'], {**r, 'scenario': name})
    ordered = sorted(found.values(), key=lambda r: (r['what'], r['timed'], r['ranks'], r['bytes'] or 0))
    for key, group in T.groups(ordered if name != 'limits' else list(found.values())).items():
        if key == 'machine':
            out += ['', markdown([['', *(short(r['mpi']['version']) + "'s run" for r in runs)],
                                  *limit_rows(runs, group)])]
            continue
        by_key = {r['key']: r for r in group}
        out += ['', f'**{T.group_title(group)}**', '', markdown(group_rows(runs, by_key))]
    return '\n'.join(out)


def limit_rows(runs, group):
    for r in group:
        row = [f'{r["label"]}, {r["unit"]}']
        for run in runs:
            mine = next((x for x in results_of(run, 'limits') if x['key'] == r['key']), None)
            row.append(number(mine['sides']['machine']['p50']) if mine else '-')
        yield row


def best(run, scenario, what, timed, side):
    """Returns the largest reduction of time over the sizes, in %, as the paper gives it."""
    found = [1 - 1 / r['ratios'][side]['value'] for r in results_of(run, scenario)
             if r['what'] == what and r['timed'] == timed and side in r['ratios']]
    return f'up to {100 * max(found):.0f} %' if found else '-'


def part_reduction(run, part, side):
    largest = max((r for r in results_of(run, 'synthetic') if {'plain', side} <= set(r['sides'])),
                  key=lambda r: r['bytes'], default=None)
    if not largest:
        return '-'
    value = {s: next(p['p50'] for p in largest['sides'][s]['parts'] if p['name'] == part)
             for s in ('plain', side)}
    return f'{100 * (1 - value[side] / value["plain"]):.0f} %'


def paper_text(runs):
    rows = [['reduction of time', 'paper, CPU', 'paper, with engine',
             *(f'{short(r["mpi"]["version"])}, {s}' for r in runs for s in sides_of(r))]]
    for title, of, cpu, engine in PAPER:
        rows.append([title, cpu, engine, *(best(r, *of, s) for r in runs for s in sides_of(r))])
    for part, title, cpu, engine in PAPER_PARTS:
        rows.append([f'4.3 {title}, largest matrix', cpu, engine,
                     *(part_reduction(r, part, s) for r in runs for s in sides_of(r))])
    return markdown(rows)


def losses(runs):
    """Returns the cases that are slower with confidence, and those that are faster."""
    rows, faster, whole = [], 0, 0
    for run in runs:
        for s in run['scenarios']:
            for r in s['results']:
                for side, x in r['ratios'].items():
                    whole += 1
                    faster += x['low'] > 1
                    if x['high'] < 1 and x['pairs'] >= 3:
                        rows.append([short(run['mpi']['version']), s['name'],
                                     f'{r["label"]} ({r["timed"]}), {r["ranks"]} ranks', side,
                                     number(r['sides']['plain']['p50']),
                                     number(r['sides'][side]['p50']), r['unit'], gain(r, side)])
    text = (f'Of {whole} comparisons with a plain MPI {faster} are faster with 95 % confidence and '
            f'{len(rows)} slower. '
            'The slower ones, all of them:')
    return text + '\n\n' + markdown([['MPI', 'scenario', 'what', 'side', 'plain', 'Sluice', 'unit', 'gain'],
                                     *rows])


def merged(runs):
    """Returns one run for each MPI: of each scenario the measurement with more rounds."""
    out = {}
    for run in runs:
        have = out.setdefault(run['mpi']['version'], {**run, 'scenarios': []})
        for s in run['scenarios']:
            old = next((x for x in have['scenarios'] if x['name'] == s['name']), None)
            if s['results'] and (not old or old['rounds'] < s['rounds']):
                have['scenarios'] = [x for x in have['scenarios'] if x is not old] + [s]
    return list(out.values())


def lasted(seconds):
    return f'{seconds / 60:.1f} minutes' if seconds >= 60 else f'{seconds:.0f} s'


def state_text(files):
    """Returns the section about the limits of the figures."""
    troubled = [f for f in files if f['machine']['disturbed']]
    if not troubled:
        return 'Nothing else ran on the machine meanwhile, as far as it tells (see the load of each run).'
    some = 'These figures are' if len(troubled) == len(files) else (
        f'{len(troubled)} of the {len(files)} runs are')
    return (f'{some} from a busy machine: other programs ran meanwhile, see the load of each run. What '
            'needs an idle core (copies '
            'behind a computation by worker threads or the worker process) cannot show '
            'there;\n`results-early-return.md` has it from '
            'quieter hours.')


def machine_text(run):
    m = run['machine']
    load = m['load']
    command = re.sub(r'/[^ ]*/', '', run['run']['command'])  # whose folders these were is nobody's business
    return (f'- {short(run["mpi"]["version"])}: `{command}`, {run["run"]["began"]}, '
            f'{lasted(run["run"]["seconds"])}; load {load["before"]} to {load["after"]}, other programs used '
            f'{load["others_percent"]} % of the CPUs, the hypervisor took {load["steal_percent"]} %')


def main():
    p = argparse.ArgumentParser(prog='bench/results.py', description=__doc__)
    p.add_argument('files', nargs='+')
    p.add_argument('--intro', type=Path, default=ROOT / 'results/bench-intro.md')
    opt = p.parse_args()
    files = [json.loads(Path(f).read_text(encoding='utf-8')) for f in opt.files]
    runs, m = merged(files), files[0]['machine']
    names = sorted({s['name'] for run in runs for s in run['scenarios']}, key=S.ORDER.index)
    caches = ', '.join(f'{c["name"]} {c["count"]} x {bytes_text(c["bytes"])}' for c in m['caches'])
    intro = opt.intro.read_text(encoding='utf-8')
    print(intro.rstrip().replace('@PAPER@', paper_text(runs)).replace('@LOSSES@', losses(runs)).replace(
        '@STATE@', state_text(files)).replace(
        '@MACHINE@',
        f'{m["cpu"]}, {m["cores"]} cores, {caches}, {bytes_text(m["memory_bytes"])}, Linux {m["kernel"]}; '
        + ', '.join(f'{k}: {v}' for k, v in m['settings'].items())).replace(
            '@RUNS@', '\n'.join(map(machine_text, files))))
    for name in names:
        print('\n' + scenario_text(runs, name))


if __name__ == '__main__':
    main()
