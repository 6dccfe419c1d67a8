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


# How data travels is decided below MPI's semantics: semantics.c and random_ops.c run in all ways, the
# other programs in those two in which every call is admitted.
ALL_WAYS = ('semantics.c',)


def matrix(program):
    """One MPI in all ways, the others in those that depend on their ABI; the rest by --complete."""
    by_name = pytest.mark.complete
    ways = list(CONFIGS) if program in ALL_WAYS else ['one_byte', 'adopt']
    others = [way for way in CONFIGS if way not in ways]
    return (cases(program, ['mpich'], [2], ways) + cases(program, ['mpich'], [2], others, by_name) +
            cases(program, ['mpich'], [1], ['one_byte']) + cases(program, ['mpich'], [3], ['adopt']) +
            cases(program, ['openmpi'], [2], ['one_byte', 'adopt']) +
            cases(program, OTHERS, [2], ['one_byte']) +
            cases(program, ['mpich'], [3], ['default', 'one_byte', 'cma', 'staged'], by_name) +
            cases(program, ['mpich'], [4], CONFIGS, by_name) +
            cases(program, ['openmpi'], [2], ['default', 'cma', 'staged'], by_name) +
            cases(program, ['openmpi'], [3, 4], ['one_byte', 'adopt'], by_name) +
            cases(program, OTHERS, [2, 3], ['default', 'adopt'], by_name))


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


@pytest.mark.parametrize('seed', [1, *(pytest.param(n, marks=pytest.mark.complete) for n in range(2, 6))])
@pytest.mark.parametrize('config', CONFIGS)
@pytest.mark.parametrize('name, ranks', [('mpich', 2), ('mpich', 3), ('openmpi', 2)])
def test_random_sequence(name, ranks, config, seed, get_mpi, runner, with_sluice):
    runner.check(get_mpi(name), 'random_ops.c', ranks, 'random_sequence', sluice=with_sluice,
                 env={**CONFIGS[config], 'HARNESS_SEED': str(seed)})
