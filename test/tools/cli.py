# SPDX-License-Identifier: BSD-3-Clause
"""Running the installed sluice, and small programs and libraries to run it on. No MPI is needed.

TEST_PREFIX names another installed tree than build/prefix.
"""
import os
import pathlib
import resource
import subprocess

from support.options import spelled

ROOT = pathlib.Path(__file__).resolve().parent.parent.parent
PREFIX = pathlib.Path(os.environ.get('TEST_PREFIX') or ROOT / 'build/prefix')
SLUICE = PREFIX / 'bin/sluice'
LIBRARY = PREFIX / 'lib/libsluice.so'
PROGRAMS = pathlib.Path(__file__).resolve().parent / 'programs'
NO_FOLDER = '/nonexistent/config'
RANKS = ('PMI_', 'PMIX_', 'OMPI_', 'MV2_', 'SLURM_', 'PALS_', 'FLUX_')


def plain_env(**more):
    """This process's environment, without Sluice, preloads and ranks. None removes a variable."""
    env = {k: v for k, v in os.environ.items()
           if not k.startswith(('SLUICE', 'LD_') + RANKS)}
    env['XDG_CONFIG_HOME'] = NO_FOLDER  # what somebody has tuned here must not change what is tested
    env.update(more)
    return spelled({k: v for k, v in env.items() if v is not None})


def sluice(*args, env=None, program=SLUICE, **popen):
    return subprocess.run([str(a) for a in (program, *args)], env=plain_env(**(env or {})),
                          text=True, capture_output=True, timeout=60, **popen)


def limited(kilobytes):
    """For preexec_fn: the program's limit of address space."""
    return lambda: resource.setrlimit(resource.RLIMIT_AS, (kilobytes << 10, kilobytes << 10))


def run(*args, **more):
    return sluice('run', *args, **more)


def compile_c(target, source, *flags):
    """Compile a file of programs/, or source text."""
    if '\n' in str(source):
        text, source = source, target.with_suffix('.c')
        source.write_text(text)
    else:
        source = PROGRAMS / source
    subprocess.run(['cc', '-O1', '-D_GNU_SOURCE', '-o', target, source, *flags], check=True)
    return target


FAKE_MPI = '''
int PMPI_Bcast(void) { return 0; }
int MPI_Get_library_version(char *text, int *length)
{
	const char *version = VERSION;
	int n = 0;
	while ((text[n] = version[n]))
		n++;
	*length = n;
	return 0;
}
'''


FAKE_VERSION = 'MPICH Version:      9.8.7\\nMPICH Device:  none\\n'


def fake_mpi(prefix, name='libmpi.so.12', more='\n'):
    """An installation with a library that passes for an MPI. Returns the library."""
    (prefix / 'lib').mkdir(parents=True, exist_ok=True)
    (prefix / 'bin').mkdir(exist_ok=True)
    source = prefix / 'mpi.c'
    source.write_text(FAKE_MPI + more)
    library = prefix / 'lib' / name
    subprocess.run(['cc', '-shared', '-fPIC', '-o', library, source,
                    f'-DVERSION="{FAKE_VERSION}"'], check=True)
    mpiexec = prefix / 'bin/mpiexec'
    mpiexec.write_text('#!/bin/sh\nshift 2\nexec "$@"\n')  # mpiexec -n 4 program...
    mpiexec.chmod(0o755)
    return library
