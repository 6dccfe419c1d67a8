#!/usr/bin/env python3
# SPDX-License-Identifier: BSD-3-Clause
"""Measures the first messages of a program: loops of 1 to 1,000 from the first one on, a process each,
plain and under Sluice in turn, as plain time / Sluice's time (median of the rounds' ratios, quartiles).

bench/first_messages.py --library build/dev/src/mpi/libsluice.so [--library OTHER] [--mpi mpich,openmpi]
    [--sizes 16K,64K,1M] [--kinds pingpong,oneway] [--rounds 20]

The last column is the time from message 100 to 1,000.
"""
import argparse
import statistics
from collections import defaultdict

import hosts as H


def times(host, library, size, kind):
    before = ["env", f"LD_PRELOAD={library}"] if library else []
    args = [f"bytes={size}", f"pingpong={int(kind == 'pingpong')}"]
    lines, _ = H.launch(host.command(2, before, args, "first_messages"), host.env(), 60)
    at = {r["messages"]: r["us"] for r in lines}
    return {**at, "late": at[1000] - at[100]}


def measure(o, host, size, kind, got):
    for i in range(o.rounds):
        sides = ["", *o.library]
        us = {side: times(host, side, size, kind) for side in (sides if i % 2 == 0 else sides[::-1])}
        for side in o.library:
            for n, plain in us[""].items():
                got[(host.name, kind, size, side, n)].append((plain, us[side][n]))


def cell(pairs):
    ratios = [a / b for a, b in pairs]
    if len(ratios) < 2:
        return f"{ratios[0]:.2f}"
    low, mid, high = statistics.quantiles(ratios, n=4)
    return f"{mid:.2f} ({low:.2f}-{high:.2f})"


def main():
    p = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    p.add_argument("--library", action="append", required=True)
    p.add_argument("--mpi", default="mpich,openmpi")
    p.add_argument("--sizes", default="16K,64K,1M")
    p.add_argument("--kinds", default="pingpong,oneway")
    p.add_argument("--rounds", type=int, default=20)
    o = p.parse_args()
    got = defaultdict(list)
    for host in H.find_hosts(o.mpi.split(","))[0]:
        host.compile("first_messages")
        for kind in o.kinds.split(","):
            for size in o.sizes.split(","):
                measure(o, host, size, kind, got)
                for number, side in enumerate(o.library):
                    cells = {n: v for (*key, n), v in got.items() if key == [host.name, kind, size, side]}
                    plain = statistics.median(a for a, _ in cells[1])
                    if number == 0:
                        print(f"{host.name}, {kind}, {size}: first {plain:.0f} us; "
                              f"after {', '.join(map(str, cells))}")
                    print(f"  {number + 1}: {', '.join(cell(v) for v in cells.values())}", flush=True)


if __name__ == "__main__":
    main()
