#!/usr/bin/env python3
# SPDX-License-Identifier: BSD-3-Clause
"""`sluice goal sim` and the simulators LogGOPSim and ATLAHS on the same schedules.

Usage: bench/goal_compare.py PATH/sluice --loggopsim DIR [--atlahs DIR] [--rounds N] [--file GOAL ...]
                             [--traces RANK0] [--only WORD] [--folder DIR]

DIR holds a build of LogGOPSim (src/LogGOPSim: LogGOPSim, txt2bin; --schedgen PATH) or of ATLAHS's
(sim/LogGOPSim). Schedules are made by schedgen, are texts that somebody published (--file), or are made
by schedgen from traces of liballprof (--traces: file of rank 0). LogGOPSim's txt2bin makes the binaries;
both simulators read that binary, one after the other in each round. Prints a table: end times, CPU
seconds (median, least to most), peak memory, sizes of files.
"""
import argparse
import pathlib
import re
import shlex
import statistics
import subprocess
import sys
import tempfile
import time

PATTERNS = ['binomialtreebcast -s 65536 -d 65536', 'binarytreebcast -s 4096 -d 1024',
            'binomialtreereduce -s 65536 -d 1024', 'dissemination -s 32768 -d 8',
            'nwaydissemination -s 16384 -d 8 --nway 3', 'allreduce_recdoub -s 16384 -d 8192',
            'allreduce_ring -s 256 -d 1048576', 'pipelinedring -s 256 -d 1048576 --segmentsize 8192',
            'doublering -s 256 -d 1048576 --segmentsize 8192', 'random_bisect -s 32768 -d 1024',
            'linear_alltoall -s 128 -d 64', 'gather -s 8192 -d 1024', 'scatter -s 8192 -d 1024',
            'linbarrier -s 8192', 'resnet -s 128 -d 1024']
PARAMS = {'L': 2500, 'o': 1500, 'g': 1000, 'G': 6, 'O': 0, 'S': 65535}


HELPER = '''
import os, shlex, subprocess, sys
for line in sys.stdin:
    out, *command = shlex.split(line)
    with open(out, 'w') as file:
        child = subprocess.Popen(command, stdout=file, stderr=subprocess.STDOUT)
        _, child.returncode, usage = os.wait4(child.pid, 0)
    print(child.returncode, usage.ru_utime + usage.ru_stime, usage.ru_maxrss / 1024, flush=True)
'''


class Runner:
    """Starts programs from a small process: Linux counts the memory of the process that forks, too."""

    def __init__(self, folder):
        self.out = folder / 'out'
        self.helper = subprocess.Popen([sys.executable, '-S', '-c', HELPER], stdin=subprocess.PIPE,
                                       stdout=subprocess.PIPE, text=True)

    def __call__(self, *command):
        """Returns: (stdout, CPU seconds, peak MiB)."""
        self.helper.stdin.write(shlex.join([str(self.out), *map(str, command)]) + '\n')
        self.helper.stdin.flush()
        status, cpu, mib = self.helper.stdout.readline().split()
        text = self.out.read_text()
        if int(status):
            sys.exit(f'{shlex.join(map(str, command))}: status {status}\n{text[-2000:]}')
        return text, float(cpu), float(mib)


def spread(values, digits):
    values = sorted(values)
    return f'{statistics.median(values):.{digits}f} ({values[0]:.{digits}f} to {values[-1]:.{digits}f})'


def their_ends(text):
    """End times by rank, or {None: the last one} where a simulator prints no more."""
    ranks = {int(r): int(t) for r, t in re.findall(r'^Host (\d+): (\d+)$', text, re.M)}
    if ranks:
        return ranks
    last = re.search(r'[Mm]aximum finishing time.*: (\d+)', text)
    return {None: int(last[1])} if last else {}


def our_ends(text):
    return [float(t) for t in re.findall(r'^  rank \d+ +([0-9.]+)$', text, re.M)]


def compare(o, name, goal, simulator, model):
    """Prints a row: both simulators on one binary, in turn."""
    binary, own = goal.with_suffix('.bin'), goal.with_suffix('.compiled')
    if not binary.exists():
        o.run(o.txt2bin, '-i', goal, '-o', binary)
        o.run(o.sluice, 'goal', 'compile', goal, '-o', own)
    options = [w for k, v in PARAMS.items() for w in (f'-{k}', str(v))]
    ours, theirs = [], []
    for _ in range(o.rounds):
        ours.append(o.run(o.sluice, 'goal', 'sim', binary, *options, '--model', model, '--path', '0',
                          '--times'))
        theirs.append(o.run(simulator, '-f', binary, *options))
        if theirs[0][1] > 60:
            break
    mine, its = our_ends(ours[0][0]), their_ends(theirs[0][0])
    if not its:
        equal = 'none: messages left over'
    elif None in its:
        equal = 'last equal' if its[None] == max(mine) else f'last {its[None]}'
    else:
        same = sum(its.get(r) == t for r, t in enumerate(mine))
        equal = 'all equal' if same == len(mine) else f'{same} of {len(mine)}, last {max(its.values())}'
    operations = re.search(r'(\d+) operations', ours[0][0])[1]
    ratio = statistics.median(t[1] / max(m[1], 1e-3) for m, t in zip(ours, theirs))
    print(f'| `{name}` | {operations} | {max(mine):.0f} | {equal} | {spread([m[1] for m in ours], 2)} | '
          f'{spread([t[1] for t in theirs], 2)} | {ratio:.1f} | {max(m[2] for m in ours):.0f} | '
          f'{max(t[2] for t in theirs):.0f} | {own.stat().st_size / 1e6:.2g} | '
          f'{binary.stat().st_size / 1e6:.2g} |', flush=True)


def programs(o, folder):
    """Yields: name and text of each schedule."""
    for i, words in enumerate(PATTERNS):
        if o.only and o.only not in words:
            continue
        goal = folder / f'{i}.goal'
        if not goal.exists():
            o.run(o.schedgen, '-p', *words.split(), '-o', goal)
        yield words, goal
    for i, file in enumerate(o.file or []):
        goal = folder / f'f{i}.goal'
        goal.write_bytes(file.read_bytes())
        yield file.name, goal
    for factor in (1, 16, 256) if o.traces and not o.only else ():
        goal = folder / f't{factor}.goal'
        if not goal.exists():
            o.run(o.schedgen, '-p', 'trace', '--traces', o.traces, '--traces-extr', factor, '-o', goal)
        yield f'{o.traces.parent.name}, x {factor}', goal


def main():
    p = argparse.ArgumentParser(description=__doc__.split('\n', maxsplit=1)[0])
    p.add_argument('sluice', type=pathlib.Path)
    p.add_argument('--loggopsim', type=pathlib.Path, required=True)
    p.add_argument('--schedgen', type=pathlib.Path)
    p.add_argument('--atlahs', type=pathlib.Path)
    p.add_argument('--file', type=pathlib.Path, action='append', help='a published text')
    p.add_argument('--traces', type=pathlib.Path, help='liballprof\'s trace of rank 0')
    p.add_argument('--only', help='patterns with this word')
    p.add_argument('--folder', help='keeps the schedules there, and takes those that are there')
    p.add_argument('--rounds', type=int, default=5, help='rounds (5)')
    o = p.parse_args()
    o.schedgen = o.schedgen or o.loggopsim.parent / 'Schedgen/schedgen'
    o.txt2bin = o.loggopsim / 'txt2bin'
    head = '| | operations | ends at | its ends | s | its s | its / ours | MiB | its MiB | MB | its MB |'
    with tempfile.TemporaryDirectory() as name:
        name = o.folder or name
        o.run = Runner(pathlib.Path(name))
        for title, simulator, model in [('LogGOPSim', o.loggopsim, 'loggopsim')] + (
                [('ATLAHS', o.atlahs, 'atlahs')] if o.atlahs else []):
            print(f'\n{title}, {time.strftime("%Y-%m-%d")}\n\n{head}\n{"|---" * 11}|')
            for words, goal in programs(o, pathlib.Path(name)):
                compare(o, words, goal, simulator / 'LogGOPSim', model)


if __name__ == '__main__':
    main()
