# SPDX-License-Identifier: BSD-3-Clause
"""Every collective, form, datatype, operation, root, in place or not, against the library's own
blocking function.

Here a sample of the cases; all of them: ./dev check stress -k matrix. Run alone: ./dev check mpi -k matrix
"""
import pytest

from support.behaviours import cases
from support.mpi import EARLY

KINDS = ['BCAST', 'GATHER', 'SCATTER', 'ALLGATHER', 'ALLTOALL', 'REDUCE', 'ALLREDUCE', 'REDUCE_SCATTER',
         'SCAN', 'VECTOR',
         'NEIGHBOR', 'NONBLOCKING', 'BARRIER']
TAKEN = {'SLUICE_COLL_THRESHOLD': '1', **{f'coll:{kind}': 'on' for kind in KINDS}}
CONFIGS = {'taken': TAKEN, 'early': {**TAKEN, **EARLY, 'SLUICE_GUARD_KIND': 'uffd'}, 'default': {}}


@pytest.mark.parametrize('mpi, ranks, config, behaviour',
                         cases('matrix.c', ['mpich'], [3], ['taken']) + cases('matrix.c', ['openmpi'], [3],
                                                                              ['early']) +
                         cases('matrix.c', ['impi', 'abi', 'debian-mpich', 'debian-openmpi'], [4], CONFIGS,
                               pytest.mark.complete))
def test_matrix(mpi, ranks, config, behaviour, get_mpi, runner, with_sluice):
    runner.check(get_mpi(mpi), 'matrix.c', ranks, behaviour, sluice=with_sluice, env=CONFIGS[config])


test_matrix.program = 'matrix.c'
