# SPDX-License-Identifier: BSD-3-Clause
"""sluice tune. tools/sluice/tune.c starts this script, with its own path as the first argument."""
import sys

if sys.version_info < (3, 9):
    sys.stderr.write('sluice: tune: python3 is %d.%d; 3.9 or newer is needed\n' % sys.version_info[:2])
    sys.exit(1)

import argparse
import datetime
import json
import os
import signal
import time
from pathlib import Path

HERE = Path(__file__).resolve().parent
BENCH = HERE.parent / 'bench'  # the measuring programs and their launcher
sys.path[:0] = [str(HERE), str(BENCH)]

import hostmpi  # noqa: E402
import measure  # noqa: E402
import questions  # noqa: E402
import ranks as ranks_of_mpi  # noqa: E402
import tunefile  # noqa: E402
from errors import DONE, FAILED, Misuse, Parser, Stop, run_main  # noqa: E402
from launch import Failed  # noqa: E402

FORMAT = 1             # of the file: TUNE_FORMAT in src/tune/tune.h
SECONDS, QUICK_S = 100, 35
RANKS_MOST = 16        # 16 ranks stand for more; a launch of all may take long
EVERY_S = {True: 0.2, False: 15}


def say(text):
    print(f'sluice: tune: {text}', file=sys.stderr, flush=True)


def ranks_list(text):
    words = text.split(',')
    if not all(w.isdigit() and 2 <= int(w) <= 64 for w in words):
        raise argparse.ArgumentTypeError(f'{text}: numbers from 2 to 64, with commas')
    return [int(w) for w in words]


def parse(argv):
    p = Parser(prog='sluice tune', add_help=False, allow_abbrev=False)
    p.add_argument('--quick', action='store_true')
    p.add_argument('--dry-run', action='store_true')
    p.add_argument('--json', action='store_true')
    p.add_argument('--alike', action='store_true')
    p.add_argument('-n', '--ranks', type=ranks_list)
    p.add_argument('--mpi')
    p.add_argument('--launcher')
    p.add_argument('-o', '--output')
    p.add_argument('--only', type=lambda text: text.split(','))
    p.add_argument('--time', type=float)
    p.add_argument('--nice', type=int, default=0)
    p.add_argument('--quiet', action='store_true')
    return p.parse_args(argv)


class Progress:
    def __init__(self, quiet):
        self.quiet, self.tty, self.shown = quiet, sys.stderr.isatty(), 0.0
        self.until = 0.0

    def __call__(self, question, text):
        now = time.monotonic()
        if self.quiet or now - self.shown < EVERY_S[self.tty]:
            return
        self.shown = now
        remaining = max(0, self.until - now)
        text = f'sluice: tune: {question.name.replace("SLUICE_", "")}: {text}; at most {remaining:.0f} s more'
        if self.tty:
            print(f'\r{text:<78.78}', end='', file=sys.stderr, flush=True)
        else:
            print(text, file=sys.stderr, flush=True)

    def clear(self):
        if self.tty and not self.quiet:
            print(f'\r{"":<78}\r', end='', file=sys.stderr, flush=True)


def interrupt(number, frame):
    for again in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
        signal.signal(again, signal.SIG_DFL)  # the second signal ends the process at once
    raise KeyboardInterrupt(number)


def preflight(launcher):
    """Starts two ranks that find each other, or raises Stop with the reason."""
    words = ' '.join(launcher.mpi.launcher)
    try:
        lines = launcher.run('collective_bench', 2, False, {}, ['what=barrier', 'ms=1'], 60)
    except Failed as e:
        raise Stop(f'{words} cannot run two ranks: {e}') from e
    if not lines or lines[0]['ranks'] != 2:
        raise Stop(f'{words} does not launch ranks of {launcher.mpi.library}: the ranks do not find each '
                   'other; see --mpi and --launcher')


def choose_path(opt, info, mpi):
    mine = next((t for t in info['tuned'] if Path(t['library']).resolve() == Path(mpi.library).resolve()), {})
    path = mine.get('writes_alike' if opt.alike else 'writes')
    if opt.output and not (path and Path(opt.output).is_dir()):
        return Path(opt.output)
    if not path:
        raise Stop('neither XDG_CONFIG_HOME nor HOME is set; name the file: -o FILE')
    return Path(opt.output) / Path(path).name if opt.output else Path(path)


def ask_all(asker, asked, deadline, progress):
    """Returns the answers, and the signal that stopped the questions or None. A busy machine leaves no time
    for the last questions."""
    out = []
    for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
        signal.signal(number, interrupt)
    try:
        for q in asked:
            out.append(asker.ask(q, deadline))
    except KeyboardInterrupt as e:
        return out, e.args[0] if e.args else signal.SIGINT
    finally:
        progress.clear()
    return out, None


def describe(opt, info, mpi, ranks, answers, skipped, began, stopped):
    return {
        'schema': 'sluice-tune-1', 'format': FORMAT, 'version': info['version'], 'host': info['host'],
        'machine': info['kind_of_machine'], 'mpi': mpi.version, 'library': mpi.library, 'alike': opt.alike,
        'date': datetime.datetime.now(datetime.timezone.utc).strftime('%Y-%m-%d %H:%M UTC'),
        'seconds': round(time.monotonic() - began, 1), 'load': round(os.getloadavg()[0], 1), 'ranks': ranks,
        'complete': not stopped and all(a['verdict'] != 'undecided' for a in answers),
        'options': answers, 'skipped': skipped,
        'values': {n: v for a in answers for n, v in a['values'].items()},
        'defaults': {o['name']: o['default'] for o in info['options']},
    }


def clean_environment():
    """Removes the user's settings: each launch sets its own values over the defaults."""
    for name in [n for n in os.environ if n.startswith('SLUICE')]:
        del os.environ[name]
    os.environ['SLUICE_TUNE'] = 'none'


def show(opt, result):
    if opt.json:
        json.dump({k: v for k, v in result.items() if k != 'defaults'}, sys.stdout, indent=1)
        print()
    elif opt.dry_run:
        print(tunefile.text_of(result), end='')
    else:
        print(tunefile.table(result))


def tune_main(tool, argv):
    opt = parse(argv)
    began = time.monotonic()
    clean_environment()
    mpi, info = hostmpi.choose(tool, opt.mpi, opt.launcher)
    path = choose_path(opt, info, mpi) if not opt.dry_run else None
    if path:
        tunefile.check_writable(path, not opt.output)
    allowed = sorted(os.sched_getaffinity(0))
    launcher = ranks_of_mpi.Ranks(tool, BENCH, mpi, allowed, opt.nice)
    preflight(launcher)
    few = 2
    ranks = opt.ranks or list(dict.fromkeys([few, max(few, min(len(allowed), RANKS_MOST))]))
    asked, skipped = questions.all_of(info, len(allowed), few, opt.quick)
    if opt.only:
        unknown = set(opt.only) - {q.name for q in asked} - set(skipped)
        if unknown:
            raise Misuse(f'--only: {min(unknown)} is not an option that sluice tune measures; these are: '
                         f'{", ".join([q.name for q in asked] + list(skipped))}')
        asked = [q for q in asked if q.name in opt.only]
    progress = Progress(opt.quiet or opt.json)
    asker = measure.Asker(launcher, ranks, 12 if opt.quick else 20, progress)
    progress.until = began + (opt.time or (QUICK_S if opt.quick else SECONDS))
    answers, stopped = ask_all(asker, asked, progress.until, progress)
    result = describe(opt, info, mpi, ranks, answers, skipped, began, stopped)
    saved = None
    try:
        if path and not stopped:
            tunefile.save(tunefile.text_of(result), path)
            saved = str(path)
    finally:
        show(opt, {**result, 'file': saved})
    if stopped:
        say('stopped; no file was written')
        return 128 + stopped
    failed = [a for a in answers if a['why'].startswith(measure.NOT_MEASURED)]
    for a in failed:
        say(f'{a["option"]}: {a["why"]}')
    if path:
        n = len(result['values'])
        say(f'wrote {path} for {mpi.version}: {n or "no"} value{"s" * (n != 1)} better than the default')
    return FAILED if failed else DONE


def main():
    tool, argv = sys.argv[1], sys.argv[2:]
    run_main(lambda: tune_main(tool, argv), say, 'stopped; no file was written')


if __name__ == '__main__':
    main()
