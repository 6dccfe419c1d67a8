# SPDX-License-Identifier: BSD-3-Clause
"""The host MPIs, and one launch of one of them with or without Sluice."""
import os
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
sys.path.append(str(ROOT / "tools/bench"))
from launch import Failed, launch as launch_program  # noqa: E402

BUILD = ROOT / "build" / "bench"
NAMES = {"mpich": "MPICH", "openmpi": "Open MPI", "impi": "Intel MPI",
         "mpich-debian": "Debian's MPICH", "openmpi-debian": "Debian's Open MPI"}


class Host:
    """One MPI in a virtual environment, or Debian's in /usr."""

    def __init__(self, name, venv):
        self.name, self.venv = name, Path(venv)
        self.suffix = "." + name.partition("-")[0] if self.venv == Path("/usr") else ""
        self.title = NAMES.get(name, name)
        self.version = ""

    def program(self, source="collective_bench"):
        return BUILD / f"{source}-{self.name}"

    def tool(self, name):
        return self.venv / "bin" / (name + self.suffix)

    def env(self):
        """Returns the environment of a launch, equal on both sides."""
        env = {k: v for k, v in os.environ.items() if not k.startswith("SLUICE")}
        if not self.suffix:
            env["PATH"] = f"{self.venv / 'bin'}:{env.get('PATH', '')}"
            env["LD_LIBRARY_PATH"] = str(self.venv / "lib")
        if self.name == "impi":
            env["I_MPI_ROOT"] = str(self.venv)
        if self.name.startswith("openmpi"):
            env.update(OMPI_ALLOW_RUN_AS_ROOT="1", OMPI_ALLOW_RUN_AS_ROOT_CONFIRM="1",
                       PRTE_MCA_rmaps_default_mapping_policy=":oversubscribe",
                       OMPI_MCA_rmaps_base_oversubscribe="1")
        return env

    def command(self, ranks, before, args, source="collective_bench"):
        """Returns the words of: mpiexec ... [prefix] program arguments."""
        return [str(self.tool("mpiexec")), "-n", str(ranks), *before,
                str(self.program(source)), *args]

    def compile(self, source="collective_bench"):
        sources = [ROOT / "bench" / n for n in (f"{source}.c", "job.c", "bench.c")]
        headers = [ROOT / "bench" / n for n in ("bench.h", "job.h", "cuda.h")]
        stamp = max(p.stat().st_mtime for p in [*sources, *headers])
        program = self.program(source)
        if program.exists() and program.stat().st_mtime > stamp:
            return
        compile_c([str(self.tool("mpicc"))], sources, program, self.env())


def compile_c(compiler, sources, program, env=None):
    """Another run may launch the program meanwhile, or compile it too: it is replaced whole."""
    program.parent.mkdir(parents=True, exist_ok=True)
    new = program.with_name(f"{program.name}.{os.getpid()}")
    cmd = [*compiler, "-O3", "-g", "-std=gnu11", "-Wall", "-Wextra", "-D_GNU_SOURCE", "-rdynamic",
           "-o", str(new), *map(str, sources)]
    done = subprocess.run(cmd, env=env, capture_output=True, text=True)
    if done.returncode:
        raise Failed(f"{' '.join(cmd)}\n{done.stdout}{done.stderr}")
    new.replace(program)


def find_hosts(wanted):
    """Returns the host MPIs that exist, in the requested order, and the names of the others."""
    places = {n: "/usr" if n.endswith("-debian") else ROOT / "build" / f"venv-{n}" for n in NAMES}
    for item in filter(None, os.environ.get("SLUICE_BENCH_VENVS", "").split(",")):
        name, _, place = item.partition("=")
        places[name] = Path(place)
    hosts = [Host(n, places[n]) for n in wanted if n in places]
    found = [h for h in hosts if h.tool("mpiexec").exists()]
    return found, [n for n in wanted if n not in [h.name for h in found]]


def steal_ticks():
    """Returns the ticks that the hypervisor took, and all ticks."""
    with open("/proc/stat", encoding="ascii") as f:
        ticks = [int(x) for x in f.readline().split()[1:9]]
    return ticks[7], sum(ticks)


def launch(cmd, env, limit_s=300, nice=0):
    """Runs one command. Returns (JSON lines, facts of the launch); raises Failed."""
    steal, total = steal_ticks()
    lines, wall, said = launch_program(cmd, env, limit_s, nice)
    steal1, total1 = steal_ticks()
    facts = {"wall_s": round(wall, 4), "steal": round((steal1 - steal) / max(1, total1 - total), 4),
             "load": round(os.getloadavg()[0], 2)}
    if said:
        facts["stderr"] = said[-500:]
    return lines, facts
