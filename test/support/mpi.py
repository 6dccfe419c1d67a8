# SPDX-License-Identifier: BSD-3-Clause
"""The MPIs that the tests use, how to compile for each and how to launch with each."""
import os
import shlex
import shutil
import tempfile

import pytest

from . import job
from .options import is_short, spelled
from .build import compile_once
from .paths import BUILD, PROGRAMS, SLUICE, SOURCES

COMPILER_OF = {'.c': 'cc', '.cc': 'cxx', '.f': 'fortran', '.f90': 'fortran'}
FLAGS = ['-D_GNU_SOURCE', '-O1', '-g', '-Wall', '-Wno-unused-result']
FORTRAN_FLAGS = ['-O1', '-g', '-fallow-argument-mismatch']
# Open MPI counts cores, refuses root, and binds ranks one to a core, all of which tests must undo.
OPENMPI_ENV = {
    'OMPI_ALLOW_RUN_AS_ROOT': '1', 'OMPI_ALLOW_RUN_AS_ROOT_CONFIRM': '1',
    'PRTE_MCA_rmaps_default_mapping_policy': ':oversubscribe',
    'OMPI_MCA_rmaps_base_oversubscribe': '1', 'OMPI_MCA_hwloc_base_binding_policy': 'none',
    'PRTE_MCA_hwloc_default_binding_policy': 'none',
    'OMPI_MCA_mpi_yield_when_idle': '1', 'OMPI_MCA_btl': '^openib,ofi',
}
# With more ranks than cores MPICH's own shared-memory collectives spin through whole time slices: 40 s
# instead of 1 for the same program. Its other algorithms yield.
MPICH_ENV = {f'MPIR_CVAR_{name}_POSIX_INTRA_ALGORITHM': 'mpir'
             for name in ('BCAST', 'ALLREDUCE', 'BARRIER', 'REDUCE')}
# Intel MPI binds ranks to cores and spins there, whoever else would like to run: 13 s instead of 0.6.
INTEL_ENV = {'I_MPI_ROOT': str(BUILD / 'venv-impi'), 'I_MPI_FABRICS': 'shm',
             'I_MPI_HYDRA_BOOTSTRAP': 'fork', 'I_MPI_PIN': 'off',
             'I_MPI_THREAD_YIELD': '3', 'I_MPI_THREAD_SLEEP': '1'}


# Everything is taken, adopted at once and returned from early, whether that pays or not.
EARLY = {'SLUICE_COLL_THRESHOLD': '1', 'SLUICE_REGION_ADOPT_AFTER': '1', 'region_adopt_min': '16K',
         'SLUICE_EARLY': 'on', 'SLUICE_EARLY_MIN': '1', 'SLUICE_WORKERS': '1',
         'worker_cpus': '1'}
# Tests of behaviour need calls that Sluice executes from the first one on, whatever that costs.
AT_ONCE = {'SLUICE_DECIDE': 'table', 'SLUICE_REGION_ADOPT_AFTER': '3', 'SLUICE_SUMS': 'any'}
forced = {} # --early: what a test says itself counts more


class Mpi:
    """One MPI: name, ABI, compilers by language, launcher, environment."""

    def __init__(self, name, abi, mpiexec, compilers, env, bindir=None, libdir=None):
        self.name, self.abi, self.mpiexec, self.compilers = name, abi, mpiexec, compilers
        self.bindir, self.libdir, self.own_env = bindir, libdir, env
        self.python = bindir / 'python' if bindir else None
        # the mpiexec of Open MPI 5.0.7 (Debian 13) crashes where it is given more than one command
        self.rank_variable = 'OMPI_COMM_WORLD_RANK' if name == 'debian-openmpi' else None
        self.session_options = ['PRTE_MCA_prte_tmpdir_base'] if name == 'openmpi' else []

    def missing(self):
        """Why this MPI cannot be used here, or None."""
        absent = [p for p in [self.mpiexec, self.compilers['cc']] if not shutil.which(str(p))]
        return f'{self.name}: {absent[0]} is not here; ./dev setup installs it' if absent else None

    def env(self):
        env = {k: v for k, v in os.environ.items() if not k.startswith('SLUICE')}
        env.update(self.own_env)
        env.update(AT_ONCE)
        env.setdefault('TMPDIR', '/tmp')
        env['XDG_CONFIG_HOME'] = '/nonexistent/config'  # what somebody has tuned here is not tested
        env['OMP_NUM_THREADS'] = '1'
        if self.bindir:
            env['PATH'] = f'{self.bindir}:{env["PATH"]}'
            env['LD_LIBRARY_PATH'] = str(self.libdir)
        return env

    def build(self, source, extra=(), name=None):
        """Compile a program of test/mpi/programs (or an absolute path); returns the executable."""
        source = SOURCES / source
        compiler = self.compilers.get(COMPILER_OF[source.suffix])
        inputs = [source]
        text = source.read_text()
        if source.suffix == '.c' and 'check_main' in text:
            inputs.append(SOURCES / 'check.c' if extra else self.build_frame())
        flags = FORTRAN_FLAGS if COMPILER_OF[source.suffix] == 'fortran' else FLAGS
        if '<omp.h>' in text:
            flags = [*flags, '-fopenmp']
        return compile_once(PROGRAMS / self.name / (name or source.stem), compiler, [*flags, *extra],
                            [*inputs, '-lpthread', '-ldl'], self.env(), sorted(SOURCES.glob('*.h')))

    def build_frame(self):
        """The frame of programs with behaviours, compiled once."""
        return compile_once(PROGRAMS / self.name / 'check.o', self.compilers['cc'], [*FLAGS, '-c'],
                            [SOURCES / 'check.c'], self.env(), sorted(SOURCES.glob('*.h')))

    @staticmethod
    def rank_options(env, more):
        """A list of this rank replaces the list of all ranks."""
        own = spelled({**{k: v for k, v in (env or {}).items() if is_short(k)}, **more})
        return ['env', *[f'{k}={v}' for k, v in own.items()]]

    def each_by_itself(self, commands):
        """The launcher's arguments for one command a rank."""
        if not self.rank_variable:
            return sum([[*([':'] if rank else []), '-n', '1', *c] for rank, c in enumerate(commands)], [])
        cases = ' '.join(f'{rank}) exec {shlex.join(map(str, c))};;' for rank, c in enumerate(commands))
        return ['-n', str(len(commands)), 'sh', '-c', f'case ${self.rank_variable} in {cases} esac']

    def launch(self, ranks, *argv, sluice=True, env=None, rank_env=None, timeout=60, before=(), outer=(),
               launcher=(), cwd=None):
        """outer... mpiexec launcher... -n ranks before... [sluice run] argv...

        env: for all ranks; rank_env: one dict for each rank.
        """
        door = [SLUICE, 'run'] if sluice else []
        command = [*before, *door, *argv]
        line = [*outer, self.mpiexec, *launcher]
        if rank_env is None:
            line += ['-n', str(ranks), *command]
        else:
            line += self.each_by_itself([[*self.rank_options(env, more), *command] for more in rank_env])
        env = {**(forced if sluice else {}), **(env or {})}
        whole = {**self.env(), **env}
        whole = {name: value for name, value in whole.items() if value is not None}
        shown = {**self.own_env, **(AT_ONCE if sluice else {}), **env}
        if self.bindir:
            shown['LD_LIBRARY_PATH'] = whole['LD_LIBRARY_PATH']
        # PRRTE gives up where a launcher that was killed, and had its pid, left its files
        with tempfile.TemporaryDirectory(prefix='launcher.', dir='/tmp',
                                         ignore_cleanup_errors=True) as session:
            whole.update(dict.fromkeys(self.session_options, session))
            return job.run(line, whole, timeout, cwd=cwd, show_env=shown)


def from_venv(name, abi, env, venv=None, suffix=''):
    bindir = BUILD / f'venv-{venv or name}/bin'
    compilers = {'cc': bindir / f'mpicc{suffix}', 'cxx': bindir / f'mpicxx{suffix}'}
    return Mpi(name, abi, bindir / 'mpiexec', compilers, env, bindir, bindir.parent / 'lib')


def from_debian(name, abi, suffix, env):
    compilers = {'cc': f'mpicc.{suffix}', 'cxx': f'mpicxx.{suffix}', 'fortran': f'mpif90.{suffix}'}
    return Mpi(name, abi, f'mpiexec.{suffix}', compilers, env)


ALL = {mpi.name: mpi for mpi in [
    from_venv('mpich', 'mpich', MPICH_ENV),
    from_venv('mpich-3.4', 'mpich', MPICH_ENV),
    from_venv('mpich-4.2', 'mpich', MPICH_ENV),
    from_venv('openmpi', 'openmpi', OPENMPI_ENV),
    from_venv('impi', 'mpich', INTEL_ENV),
    from_venv('abi', 'standard', MPICH_ENV, venv='mpich', suffix='_abi'),
    from_debian('debian-mpich', 'mpich', 'mpich', MPICH_ENV),
    from_debian('debian-openmpi', 'openmpi', 'openmpi', OPENMPI_ENV),
]}


def need(name):
    """The MPI of this name; without it the test is skipped."""
    mpi = ALL[name]
    if mpi.missing():
        pytest.skip(mpi.missing())
    return mpi
