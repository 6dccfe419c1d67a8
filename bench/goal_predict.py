#!/usr/bin/env python3
# SPDX-License-Identifier: BSD-3-Clause
"""How well `sluice goal sim` predicts what `sluice goal run` measures on this machine.

Usage: bench/goal_predict.py PATH/sluice [-n RANKS] [--rounds N]

Each round measures the node, then runs patterns of 8 bytes to 16 MiB, as a machine's speed changes from
second to second. Prints for each cell prediction / median of the run, the median of the rounds, and how much
the rounds differ (10 to 90 %).
"""
import argparse
import json
import pathlib
import statistics
import subprocess
import tempfile

PATTERNS = {'ping-pong': [], 'ring-allreduce': ['--type', 'f32'], 'doubling-allreduce': ['--type', 'f32'],
            'stencil-2d': [], 'binomial-bcast': [], 'linear-alltoall': []}
LENGTHS = [8, 64, 512, 4 << 10, 16 << 10, 64 << 10, 256 << 10, 1 << 20, 4 << 20, 16 << 20]
MOST_OFF = .25


def sluice(command, *args):
    done = subprocess.run([command, 'goal', *map(str, args)], capture_output=True, text=True, check=True)
    return done.stdout


def cell(o, folder, params, pattern, length):
    """One start of the processes: predicted and median of its runs, in us."""
    schedule = folder / f'{pattern}-{length}.goal'
    if not schedule.exists():
        sluice(o.sluice, 'gen', pattern, '-n', o.n, '-s', length, *PATTERNS[pattern], '-o', schedule)
    # the first runs of a process are slower
    times = max(50, min(5000, (1 << 30) // length))
    told = json.loads(sluice(o.sluice, 'run', schedule, '--times', times, '--params', params, '--json'))
    told = told['all']
    return told['predicted_us'], told['median_us']


def main():
    p = argparse.ArgumentParser(description=__doc__.split('\n', maxsplit=1)[0])
    p.add_argument('sluice')
    p.add_argument('-n', type=int, default=2, help='ranks (2)')
    p.add_argument('--rounds', type=int, default=7, help='rounds (7)')
    o = p.parse_args()
    measured, ratios = {}, {}
    with tempfile.TemporaryDirectory() as name:
        folder = pathlib.Path(name)
        for _ in range(o.rounds):
            sluice(o.sluice, 'sim', '--measure', '--save', folder / 'node')
            for at in ((pattern, length) for pattern in PATTERNS for length in LENGTHS):
                predicted, us = cell(o, folder, folder / 'node', *at)
                measured.setdefault(at, []).append(us)
                ratios.setdefault(at, []).append(predicted / us)
    good = 0
    print(f'{o.n} ranks, {o.rounds} rounds: median of a run, predicted / measured (10 to 90 % of rounds)')
    for pattern in PATTERNS:
        print(pattern)
        for length in LENGTHS:
            all_ratios = sorted(ratios[pattern, length])
            ratio = statistics.median(all_ratios)
            good += abs(ratio - 1) <= MOST_OFF
            low, high = all_ratios[o.rounds // 10], all_ratios[-1 - o.rounds // 10]
            us = statistics.median(measured[pattern, length])
            print(f'  {length:9} B  {us:10.2f} us  {ratio:5.2f}  ({low:.2f} to {high:.2f})')
    print(f'{good} of {len(measured)} within {MOST_OFF:.0%}')


if __name__ == '__main__':
    main()
