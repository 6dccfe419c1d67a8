# SPDX-License-Identifier: BSD-3-Clause
"""What came with MPI 4 is there under Sluice where the MPI has it, and nowhere else. Run alone: ./dev check mpi -k exports"""
import pytest

from support.mpi import ALL


@pytest.mark.parametrize('bind', ['', '1'])
@pytest.mark.parametrize('name', ALL)
def test_exports(name, bind, get_mpi, with_sluice):
    mpi = get_mpi(name)
    program = mpi.build('exports.c', extra=['-ldl'])
    env = {'LD_BIND_NOW': bind} if bind else {}
    plain = mpi.launch(1, program, sluice=False, env=env)
    ours = mpi.launch(1, program, sluice=with_sluice, env=env)
    assert plain.out.count('MPI_') == 6, plain.explain()
    assert ours.out == plain.out and 'IFUNC' not in ours.err, ours.explain()
