# SPDX-License-Identifier: BSD-3-Clause
"""Every collective against what must come out, taken whatever its size. Run alone: ./dev check mpi
-k alltoallw"""
import pytest

from support.behaviours import cases

FAMILIES = ['SCATTER', 'ALLGATHER', 'ALLTOALL', 'REDUCE', 'ALLREDUCE', 'REDUCE_SCATTER', 'SCAN', 'NEIGHBOR',
            'VECTOR']
TAKEN = {'SLUICE_COLL_THRESHOLD': '1', **{f'coll:{family}': 'on' for family in FAMILIES}}
CONFIGS = {
    'taken': TAKEN,
    'adopted': {**TAKEN, 'SLUICE_REGION_KIND': 'arena', 'SLUICE_REGION_ADOPT_AFTER': '0',
                'region_adopt_min': '4K'},
    'pieces': {**TAKEN, 'fault': 'piece:all'},
    'default': {},
}


def matrix(program):
    by_name = pytest.mark.complete
    return (cases(program, ['mpich'], [3], ['adopted']) + cases(program, ['openmpi', 'impi'], [2],
                                                                ['taken']) +
            cases(program, ['mpich'], [2], ['pieces']) +
            cases(program, ['mpich', 'openmpi'], [4, 9], ['taken', 'default'], by_name) +
            cases(program, ['abi', 'debian-mpich', 'debian-openmpi'], [3], ['taken'], by_name))


def each(program):
    return pytest.mark.parametrize('mpi, ranks, config, behaviour', matrix(program))


@each('moves.c')
def test_moves(mpi, ranks, config, behaviour, get_mpi, runner, with_sluice):
    runner.check(get_mpi(mpi), 'moves.c', ranks, behaviour, sluice=with_sluice, env=CONFIGS[config])


@each('reductions.c')
def test_reductions(mpi, ranks, config, behaviour, get_mpi, runner, with_sluice):
    runner.check(get_mpi(mpi), 'reductions.c', ranks, behaviour, sluice=with_sluice, env=CONFIGS[config])


@pytest.mark.parametrize('mpi, ranks, config, behaviour',
                         cases('wrong_collectives.c', ['mpich', 'openmpi', 'impi'], [2], ['taken']))
def test_errors_of_collectives(mpi, ranks, config, behaviour, get_mpi, runner, with_sluice):
    """Class and text of each error are those of the host MPI."""
    mpi, program = get_mpi(mpi), 'wrong_collectives.c'
    plain = runner.check(mpi, program, ranks, behaviour, sluice=False)
    ours = runner.check(mpi, program, ranks, behaviour, sluice=with_sluice, env=CONFIGS[config])
    assert ours.said_by(behaviour) == plain.said_by(behaviour)


test_errors_of_collectives.program = 'wrong_collectives.c'
@pytest.mark.parametrize('name', ['mpich', pytest.param('openmpi', marks=pytest.mark.complete)])
def test_between_parts_others_may_write(name, get_mpi, runner, with_sluice):
    runner.check(get_mpi(name), 'threads.c', 2, 'between_parts_others_may_write', sluice=with_sluice,
                 env={**CONFIGS['adopted'], 'coll:nonblocking': 'on'})


test_moves.program, test_reductions.program = 'moves.c', 'reductions.c'
