# SPDX-License-Identifier: BSD-3-Clause
"""Runs flight_delays.py plain and under Sluice in turn, and compares results and times (see demo.sh)."""
import argparse
import filecmp
import json
import os
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path

HERE = Path(__file__).resolve().parent
PROGRAM = HERE / "flight_delays.py"
LIMIT_S = 300


def arguments():
    p = argparse.ArgumentParser(prog="./dev demo", description=__doc__.splitlines()[0])
    p.add_argument("--ranks", type=int, default=2)
    p.add_argument("--times", type=int, default=3, metavar="N", help="runs of each (default: 3)")
    p.add_argument("--sluice", type=Path, default=HERE.parent / "build/prefix/bin/sluice")
    p.add_argument("--with", dest="with_", metavar="CMD",
                   help="to put before the program instead of sluice run")
    return p.parse_args()


def run(before, ranks, out, times):
    """Runs one launch. Returns its output, its seconds by phase, and from start to end."""
    cmd = ["mpiexec", "-n", str(ranks), *before, sys.executable, str(PROGRAM),
           "--out", str(out), "--times", str(times)]
    t0 = time.monotonic()
    done = subprocess.run(cmd, capture_output=True, text=True, timeout=LIMIT_S, check=False,
                          env={**os.environ, "OMP_NUM_THREADS": "1", "OPENBLAS_NUM_THREADS": "1"})
    if done.returncode:
        sys.exit(f"demo: {' '.join(cmd)}: exit {done.returncode}\n{done.stderr}")
    return done.stdout, json.loads(times.read_text()), time.monotonic() - t0


def figures(times, whole):
    """Returns the figures of one launch: {what: value}; ms of the median iteration, then whole seconds."""
    out = {what: statistics.median(values) * 1e3 for what, values in times["seconds"].items()}
    out["all iterations"] = sum(map(sum, times["seconds"].values()))
    out["start to end"] = whole
    return out


def table(sides):
    """sides: {"plain": [figures of each run], "sluice": ...} -> lines."""
    yield f"  {'':<20}{'plain':>10}{'Sluice':>13}{'ratio':>10}   spread"
    for what in sides["plain"][0]:
        a, b = ([f[what] for f in sides[s]] for s in ("plain", "sluice"))
        ratios = [x / y for x, y in zip(a, b)]
        unit = "s " if what in ("all iterations", "start to end") else "ms"
        mid = [statistics.median(values) for values in (a, b)]
        yield (f"  {what:<20}{mid[0]:>7.2f} {unit}{mid[1]:>10.2f} {unit}"
               f"{statistics.median(ratios):>10.2f}   {min(ratios):.2f}..{max(ratios):.2f}")


def main():
    opt = arguments()
    ours = opt.with_.split() if opt.with_ else [str(opt.sluice), "run"]
    before = {"plain": [], "sluice": ours}
    sides, printed, states = {"plain": [], "sluice": []}, {}, {}
    with tempfile.TemporaryDirectory(prefix="sluice-demo-") as place:
        for n in range(opt.times):
            for side in (("plain", "sluice") if n % 2 == 0 else ("sluice", "plain")):
                print(f"demo: run {n + 1} of {opt.times}, {side}", file=sys.stderr, flush=True)
                out = Path(place) / f"{side}-{n}.npy"
                text, times, whole = run(before[side], opt.ranks, out, Path(place) / "times.json")
                sides[side].append(figures(times, whole))
                about = times
                printed.setdefault(side, text)
                states.setdefault(side, []).append(out)
                if n == 0 and side == "plain":
                    print(text, flush=True)
        first, *others = states["plain"] + states["sluice"]
        differ = [p.name for p in others if not filecmp.cmp(first, p, shallow=False)]
        size = first.stat().st_size
    moved = [about[k] / 1e6 for k in ("bcast_bytes", "gather_bytes")]
    print(f"One iteration of {about['iterations']}: broadcast {moved[0]:.1f} MB, compute, gather "
          f"{moved[1]:.1f} MB from each rank.\nA phase takes as long as its slowest rank. Medians "
          f"of {opt.times} runs of each, in turn; spread: ratios of the pairs.\n")
    print("\n".join(table(sides)))
    if differ or printed["plain"] != printed["sluice"]:
        print(f"\nThe results DIFFER: {', '.join(differ) or 'in what was printed'}")
        return 1
    print(f"\nThe results of all {2 * opt.times} runs are the same to the bit "
          f"({size / 1e6:.1f} MB each).")
    return 0


if __name__ == "__main__":
    sys.exit(main())
