# SPDX-License-Identifier: BSD-3-Clause
"""A program may change memory that peers can address, and must see what it would see without Sluice.

Run alone: ./dev check mpi -k calloc_after_free
"""
import pytest

from support.behaviours import cases
from support.build import compile_once
from support.paths import PROGRAMS, SOURCES

ADOPT = {'SLUICE_COLL_THRESHOLD': '4K', 'SLUICE_REGION_ADOPT_AFTER': '1', 'region_adopt_min': '16K'}
CONFIGS = {
    # adopted at the first use, and looked for
    'adopt': {**ADOPT, 'HARNESS_ADOPTS': '1', 'SLUICE_REGION_KIND': 'arena'},
    # as users have it: adoption comes when a buffer has earned it
    'default': {},
    # caches so small that everything is evicted all the time
    'tight': {**ADOPT, 'region_max': '2', 'region_pool': '0'},
    'cma': {'SLUICE_COLL_THRESHOLD': '4K', 'SLUICE_REGION_KIND': 'cma'},
}


@pytest.fixture(scope='session')
def library():
    """A library with large static memory."""
    return str(compile_once(PROGRAMS / 'area.so', 'cc', ['-shared', '-fPIC'], [SOURCES / 'lib/area.c']))


def matrix(program):
    by_name = pytest.mark.complete
    return (cases(program, ['mpich'], [2], CONFIGS) + cases(program, ['openmpi'], [2], ['adopt']) +
            cases(program, ['mpich'], [3, 4], ['adopt', 'default'], by_name) +
            cases(program, ['openmpi'], [2], ['default', 'tight'], by_name))


def behaviours_of(program):
    def wrap(function):
        function.program = program
        return pytest.mark.parametrize('mpi, ranks, config, behaviour', matrix(program))(function)
    return wrap


def env_of(config, with_sluice, library):
    env = {**CONFIGS[config], 'HARNESS_LIBRARY': library, 'HARNESS_BUFFERS': '2000'}
    if not with_sluice:
        env.pop('HARNESS_ADOPTS', None)
    return env


@behaviours_of('adoption.c')
def test_adoption(mpi, ranks, config, behaviour, get_mpi, runner, with_sluice, library):
    runner.check(get_mpi(mpi), 'adoption.c', ranks, behaviour, sluice=with_sluice,
                 env=env_of(config, with_sluice, library))


@behaviours_of('forks.c')
def test_forks(mpi, ranks, config, behaviour, get_mpi, runner, with_sluice, library):
    runner.check(get_mpi(mpi), 'forks.c', ranks, behaviour, sluice=with_sluice,
                 env=env_of(config, with_sluice, library))


@behaviours_of('memory.c')
def test_memory(mpi, ranks, config, behaviour, get_mpi, runner, with_sluice, library):
    runner.check(get_mpi(mpi), 'memory.c', ranks, behaviour, sluice=with_sluice,
                 env=env_of(config, with_sluice, library))
