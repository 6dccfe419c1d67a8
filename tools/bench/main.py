# SPDX-License-Identifier: BSD-3-Clause
"""sluice bench. tools/sluice/bench.c starts it with the tool's path as the first argument."""
import sys

if sys.version_info < (3, 9):
    sys.stderr.write('sluice: bench: python3 is %d.%d; 3.9 or newer is needed\n' % sys.version_info[:2])
    sys.exit(1)

import argparse
import datetime
import difflib
import os
import shlex
import signal
import time
from pathlib import Path

HERE = Path(__file__).resolve().parent
sys.path.insert(0, str(HERE))

import compare  # noqa: E402
import document  # noqa: E402
import hostmpi  # noqa: E402
import machine  # noqa: E402
import measured  # noqa: E402
import page  # noqa: E402
import runner  # noqa: E402
import scenarios as S  # noqa: E402
import table  # noqa: E402
from errors import DONE, FAILED, Misuse, Parser, run_main, say  # noqa: E402
from progress import Progress  # noqa: E402

QUICK_S = 50
QUICK_SIDES = 'plain,blocking,early'
LAUNCH_S = 300
MEMORY_BYTES = 4 << 30  # where the machine does not report its memory


class Interrupted(KeyboardInterrupt):
    """SIGINT, SIGTERM or SIGHUP; the results so far are kept."""

    def __init__(self, number):
        super().__init__(number)
        self.number = number


def minutes(text):
    try:
        value = float(text)
    except ValueError:
        value = 0
    if not 0 < value < 1e6:
        raise argparse.ArgumentTypeError(f"'{text}' is not a number of minutes")
    return value


def ranks_list(text):
    words = text.split(',')
    if not all(w.isdigit() and 2 <= int(w) <= S.RANKS_MOST for w in words):
        raise argparse.ArgumentTypeError(f'{text}: numbers from 2 to {S.RANKS_MOST}, with commas')
    return [int(w) for w in words]


def parse(argv):
    p = Parser(prog='sluice bench', add_help=False, allow_abbrev=False)
    p.add_argument('scenarios', nargs='*')
    p.add_argument('--quick', action='store_true')
    p.add_argument('--time', type=minutes)
    p.add_argument('-n', '--ranks', type=ranks_list)
    p.add_argument('--mpi')
    p.add_argument('--launcher')
    p.add_argument('--sides')
    p.add_argument('-o', '--output')
    p.add_argument('--list', action='store_true')
    p.add_argument('--seed', type=int, default=1)
    p.add_argument('--nice', type=int, default=0)
    p.add_argument('--quiet', action='store_true')
    return p.parse_args(argv)


def compare_main(folder, argv):
    p = Parser(prog='sluice bench compare', add_help=False, allow_abbrev=False)
    p.add_argument('files', nargs='*')
    p.add_argument('--json', action='store_true')
    p.add_argument('--all', action='store_true')
    p.add_argument('--html')
    opt = p.parse_args(argv)
    if len(opt.files) != 2:
        raise Misuse(f'compare takes two files, not {len(opt.files)}; see: sluice bench --help')
    a, b = (document.load(f, folder) for f in opt.files)
    if opt.html:
        names = [Path(f).stem for f in opt.files]
        document.save(page.text(list(zip(names, (a, b)))), opt.html)
    print(compare.as_json(a, b) if opt.json else compare.text(a, b, opt.all))
    return DONE


class Setup:
    """The runner's settings."""

    def __init__(self, opt, tool, programs, mpi, info):
        self.tool, self.programs, self.mpi = tool, programs, mpi
        self.nice, self.seed, self.limit_s = opt.nice, opt.seed, LAUNCH_S
        self.allowed = sorted(os.sched_getaffinity(0))
        self.cpus = len(self.allowed)
        self.memory = info['machine']['memory_bytes'] or MEMORY_BYTES
        here = runner.sides_for(info)
        quick = [s.name for s in here if s.name in QUICK_SIDES.split(',')] if opt.quick else []
        self.sides = self.wanted(here, opt.sides or ','.join(quick))

    @staticmethod
    def wanted(sides, names):
        if not names:
            return sides
        by_name = {s.name: s for s in sides}
        for name in names.split(','):
            if name not in by_name:
                raise Misuse(f"--sides: there is no side '{name}' here; there are {', '.join(by_name)}")
        return [by_name[n] for n in names.split(',')]

    def side(self, name):
        """Returns a side, also one that was not requested: calibration uses it."""
        return next((s for s in self.sides if s.name == name),
                    runner.Side(name, name, {'SLUICE_EARLY': 'off'}))

    def sides_of(self, job):
        if job.is_machine:
            return [runner.Side('machine', '', None)]
        return [s for s in self.sides if not job.sides or s.name in job.sides]


def find_scenarios(opt, folder):
    names = S.names_in(folder)
    for name in opt.scenarios:
        if name not in names and not (name.endswith('.ini') and Path(name).is_file()):
            near = difflib.get_close_matches(name, names, 1)
            raise Misuse(f"there is no scenario '{name}'; "
                         + (f"did you mean '{near[0]}'?" if near else f'there are: {" ".join(names)}'))
    find = S.ranks_of(len(os.sched_getaffinity(0)), opt.ranks)
    paths = [n if n.endswith('.ini') else Path(folder) / f'{n}.ini' for n in opt.scenarios or names]
    found = [S.read(p, find, opt.quick) for p in paths]
    return [s for s in found if s.jobs]


def list_scenarios(folder):
    for name in S.names_in(folder):
        print(f'{name:<10} {S.read(Path(folder) / f"{name}.ini", S.ranks_of(2, None), False).about}')
    return DONE


def interrupt(number, frame):
    for again in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
        signal.signal(again, signal.SIG_DFL)  # a second signal ends at once
    raise Interrupted(number)


def measure(setup, chosen, opt, began):
    """Returns the runner, and the signal that stopped it or None."""
    deadline = None
    if opt.time or opt.quick:
        deadline = began + (opt.time * 60 if opt.time else QUICK_S)
    run = runner.Runner(setup, None)
    planned = {k: n for s in chosen for k, n in run.planned(s, s.rounds).items()}
    run.progress = Progress(planned, opt.quiet, deadline)
    for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
        signal.signal(number, interrupt)
    try:
        run.run_all(chosen, deadline)
    except Interrupted as e:
        return run, e.number
    finally:
        run.progress.clear()
    return run, None


def describe(setup, run, info, watch, opt, facts):
    stopped, found = facts['stopped'], run.documents()
    return {
        'schema': 'sluice-bench-1',
        'run': {'began': facts['began'], 'seconds': facts['seconds'], 'command': facts['command'],
                'quick': opt.quick, 'seed': opt.seed,
                'complete': not stopped and all(d['complete'] for d in found),
                'stopped': signal.Signals(stopped).name if stopped else None},
        'machine': machine.describe(info, watch),
        'mpi': {'version': setup.mpi.version, 'library': setup.mpi.library, 'abi': setup.mpi.abi,
                'launcher': shlex.join(setup.mpi.launcher)},
        'sluice': machine.sluice(info),
        'sides': [{'name': s.name, 'title': s.title, 'options': s.options or {}} for s in setup.sides],
        'scenarios': found, 'failures': run.failures,
    }


def exit_code(result, stopped):
    if stopped:
        return 128 + stopped
    results = [r for s in result['scenarios'] for r in s['results']]
    wrong = any(s['wrong'] for r in results for s in r['sides'].values())
    broken = [f for f in result['failures'] if not f['why'].startswith(measured.DISTURBED)]
    return FAILED if broken or wrong or not results else DONE


def bench_main(tool, folder, argv):
    began = time.monotonic()
    opt = parse(argv)
    if opt.list:
        return list_scenarios(folder / 'scenarios')
    chosen = find_scenarios(opt, folder / 'scenarios')
    now = datetime.datetime.now(datetime.timezone.utc)
    path = opt.output or f'sluice-bench-{now:%Y%m%d-%H%M%S}.json'
    if path != '-':
        document.can_write(path)
        if document.page_path(path) == Path(path):
            raise Misuse(f'-o {path}: the page gets this name; name the JSON file, like NAME.json')
    mpi, info = hostmpi.choose(tool, opt.mpi, opt.launcher)
    setup = Setup(opt, tool, folder, mpi, info)
    runner.preflight(setup)
    if not opt.quiet:
        say(f'{setup.mpi.version}, {len(chosen)} scenario{"s" * (len(chosen) > 1)}, '
            f'{len(setup.sides)} sides')
    watch = machine.Watch()
    run, stopped = measure(setup, chosen, opt, began)
    facts = {'began': now.isoformat(timespec='seconds'), 'seconds': time.monotonic() - began,
             'command': 'sluice bench ' + shlex.join(argv), 'stopped': stopped}
    result = describe(setup, run, info, watch, opt, facts)
    if path == '-':
        sys.stdout.write(document.text_of(result))
    else:
        keep(document.rounded(result), path, stopped)
    return exit_code(result, stopped)


def keep(result, path, stopped):
    """Writes the files before the table, as stdout may be closed; the table also after a failure."""
    html = document.page_path(path)
    try:
        document.save(document.text_of(result), path)
        document.save(page.text([(Path(path).stem, result)]), html)
    finally:
        print(table.document(result), flush=True)
    say(f'{"stopped; the results so far are" if stopped else "results are"} in {path}, as a page in {html}')


def main():
    tool, argv = sys.argv[1], sys.argv[2:]
    run_main(lambda: (compare_main(HERE, argv[1:]) if argv[:1] == ['compare']
                      else bench_main(tool, HERE, argv)),
             say, 'stopped before the first result')


if __name__ == '__main__':
    main()
