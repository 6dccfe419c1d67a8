#!/usr/bin/env python3
# SPDX-License-Identifier: BSD-3-Clause
"""Collectives over several simulated hosts (namespaces and veth on this machine), plain and with
SLUICE_HIER=on in turn.

usage: bench/hier.py [--mpi mpich,openmpi] [--ranks 2,2] [--kinds bcast,allreduce,reduce,allgather]
                     [--sizes 64K,1M,16M] [--rounds 5] [--seconds 0.5] [--rate 10gbit] [--best]
                     [--set NAME=VALUE ...]

--rate limits each host's network (tc tbf). One line a size: medians over the rounds of the slowest
rank's median time in a call (with --best: of its least), plain / Sluice, and the least and the
largest ratio of one round. """
import argparse
import json
import os
import pathlib
import statistics
import sys
import tempfile

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent.parent / 'test'))
from support import hosts, mpi as mpis # noqa: E402

PROGRAM = pathlib.Path(__file__).resolve().parent / 'hier_bench.c'
UNITS = {'K': 1 << 10, 'M': 1 << 20}


def options():
    p = argparse.ArgumentParser(usage=__doc__)
    p.add_argument('--mpi', default='mpich,openmpi')
    p.add_argument('--ranks', default='2,2')
    p.add_argument('--kinds', default='bcast,allreduce,reduce,allgather')
    p.add_argument('--sizes', default='64K,1M,16M')
    p.add_argument('--rounds', type=int, default=5)
    p.add_argument('--seconds', default='0.5')
    p.add_argument('--rate')
    p.add_argument('--best', action='store_true')
    p.add_argument('--set', action='append', default=[])
    return p.parse_args()


def launch(some, mpi, ranks, kind, o, with_sluice):
    """Returns {bytes: microseconds} of one job."""
    how = some.launcher(mpi, ranks)
    ours = {'SLUICE_HIER': 'on', 'SLUICE_COLL_THRESHOLD': '64K', f'coll:{kind}': 'on',
            **dict(pair.split('=', 1) for pair in o.set)}
    sizes = [str(int(s[:-1]) * UNITS[s[-1]]) for s in o.sizes.split(',')]
    done = mpi.launch(sum(ranks), mpi.build(PROGRAM), kind, o.seconds, *sizes, sluice=with_sluice,
                      outer=how['outer'],
                      launcher=how['launcher'], env={**how['env'], **(ours if with_sluice else {})},
                      timeout=300)
    if done.status:
        sys.exit(done.explain())
    lines = [json.loads(line) for line in done.out.splitlines() if line.startswith('{')]
    return {line['bytes']: line['best_us' if o.best else 'us'] for line in lines}


def compare(some, mpi, ranks, kind, o):
    plain, ours = [], []
    for _ in range(o.rounds):
        plain.append(launch(some, mpi, ranks, kind, o, False))
        ours.append(launch(some, mpi, ranks, kind, o, True))
    for size in plain[0]:
        ratios = sorted(p[size] / s[size] for p, s in zip(plain, ours))
        print(f'{mpi.name:8} {"+".join(map(str, ranks)):7} {kind:10} {size >> 10:6} KiB'
              f' {statistics.median(p[size] for p in plain):9.0f} us '
              f'{statistics.median(s[size] for s in ours):9.0f} us'
              f'  x {statistics.median(ratios):.2f}  ({ratios[0]:.2f} to {ratios[-1]:.2f})', flush=True)


def main():
    o = options()
    ranks = [int(n) for n in o.ranks.split(',')]
    if hosts.missing():
        sys.exit(hosts.missing())
    print(f'load {os.getloadavg()[0]:.1f}, {os.cpu_count()} CPUs, rate {o.rate or "unlimited"}')
    with hosts.Hosts(len(ranks), pathlib.Path(tempfile.mkdtemp())) as some:
        for i in range(len(ranks) if o.rate else 0):
            some.at(i + 1, 'tc', 'qdisc', 'add', 'dev', 'eth0', 'root', 'tbf', 'rate', o.rate, 'burst', '1mb',
                    'latency', '50ms')
        for name in o.mpi.split(','):
            for kind in o.kinds.split(','):
                compare(some, mpis.ALL[name], ranks, kind, o)


if __name__ == '__main__':
    main()
