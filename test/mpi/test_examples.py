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
            f'-I{PREFIX}/include', f'-L{LIBRARY.parent}', '-lsluice', f'-Wl,-rpath,{LIBRARY.parent}']
    subprocess.run(line, check=True, env=mpi.env(), timeout=120)
    result = mpi.launch(ranks, program, '48', '20', '2', sluice=ranks == 4)
    assert result.status == 0 and 'all results are the same' in result.out, result.explain()
    assert 'GOAL schedule' in result.out and not result.leftovers, result.explain()
