#!/usr/bin/env python3
# SPDX-License-Identifier: BSD-3-Clause
"""Measures every blocking collective, plain and under Sluice in turn, as plain time / Sluice's time.

bench/kinds.py --library build/dev/src/mpi/libsluice.so --mpi mpich,openmpi --sizes 64K,1M [--force]
[NAME=VALUE ...]

NAME=VALUE is set on Sluice's side only; --force takes all kinds from 1 byte on. A launch measures
one kind; a cell is the median over the rounds of the launches' ratios, for buffers that are used
again / new / new with an untouched result; of medians, or with --least of the least times, which
other work on the machine does not reach. """
import argparse
import json
import statistics
import sys
from collections import defaultdict

import hosts as H

KINDS = ["bcast", "gather", "scatter", "allgather", "alltoall", "reduce", "allreduce",
         "reduce_scatter_block", "scan",
         "exscan"]
FAMILIES = ["SCATTER", "ALLGATHER", "ALLTOALL", "REDUCE", "ALLREDUCE", "SCAN", "REDUCE_SCATTER", "VECTOR"]
MEMORIES = ["again", "new", "untouched"]


def parse():
    p = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    p.add_argument("--mpi", default="mpich,openmpi")
    p.add_argument("--ranks", type=int, default=2)
    p.add_argument("--what", default=",".join(KINDS))
    p.add_argument("--sizes", default="128K,1M,4M")
    p.add_argument("--memory", default="again,new,untouched")
    p.add_argument("--rounds", type=int, default=3)
    p.add_argument("--ms", type=int, default=20)
    p.add_argument("--calls", type=int, default=9)
    p.add_argument("--nice", type=int, default=0)
    p.add_argument("--library", required=True)
    p.add_argument("--force", action="store_true")
    p.add_argument("--least", action="store_true")
    p.add_argument("--json")
    p.add_argument("set", nargs="*")
    return p.parse_args()


def sluice_env(o):
    env = {"LD_PRELOAD": o.library}
    if o.force:
        env["SLUICE_COLL_THRESHOLD"] = "1"
        env["SLUICE_COLL"] = ",".join(f"{f.lower()}:on" for f in FAMILIES)
    env.update(s.split("=", 1) for s in o.set)
    return env


def measure(o, host, what, got):
    """Measures one collective: plain and Sluice in turn, in both orders."""
    args = [f"what={what}", f"sizes={o.sizes}", f"memory={o.memory}", f"ms={o.ms}", f"calls={o.calls}",
            f"pin={int(o.ranks <= 2)}", f"nice={o.nice}"]
    for i in range(o.rounds):
        sides = {}
        for side in ("plain", "sluice") if i % 2 == 0 else ("sluice", "plain"):
            before = ["env", *(f"{k}={v}" for k, v in sluice_env(o).items())] if side == "sluice" else []
            lines, _ = H.launch(host.command(o.ranks, before, args, "kinds_bench"), host.env(), 120)
            sides[side] = {(r["bytes"], r["memory"]): (r["p50_us"], r["p0_us"]) for r in lines}
        for key, plain in sides["plain"].items():
            got[(host.name, what, *key)].append((plain, sides["sluice"][key]))


def text_of(n):
    if n >= 1 << 20 and n % (1 << 20) == 0:
        return f"{n >> 20} MB"
    return f"{n >> 10} KB" if n >= 1024 else f"{n} B"


def cell(pairs, least):
    if not pairs:
        return "-"
    if least:
        return f"{min(p[1] for p, _ in pairs) / min(s[1] for _, s in pairs):.2f}"
    return f"{statistics.median(p[0] / s[0] for p, s in pairs):.2f}"


def print_host(o, host, got):
    sizes = sorted({k[2] for k in got if k[0] == host.name})
    print(f"\n{host.title}, {o.ranks} ranks\n\n| | {' | '.join(map(text_of, sizes))} "
          f"|\n|---|{'---|' * len(sizes)}")
    for what in o.what.split(","):
        cells = [" / ".join(cell(got.get((host.name, what, n, m)), o.least) for m in o.memory.split(","))
                 for n in sizes]
        print(f"| {what} | {' | '.join(cells)} |")
    sys.stdout.flush()


def main():
    o = parse()
    found, missing = H.find_hosts(o.mpi.split(","))
    got = defaultdict(list)
    for name in missing:
        print(f"kinds.py: {name} is not there", file=sys.stderr)
    for host in found:
        host.compile("kinds_bench")
        for what in o.what.split(","):
            try:
                measure(o, host, what, got)
            except H.Failed as e:
                print(f"kinds.py: {host.name}, {what}: {e}", file=sys.stderr)
        print_host(o, host, got)
    if o.json:
        with open(o.json, "w", encoding="ascii") as f:
            json.dump([{"key": k, "pairs": v} for k, v in got.items()], f)
    return not found


if __name__ == "__main__":
    sys.exit(main())
