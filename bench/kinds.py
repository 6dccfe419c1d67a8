#!/usr/bin/env python3
# SPDX-License-Identifier: BSD-3-Clause
"""Measures every blocking collective, plain and under Sluice in turn, as plain time / Sluice's time.

bench/kinds.py --library build/dev/src/mpi/libsluice.so --mpi mpich,openmpi --sizes 64K,1M [--force]
[NAME=VALUE ...]

NAME=VALUE is set on Sluice's side only; --force takes all kinds from 1 byte on. A launch measures
one kind; a cell is the median over the rounds of the launches' ratios, for buffers that are used
again / new / new with an untouched result; of medians, or with --least of the least times, which
other work on the machine does not reach.

bench/kinds.py --library ... --total 1000 --ranks 2,4 --sizes 8,64K,1M --state FILE [--minutes 10]

The total time of so many calls on a new communicator, connection, adoption and trials included: plain,
Sluice by default, always the host MPI (SLUICE=off) and always Sluice, in turn. FILE keeps the launches:
a later run goes on where this one ended. Named are cells in which the default is slower than 0.99 of
plain, or by more than 3 % than the better of host MPI and Sluice, both by the median of the rounds and
by their least times. """
import argparse
import json
import statistics
import sys
import time
from collections import defaultdict
from pathlib import Path

import hosts as H

KINDS = ["bcast", "gather", "scatter", "allgather", "alltoall", "reduce", "allreduce",
         "reduce_scatter_block", "scan",
         "exscan"]
FAMILIES = ["SCATTER", "ALLGATHER", "ALLTOALL", "REDUCE", "ALLREDUCE", "SCAN", "REDUCE_SCATTER", "VECTOR"]
SIDES = ["plain", "default", "host", "ours"]


def parse():
    p = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    p.add_argument("--mpi", default="mpich,openmpi")
    p.add_argument("--ranks", default="2")
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
    p.add_argument("--total", type=int, default=0)
    p.add_argument("--state", type=Path)
    p.add_argument("--sides", type=lambda text: text.split(","), default=SIDES,
                   help="of --total: some of plain,default,host,ours, which is the default")
    p.add_argument("--minutes", type=float, default=1e9)
    p.add_argument("set", nargs="*")
    o = p.parse_args()
    if o.total and not o.state:
        p.error("--total needs --state")
    return o


def sluice_env(o, side="sluice"):
    if side == "plain":
        return {}
    env = {"LD_PRELOAD": o.library}
    if side == "host":
        env["SLUICE"] = "off"
    if side == "ours":
        env.update(SLUICE_DECIDE="table", SLUICE_SUMS="any", SLUICE_REGION_ADOPT_AFTER="3")
    if o.force or side == "ours":
        env["SLUICE_COLL_THRESHOLD"] = "1"
        env["SLUICE_COLL"] = ",".join(f"{f.lower()}:on" for f in FAMILIES)
    env.update(s.split("=", 1) for s in o.set)
    return env


# ---- total times ------------------------------------------------------------------------------------

def total_launches(o, found):
    """The launches of a matrix, round by round: a run that ends early has all cells, with fewer rounds."""
    for i in range(o.rounds):
        for ranks in map(int, o.ranks.split(",")):
            for host in found:
                for what in o.what.split(","):
                    for side in o.sides if i % 2 == 0 else o.sides[::-1]:
                        yield host, ranks, what, side, i


def total_launch(o, host, ranks, what, side):
    args = [f"what={what}", f"sizes={o.sizes}", f"total={o.total}", f"pin={int(ranks <= 2)}",
            f"nice={o.nice}"]
    before = ["env", *(f"{k}={v}" for k, v in sluice_env(o, side).items())]
    lines, _ = H.launch(host.command(ranks, before, args, "kinds_bench"), host.env(), 140)
    return {str(r["bytes"]): r["total_us"] / r["calls"] for r in lines}


def measure_totals(o, found):
    rows = [json.loads(line) for line in o.state.read_text().splitlines()] if o.state.exists() else []
    done = {tuple(r["key"]) for r in rows}
    ends = time.monotonic() + o.minutes * 60
    with o.state.open("a", encoding="ascii") as f:
        for host, ranks, what, side, i in total_launches(o, found):
            key = (host.name, ranks, what, side, i)
            if key in done or time.monotonic() > ends:
                continue
            try:
                rows.append({"key": key, "us": total_launch(o, host, ranks, what, side)})
            except H.Failed as e:
                rows.append({"key": key, "us": {}, "failed": str(e)})
                print(f"kinds.py: {key}: {e}", file=sys.stderr)
            print(json.dumps(rows[-1]), file=f, flush=True)
    return rows


def ratios(of, by):
    """The ratios of the rounds that both sides have, and of their least times."""
    both = sorted(of.keys() & by.keys())
    each = sorted(of[i] / by[i] for i in both)
    return each, min(of[i] for i in both) / min(by[i] for i in both)


def print_totals(rows):
    cells = defaultdict(lambda: defaultdict(dict))
    for r in rows:
        name, ranks, what, side, i = r["key"]
        for size, us in r["us"].items():
            cells[(name, ranks, what, int(size))][side][i] = us
    print("| MPI, ranks, collective, size | plain, us a call | plain / default (spread) | of least times "
          "| better / default (of least times) | |\n|---|---|---|---|---|---|")
    for key, sides in sorted(cells.items()):
        if not {"plain", "default"} <= sides.keys() or not set.intersection(*map(set, sides.values())):
            continue
        each, least = ratios(sides["plain"], sides["default"])
        best = min(sides.keys() - {"default"}, key=lambda s: statistics.median(sides[s].values()))
        better = ratios(sides[best], sides["default"])
        slow = max(statistics.median(each), least) < 0.99
        far = max(statistics.median(better[0]), better[1]) < 0.97
        plain_us = statistics.median(sides["plain"].values())
        named = "; ".join(n for n, is_so in (("slower than plain", slow), ("off the better", far)) if is_so)
        print(f"| {key[0]}, {key[1]}, {key[2]}, {text_of(key[3])} | {plain_us:.1f} "
              f"| {statistics.median(each):.2f} ({each[0]:.2f} to {each[-1]:.2f}) | {least:.2f} "
              f"| {statistics.median(better[0]):.2f} ({better[1]:.2f}) | {named} |")


# ---- single calls -----------------------------------------------------------------------------------

def measure(o, host, what, got):
    """Measures one collective: plain and Sluice in turn, in both orders."""
    args = [f"what={what}", f"sizes={o.sizes}", f"memory={o.memory}", f"ms={o.ms}", f"calls={o.calls}",
            f"pin={int(int(o.ranks) <= 2)}", f"nice={o.nice}"]
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
    if o.total:
        print_totals(measure_totals(o, found))
        return not found
    for host in found:
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
