# SPDX-License-Identifier: BSD-3-Clause
"""Functions of MPI 4 exist under Sluice where the MPI has them, and nowhere else, however the
program and the libraries are loaded. Run alone: ./dev check mpi -k exports"""
import sys

import pytest

from support.mpi import ALL
from support.paths import LIBRARY, SLUICE

LOADER = '/lib64/ld-linux-x86-64.so.2'
# An executable at a fixed address, and one whose symbols are bound at once.
KINDS = {'pie': [], 'fixed': ['-no-pie'], 'now': ['-Wl,-z,now']}


def same(plain, ours):
    """They say the same, and the loader has nothing to say."""
    assert plain.out.count('MPI_') == 7 and not plain.status, plain.explain()
    assert ours.out == plain.out and not ours.status and 'IFUNC' not in ours.err, ours.explain()


@pytest.mark.parametrize('bind', ['', '1'])
@pytest.mark.parametrize('name', ALL)
def test_exports(name, bind, get_mpi, with_sluice):
    mpi = get_mpi(name)
    program = mpi.build('exports.c', extra=['-ldl'])
    env = {'LD_BIND_NOW': bind} if bind else {}
    same(mpi.launch(1, program, sluice=False, env=env), mpi.launch(1, program, sluice=with_sluice, env=env))


# One MPI that has all of it and one that has not.
@pytest.mark.parametrize('kind', KINDS)
@pytest.mark.parametrize('how', ['LD_PRELOAD', '--preload', 'LD_AUDIT'])
@pytest.mark.parametrize('name', ['mpich', 'openmpi', 'debian-openmpi'])
def test_exports_however_preloaded(name, how, kind, get_mpi, with_sluice):
    """By the environment, by the loader as a command, and while another library audits."""
    if not with_sluice:
        pytest.skip('--plain')
    mpi = get_mpi(name)
    program = mpi.build('exports.c', extra=['-ldl', *KINDS[kind]], name=f'exports_{kind}')
    start = ['env', f'LD_PRELOAD={LIBRARY}', program]
    if how == '--preload':
        start = [LOADER, '--preload', LIBRARY, program]
    elif how == 'LD_AUDIT':
        audit = mpi.build('lib/audit.c', extra=['-shared', '-fPIC'], name='audit.so')
        start[1:1] = [f'LD_AUDIT={audit}']
    same(mpi.launch(1, program, sluice=False), mpi.launch(1, *start, sluice=False))


@pytest.mark.parametrize('bind', ['', '1'])
@pytest.mark.parametrize('mode', ['RTLD_LOCAL', 'RTLD_GLOBAL'])
@pytest.mark.parametrize('name', ['mpich', 'openmpi', 'abi', 'debian-mpich', 'debian-openmpi'])
def test_exports_of_a_library_that_comes_late(name, mode, bind, get_mpi, with_sluice):
    """A module that needs MPI is loaded by a program that does not, as Python loads mpi4py."""
    mpi = get_mpi(name)
    module = mpi.build('exports.c', extra=['-shared', '-fPIC', '-Dmain=module_main'],
                       name='exports_module.so')
    load = f'import ctypes; ctypes.CDLL({str(module)!r}, mode=ctypes.{mode}).module_main(0, None)'
    env = {'LD_BIND_NOW': bind} if bind else {}
    same(mpi.launch(1, sys.executable, '-c', load, sluice=False, env=env),
         mpi.launch(1, sys.executable, '-c', load, sluice=with_sluice, env=env))


@pytest.mark.parametrize('is_late', [False, True])
@pytest.mark.parametrize('name', ALL)
def test_exports_of_a_recorded_program(name, is_late, get_mpi, with_sluice, tmp_path):
    """Under sluice trace --goal, linked with MPI or loading it late."""
    if not with_sluice:
        pytest.skip('--plain')
    mpi = get_mpi(name)
    program = [mpi.build('exports.c', extra=['-ldl'])]
    if is_late:
        module = mpi.build('exports.c', extra=['-shared', '-fPIC', '-Dmain=module_main'],
                           name='exports_module.so')
        program = [sys.executable, '-c', f'import ctypes; ctypes.CDLL({str(module)!r}).module_main(0, None)']
    trace = [SLUICE, 'trace', '-o', tmp_path / 't', '--goal', tmp_path / 'run.goal', '--']
    same(mpi.launch(1, *program, sluice=False), mpi.launch(1, *trace, *program, sluice=False))
