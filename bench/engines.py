# SPDX-License-Identifier: BSD-3-Clause
"""bench/run dsa, kmod, cuda: the figures of a copy engine, for people who have the hardware.

One command, about five minutes (cuda: ten), a JSON file to send. dsa and kmod:

  check     `sluice check`: what the engine can do, each copy compared byte by byte
  tables    mprotect and mremap before the engine is opened and while it is
  copy      the engine beside this CPU, by length, one copy at a time and as many as it holds
  ranks     many processes on the engine's queues
  overlap   a broadcast or gather and a computation that takes as long, by ranks under MPI: blocking, with
            the worker process, with worker threads, with the engine

cuda: copies between host memory and the GPU by kind of memory, what a registration costs, device memory
of another process, whether GPUs read pageable memory; and collectives of 2 and more ranks on memory of the
GPU that they share: staged through page-locked host memory, plain and with Sluice, and executed by Sluice
(SLUICE_COLL=device:on).

--model runs the same without the hardware, over the models of the tests. Times of a model say nothing.
"""
import argparse
import datetime
import json
import os
import subprocess
import sys
from pathlib import Path

import hosts as H
from early import Early
from early_report import Rounds, longest, mid, us
from early_sections import FORMS, SIDES, Job

ENGINES = ("dsa", "kmod", "cuda")
MODEL = "THIS IS A MODEL: its times say nothing about a device"
LIMIT_S = 280


class Absent(Exception):
    """The device cannot be used here; the message is one line."""


def arguments(argv):
    p = argparse.ArgumentParser(prog="bench/run", description=__doc__,
                                formatter_class=argparse.RawDescriptionHelpFormatter)
    p.add_argument("engine", choices=ENGINES)
    p.add_argument("--quick", action="store_true", help="half a minute, few lengths, no MPI")
    p.add_argument("--model", action="store_true", help="without the hardware, over the model of the tests")
    p.add_argument("--ranks", default="1,2,4,8,16,32", help="numbers of processes (default: %(default)s)")
    p.add_argument("--mpi", default="mpich,openmpi", help="host MPIs (default: %(default)s)")
    p.add_argument("--sluice", type=Path, default=H.ROOT / "build/prefix/bin/sluice")
    p.add_argument("--json", type=Path, help="where to write the figures (default: build/bench/)")
    return p.parse_args(argv)


# ---- where it runs ------------------------------------------------------------------------------

def model_env(engine):
    """Returns the environment in which programs see the model."""
    sys.path.insert(0, str(H.ROOT / "test"))
    if engine == "kmod":
        raise Absent("kmod has no model for programs: load softdma.ko and sluice.ko in a guest (kernel/)")
    from support import dsa, fake_cuda
    if engine == "cuda":
        return {"LD_LIBRARY_PATH": str(fake_cuda.library().parent)}
    env = dsa.dsa_env()
    return {"LD_PRELOAD": env["LD_PRELOAD"], "DSA_MODEL": "", "DSA_MODEL_FOLLOWS": "1",
            "SLUICE_TEST": f"dsa_root={env['dsa_root']}"}


def is_model(opt):
    return opt.model or (opt.engine == "kmod" and Path("/sys/module/softdma").exists())


def lines_of(cmd, env, limit_s=LIMIT_S):
    """Runs one program. Returns its JSON lines; raises Absent with its last line."""
    done = subprocess.run([str(x) for x in cmd], env={**os.environ, **env}, capture_output=True, text=True,
                          timeout=limit_s)
    if done.returncode:
        raise Absent((done.stderr or done.stdout).strip().splitlines()[-1])
    return [json.loads(x) for x in done.stdout.splitlines()]


# ---- dsa and kmod -----------------------------------------------------------------------------------

def check(opt, env):
    """Returns the result of `sluice check`; raises Absent where the engine does not work."""
    done = subprocess.run([str(opt.sluice), "check", "--json", opt.engine], env={**os.environ, **env},
                          capture_output=True, text=True, timeout=LIMIT_S)
    try:
        found = json.loads(done.stdout)
    except ValueError:
        raise Absent((done.stderr.strip() or "sluice check said nothing").splitlines()[-1]) from None
    failed = [s for s in found["steps"] if s["was_run"] and not s["ok"]]
    if failed:
        raise Absent(f"{failed[0]['name']}: {failed[0]['text']}")
    return found


def engine_bench(opt, env):
    """Returns the records of engine_bench, one launch for each kind: none disturbs another."""
    program = opt.sluice.parent.parent / "libexec/sluice/bench/engine_bench"
    sizes = "64K,1M,4M" if opt.quick else "64K,256K,1M,4M,16M,64M"
    ms = 20 if opt.quick else 200
    most = "4M" if opt.quick else "1M,16M"
    out = lines_of([program, opt.engine, "what=tables", f"sizes={sizes}"], env)
    out += lines_of([program, opt.engine, "what=copy", f"sizes={sizes}", f"ms={ms}"], env)
    return out + lines_of([program, opt.engine, "what=ranks", f"sizes={most}", f"processes={opt.ranks}",
                           f"ms={ms}"], env)


def overlap(opt, env):
    """Returns the records of broadcasts and gathers under the host MPIs."""
    hosts, _ = H.find_hosts(opt.mpi.split(","))
    if not hosts:
        print("bench: no host MPI in build/venv-* (./dev setup): no figures of overlap", file=sys.stderr)
        return []
    records = []
    SIDES["engine"] = (True, {"SLUICE_EARLY": "auto", "SLUICE_ENGINE": opt.engine,
                              "SLUICE_WORKER_KIND": "thread", **env})
    how = argparse.Namespace(options=[], nice=0, busy=False, before=None, sluice=opt.sluice, limit=LIMIT_S)
    early = Early(how, hosts, lambda x, where, facts: records.append(
                      {**x, **where, "launch": facts, "state": ""}),
                  lambda where, why: records.append({**where, "failed": str(why)}), lambda *_: None)
    early.compile()
    cores = os.cpu_count() or 1
    ranks = [n for n in map(int, opt.ranks.split(",")) if 2 <= n <= max(2, cores)]
    jobs = [Job("overlap_bench", form, ["blocking", "auto", "threads", "engine"],
                [f"what=overlap-{kind}", "who=all", "ms=60"], "1M,4M,16M", calibrated=kind, ranks=n)
            for n in ranks for form in FORMS for kind in ("bcast", "gather") if form == "none" or n == 2]
    for number in range(3):
        early.one_round("overlap", number, jobs)
    return records


# ---- tables for people ------------------------------------------------------------------------------

def crossover(records, how, to):
    """Returns the shortest length from which on the engine is not slower than this CPU; None: never."""
    best = None
    for r in sorted((r for r in records if r["what"] == "copy" and (r["how"], r["to"]) == (how, to)),
                    key=lambda r: -r["bytes"]):
        if r["engine_us"] > r["cpu_us"]:
            break
        best = r["bytes"]
    return best


def print_engine(found, records):
    print(f"{found['engine']}: {found['channels']} channels of {found['depth']} copies of at most "
          f"{found['max_copy_bytes']} B, Linux {found['kernel']}")
    print("\npage tables, us closed -> open    mprotect          mremap")
    for r in records:
        if r["what"] == "tables":
            us4 = [r[f"{call}_{when}_ns"] / 1e3 for call in ("mprotect", "mremap")
                   for when in ("closed", "open")]
            print(f"{r['bytes']:>12}  {us4[0]:>18.1f} -> {us4[1]:<8.1f}{us4[2]:>8.1f} -> {us4[3]:.1f}")
    print("\ncopy, then read    how    to        engine us (P0..P90)            CPU us    CPU / engine")
    for r in records:
        if r["what"] == "copy":
            spread = f"({r['engine_p0_us']:.1f}..{r['engine_p90_us']:.1f})"
            print(f"{r['bytes']:>12}       {r['how']:<6} {r['to']:<7} {r['engine_us']:>9.1f} {spread:<20}"
                  f"{r['cpu_us']:>8.1f} {r['cpu_us'] / r['engine_us']:>10.2f}")
    for how in ("alone", "full"):
        for to in ("cache", "memory"):
            at = crossover(records, how, to)
            text = f"from {at} B on" if at else "the CPU is faster at every length"
            print(f"crossover, {how}, to {to}: {text}")
    print("\nprocesses       bytes    GB/s of all    of the slowest")
    for r in records:
        if r["what"] == "ranks":
            print(f"{r['processes']:>9} {r['bytes']:>11} {r['all_gb_s']:>14.2f} {r['least_gb_s']:>17.2f}")


def print_overlap(records):
    rounds = Rounds([r for r in records if "failed" not in r])
    if rounds.cells:
        print("\noverlap: both / the longer of the collective and the computation; us of both")
    for key in sorted(rounds.cells):
        form, host, what, _, nbytes, ranks, _ = key
        cells = []
        for side in ("blocking", "auto", "threads", "engine"):
            share = mid(rounds.values(key, side, longest, "blocking"))
            both = mid(rounds.values(key, side, lambda r, _: us(r, "both")))
            cells.append(f"{side} {share:.2f} {both:.0f}" if share and both else f"{side} -")
        print(f"  {host:<8} {ranks:>3} ranks  {form:<5} {what:<15} {nbytes:>9}   {'   '.join(cells)}")
    for r in records:
        if "failed" in r:
            print(f"  failed: {r['host']} {r['side']}: {r['failed']}")


GPU_SIDES = {"staged": (False, "staged", {}), "staged, Sluice": (True, "staged", {}),
             "direct": (True, "direct", {"SLUICE_COLL": "device:on"})}


def collectives(opt, env):
    """Returns the records of collectives on memory of the GPU, by host MPI, ranks and side."""
    records = []
    cores = os.cpu_count() or 1
    sizes = "64K,1M" if opt.quick else "64K,256K,1M,4M,16M"
    for host in H.find_hosts(opt.mpi.split(","))[0]:
        host.compile("gpu_bench")
        for ranks in (n for n in map(int, opt.ranks.split(",")) if 2 <= n <= max(2, cores)):
            for side, (is_ours, how, own) in GPU_SIDES.items():
                before = ["env", *(f"{k}={v}" for k, v in {**env, **own}.items()),
                          *([str(opt.sluice), "run"] if is_ours else [])]
                where = {"host": host.name, "side": side}
                try:
                    lines, _ = H.launch(host.command(ranks, before, [f"how={how}", f"sizes={sizes}"],
                                                     "gpu_bench"), host.env(), LIMIT_S)
                    records += [{**where, **x} for x in lines]
                except H.Failed as e:
                    records.append({**where, "ranks": ranks, "failed": str(e)})
    return records


def print_collectives(records):
    cells = {}
    for r in records:
        if "failed" in r:
            print(f"  failed: {r['host']}, {r['ranks']} ranks, {r['side']}: {r['failed']}")
        else:
            cells.setdefault((r["host"], r["ranks"], r["what"], r["bytes"]), {})[r["side"]] = r
    if cells:
        print("\ncollectives, us until the last GPU has the data (P0..P90)"
              "           staged     staged, Sluice             direct   staged / direct")
    for (host, ranks, what, nbytes), by in cells.items():
        texts = [f"{by[s]['us']:.0f} ({by[s]['p0_us']:.0f}..{by[s]['p90_us']:.0f})" if s in by else "-"
                 for s in GPU_SIDES]
        gain = f"{by['staged']['us'] / by['direct']['us']:.2f}" if {"staged", "direct"} <= by.keys() else "-"
        print(f"  {host:<8} {ranks:>3} ranks  {what:<10} {nbytes:>9}  " +
              "  ".join(f"{t:>22}" for t in texts) + f"  {gain:>6}")


def print_cuda(records):
    for r in records:
        print("  " + "  ".join(f"{k} {v:.2f}" if isinstance(v, float) else f"{k} {v}" for k, v in r.items()))


# ---- the whole ----------------------------------------------------------------------------------------

def about(opt):
    lines = Path("/proc/cpuinfo").read_text(encoding="utf-8").splitlines()
    cpu = [x for x in lines if x.startswith("model name")]
    return {"when": datetime.datetime.now(datetime.timezone.utc).isoformat(timespec="seconds"),
            "cpu": cpu[0].split(":", 1)[1].strip() if cpu else "", "cpus": os.cpu_count(),
            "kernel": os.uname().release, "load_at_start": os.getloadavg()[0], "ranks": opt.ranks,
            "quick": opt.quick}


def measure(opt):
    env = model_env(opt.engine) if opt.model else {}
    out = {"engine": opt.engine, "is_model": is_model(opt), "machine": about(opt)}
    if out["is_model"]:
        out["note"] = MODEL
        print(MODEL)
    if not opt.sluice.exists():
        raise Absent(f"no {opt.sluice}; run ./dev build")
    if opt.engine == "cuda":
        program = H.BUILD / "cuda_bench"
        H.compile_c([os.environ.get("CC", "cc")], [H.ROOT / "bench" / n for n in ("cuda_bench.c", "bench.c")],
                    program)
        out["records"] = lines_of([program, *(["quick"] if opt.quick else []), f"processes={opt.ranks}"], env)
        print_cuda(out["records"])
        out["collectives"] = collectives(opt, env)
        print_collectives(out["collectives"])
        return out
    out["check"] = check(opt, env)
    out["records"] = engine_bench(opt, env)
    print_engine(out["check"], out["records"])
    if not opt.quick:
        out["overlap"] = overlap(opt, env)
        print_overlap(out["overlap"])
    return out


def main(argv):
    opt = arguments(argv)
    try:
        out = measure(opt)
    except (Absent, H.Failed, subprocess.TimeoutExpired) as e:
        print(f"bench: {opt.engine}: {str(e).splitlines()[0]}", file=sys.stderr)
        return 1
    when = out["machine"]["when"].replace(":", "").replace("+0000", "Z")
    path = opt.json or H.BUILD / f"{opt.engine}-{when}.json"
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(json.dumps(out, indent=1) + "\n", encoding="utf-8")
    print(f"\nwritten: {path}{'  (' + MODEL + ')' if out['is_model'] else ''}")
    return 1 if any("failed" in r for r in out.get("overlap", []) + out.get("collectives", [])) else 0
