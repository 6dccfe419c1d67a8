# SPDX-License-Identifier: BSD-3-Clause
"""The examples do what their pages say. Run alone: ./dev check mpi -k examples"""
import subprocess

import pytest

from support.paths import LIBRARY, PREFIX, ROOT


@pytest.mark.parametrize('name', ['mpich', 'openmpi'])
@pytest.mark.parametrize('ranks', [2, 4])
def test_stencil(name, ranks, get_mpi, tmp_path):
    """doc/tutorial-goal.md: three ways to exchange edges compute the same, linked or preloaded."""
    mpi = get_mpi(name)
    program = tmp_path / 'stencil'
    line = [mpi.compilers['cc'], '-O2', '-Wall', '-Werror', ROOT / 'examples/stencil.c', '-o', program,
            f'-I{PREFIX}/include', f'-L{LIBRARY.parent}', '-lsluice-goal', f'-Wl,-rpath,{LIBRARY.parent}']
    subprocess.run(line, check=True, env=mpi.env(), timeout=120)
    result = mpi.launch(ranks, program, '48', '20', '2', sluice=ranks == 4)
    assert result.status == 0 and 'all results are the same' in result.out, result.explain()
    assert 'GOAL schedule' in result.out and not result.leftovers, result.explain()


@pytest.mark.parametrize('name', ['mpich', 'openmpi'])
@pytest.mark.parametrize('example, arguments, says', [
    ('fft3d', ('16', '1'), 'the spectrum is right'),
    ('cg', ('48', '1'), 'the solutions are right'),
])
@pytest.mark.parametrize('sluice', [False, True], ids=['plain', 'sluice'])
def test_solver(name, example, arguments, says, sluice, get_mpi, tmp_path):
    """Plain MPI programs, whose results are known; below Sluice with every collective taken."""
    mpi = get_mpi(name)
    program = tmp_path / example
    subprocess.run([mpi.compilers['cc'], '-O2', '-Wall', '-Werror', ROOT / f'examples/{example}.c', '-o',
                    program, '-lm'],
                   check=True, env=mpi.env(), timeout=120)
    kinds = ('ALLTOALL', 'ALLREDUCE', 'NONBLOCKING')
    taken = {'SLUICE_COLL_THRESHOLD': '1', **{f'coll:{kind}': 'on' for kind in kinds}}
    options = taken if sluice else {}
    result = mpi.launch(4, program, *arguments, sluice=sluice, env=options)
    assert result.status == 0 and says in result.out, result.explain()
    assert not result.leftovers, result.explain()
