# SPDX-License-Identifier: BSD-3-Clause
"""MPI's semantics, behaviour by behaviour, on every MPI. Run alone: ./dev check mpi -k any_root-mpich-2"""
import pytest

from support.behaviours import cases

# How the data may travel. Each must give the same bytes.
CONFIGS = {
    'default': {},
    'one_byte': {'SLUICE_COLL_THRESHOLD': '1'},
    'adopt': {'SLUICE_COLL_THRESHOLD': '1', 'SLUICE_REGION_KIND': 'arena',
              'SLUICE_REGION_ADOPT_AFTER': '1', 'region_adopt_min': '4K'},
    'cma': {'SLUICE_COLL_THRESHOLD': '1', 'SLUICE_REGION_KIND': 'cma'},
    'staged': {'SLUICE_COLL_THRESHOLD': '1', 'SLUICE_REGION_KIND': 'staged'},
}


OTHERS = ['abi', 'impi', 'debian-mpich', 'debian-openmpi']


# By default semantics.c runs in all ways on one MPI and once on each other. How data travels is decided below
# MPI's semantics, so that the other programs run in pairs of an MPI, a number of ranks and a way. The ABI
# decides what datatypes.c sees; threads.c and progress.c need a library of each ABI, not each release.
EACH_ABI = [('mpich', 1, 'one_byte'), ('mpich', 2, 'one_byte'), ('mpich', 3, 'adopt'),
            ('openmpi', 2, 'adopt'), ('abi', 2, 'one_byte')]
EACH_MPI = [*EACH_ABI, ('impi', 2, 'one_byte'), ('debian-mpich', 2, 'one_byte'),
            ('debian-openmpi', 2, 'one_byte')]
DEFAULT = {
    'semantics.c': [*EACH_MPI, ('openmpi', 2, 'one_byte'),
                    *[('mpich', 2, way) for way in CONFIGS if way != 'one_byte']],
    'datatypes.c': EACH_MPI, 'threads.c': [*EACH_ABI, ('impi', 2, 'one_byte')], 'progress.c': EACH_ABI,
}


def places():
    """(MPI, ranks, way) of the complete run."""
    yield 'mpich', 1, 'one_byte'
    for ranks in (2, 3, 4):
        for way in CONFIGS:
            yield 'mpich', ranks, way
            if ranks == 2 or way in ('one_byte', 'adopt'):
                yield 'openmpi', ranks, way
            if ranks == 2 and way in ('one_byte', 'default', 'adopt') or ranks == 3 and way in ('default',
                                                                                                'adopt'):
                for mpi in OTHERS:
                    yield mpi, ranks, way


def matrix(program):
    assert set(DEFAULT[program]) <= set(places())
    return [case for mpi, ranks, way in places()
            for case in cases(program, [mpi], [ranks], [way],
                              () if (mpi, ranks, way) in DEFAULT[program] else pytest.mark.complete)]


def behaviours_of(program):
    def wrap(function):
        function.program = program
        return pytest.mark.parametrize('mpi, ranks, config, behaviour', matrix(program))(function)
    return wrap


@behaviours_of('semantics.c')
def test_semantics(mpi, ranks, config, behaviour, get_mpi, runner, with_sluice):
    runner.check(get_mpi(mpi), 'semantics.c', ranks, behaviour, sluice=with_sluice, env=CONFIGS[config])


@behaviours_of('datatypes.c')
def test_datatypes(mpi, ranks, config, behaviour, get_mpi, runner, with_sluice):
    runner.check(get_mpi(mpi), 'datatypes.c', ranks, behaviour, sluice=with_sluice, env=CONFIGS[config])


@behaviours_of('threads.c')
def test_threads(mpi, ranks, config, behaviour, get_mpi, runner, with_sluice):
    runner.check(get_mpi(mpi), 'threads.c', ranks, behaviour, sluice=with_sluice, env=CONFIGS[config])


@behaviours_of('progress.c')
def test_progress(mpi, ranks, config, behaviour, get_mpi, runner, with_sluice):
    runner.check(get_mpi(mpi), 'progress.c', ranks, behaviour, sluice=with_sluice, env=CONFIGS[config])


ERROR_MPIS = ['mpich', 'openmpi', 'abi', 'impi', 'debian-mpich', 'debian-openmpi']


def test_errors(mpi, ranks, config, behaviour, get_mpi, runner, with_sluice):
    """Class and text of each error are those of the host MPI."""
    mpi = get_mpi(mpi)
    plain = runner.check(mpi, 'errors.c', ranks, behaviour, sluice=False)
    ours = runner.check(mpi, 'errors.c', ranks, behaviour, sluice=with_sluice, env=CONFIGS[config])
    assert ours.said_by(behaviour) == plain.said_by(behaviour)


test_errors.program = 'errors.c'
test_errors = pytest.mark.parametrize(
    'mpi, ranks, config, behaviour', cases('errors.c', ERROR_MPIS, [2], ['one_byte']))(test_errors)


@pytest.mark.parametrize('level', [0, 1, 2, 3])
@pytest.mark.parametrize('name', ['mpich', 'openmpi'])
def test_thread_level_is_never_raised(name, level, get_mpi, runner, with_sluice):
    behaviour, env = 'what_a_program_can_ask_for', {'HARNESS_THREAD_LEVEL': str(level)}
    mpi = get_mpi(name)
    plain = runner.report(mpi, 'errors.c', 2, behaviour, sluice=False, env=env)
    ours = runner.report(mpi, 'errors.c', 2, behaviour, sluice=with_sluice, env=env)
    assert ours.said_by(behaviour) == plain.said_by(behaviour)


# Each way once on MPICH; three ranks and the other ABI with the ways that they change.
RANDOM = {('mpich', 2, 'default'), ('mpich', 2, 'one_byte'), ('mpich', 2, 'cma'), ('mpich', 3, 'adopt'),
          ('mpich', 3, 'staged'), ('openmpi', 2, 'one_byte'), ('openmpi', 2, 'adopt')}


def sequences():
    for name, ranks in [('mpich', 2), ('mpich', 3), ('openmpi', 2)]:
        for config in CONFIGS:
            for seed in range(1, 6):
                is_default = seed == 1 and (name, ranks, config) in RANDOM
                yield pytest.param(name, ranks, config, seed,
                                   marks=() if is_default else pytest.mark.complete)


@pytest.mark.parametrize('name, ranks, config, seed', sequences())
def test_random_sequence(name, ranks, config, seed, get_mpi, runner, with_sluice):
    runner.check(get_mpi(name), 'random_ops.c', ranks, 'random_sequence', sluice=with_sluice,
                 env={**CONFIGS[config], 'HARNESS_SEED': str(seed)})
