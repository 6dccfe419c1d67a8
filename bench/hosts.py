# SPDX-License-Identifier: BSD-3-Clause
"""The host MPIs, and one launch of one of them with or without Sluice."""
import json
import os
import signal
import subprocess
import time
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
BUILD = ROOT / "build" / "bench"
NAMES = {"mpich": "MPICH", "openmpi": "Open MPI", "impi": "Intel MPI"}


class Failed(Exception):
    """A launch that did not end well; the text says why."""


class Host:
    """One MPI in a virtual environment."""

    def __init__(self, name, venv):
        self.name, self.venv = name, Path(venv)
        self.title = NAMES.get(name, name)
        self.version = ""

    def program(self, source="collective_bench"):
        return BUILD / f"{source}-{self.name}"

    def env(self):
        """The environment of a launch: the same on both sides."""
        env = {k: v for k, v in os.environ.items() if not k.startswith("SLUICE")}
        env["PATH"] = f"{self.venv / 'bin'}:{env.get('PATH', '')}"
        env["LD_LIBRARY_PATH"] = str(self.venv / "lib")
        if self.name == "impi":
            env["I_MPI_ROOT"] = str(self.venv)
        if self.name == "openmpi":
            env.update(OMPI_ALLOW_RUN_AS_ROOT="1", OMPI_ALLOW_RUN_AS_ROOT_CONFIRM="1",
                       PRTE_MCA_rmaps_default_mapping_policy=":oversubscribe")
        return env

    def command(self, ranks, before, args, source="collective_bench"):
        """mpiexec ... [what stands before the program] program arguments"""
        return [str(self.venv / "bin/mpiexec"), "-n", str(ranks), *before,
                str(self.program(source)), *args]

    def compile(self, source="collective_bench"):
        sources = [ROOT / "bench" / n for n in (f"{source}.c", "job.c", "bench.c")]
        headers = [ROOT / "bench" / n for n in ("bench.h", "job.h")]
        stamp = max(p.stat().st_mtime for p in [*sources, *headers])
        program = self.program(source)
        if program.exists() and program.stat().st_mtime > stamp:
            return
        compile_c([str(self.venv / "bin/mpicc")], sources, program, self.env())


def compile_c(compiler, sources, program, env=None):
    program.parent.mkdir(parents=True, exist_ok=True)
    cmd = [*compiler, "-O3", "-g", "-std=gnu11", "-Wall", "-Wextra", "-D_GNU_SOURCE", "-rdynamic",
           "-o", str(program), *map(str, sources)]
    done = subprocess.run(cmd, env=env, capture_output=True, text=True)
    if done.returncode:
        raise Failed(f"{' '.join(cmd)}\n{done.stdout}{done.stderr}")


def find_hosts(wanted):
    """Hosts that are there, in the order wanted; and the names of those that are not."""
    places = {n: ROOT / "build" / f"venv-{n}" for n in NAMES}
    for item in filter(None, os.environ.get("SLUICE_BENCH_VENVS", "").split(",")):
        name, _, place = item.partition("=")
        places[name] = Path(place)
    found = [Host(n, places[n]) for n in wanted if (places.get(n, Path()) / "bin/mpiexec").exists()]
    return found, [n for n in wanted if n not in [h.name for h in found]]


def steal_ticks():
    """Ticks in which the hypervisor ran something else, and all ticks."""
    with open("/proc/stat", encoding="ascii") as f:
        ticks = [int(x) for x in f.readline().split()[1:9]]
    return ticks[7], sum(ticks)


def set_nice(value):
    """For a new session. The kernel shares time out among sessions first (autogroup), then among
    the processes of one, so both are told."""
    os.nice(value)
    try:
        with open("/proc/self/autogroup", "w", encoding="ascii") as f:
            f.write(str(value))
    except OSError:
        pass


def launch(cmd, env, limit_s=300, nice=0):
    """Run one command. Returns (JSON lines, facts of the launch); raises Failed."""
    steal, total, t0 = *steal_ticks(), time.monotonic()
    p = subprocess.Popen(cmd, env=env, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE,
                         stderr=subprocess.PIPE, text=True, start_new_session=True,
                         preexec_fn=(lambda: set_nice(nice)) if nice else None)
    try:
        out, err = p.communicate(timeout=limit_s)
    except BaseException as e:
        os.killpg(p.pid, signal.SIGKILL)
        out, err = p.communicate()
        if isinstance(e, subprocess.TimeoutExpired):
            raise Failed(f"no end after {limit_s} s: {' '.join(cmd)}\n{err[-2000:]}") from e
        raise
    wall = time.monotonic() - t0
    steal1, total1 = steal_ticks()
    if p.returncode:
        raise Failed(f"exit {p.returncode}: {' '.join(cmd)}\n{err[-2000:]}")
    lines = [json.loads(x) for x in out.splitlines() if x.startswith("{")]
    facts = {"wall_s": round(wall, 4), "steal": round((steal1 - steal) / max(1, total1 - total), 4),
             "load": round(os.getloadavg()[0], 2)}
    if err.strip():
        facts["stderr"] = err.strip()[-500:]
    return lines, facts
