# SPDX-License-Identifier: BSD-3-Clause
"""Long runs and large sizes, by name only: ./dev check stress"""
import pathlib
import re

import pytest

from support import mpi as mpis
from mpi import test_types
from support.behaviours import Runner, behaviours, cases

pytestmark = [pytest.mark.complete, pytest.mark.timeout(1800)]
ADOPT = {'SLUICE_COLL_THRESHOLD': '4K', 'SLUICE_REGION_ADOPT_AFTER': '1', 'region_adopt_min': '16K'}
WAYS = {'default': {}, 'adopt': ADOPT, 'tight': {**ADOPT, 'region_max': '2'},
        'cma': {'SLUICE_REGION_KIND': 'cma', 'SLUICE_COLL_THRESHOLD': '1'},
        'staged': {'SLUICE_REGION_KIND': 'staged', 'SLUICE_COLL_THRESHOLD': '1'}}


@pytest.fixture(scope='module')
def runner():
    return Runner({})


def available_mib():
    text = pathlib.Path('/proc/meminfo').read_text()
    return int(re.search(r'MemAvailable:\s+(\d+)', text).group(1)) // 1024


@pytest.mark.parametrize('way', ['default', 'adopt'])
@pytest.mark.parametrize('name', ['mpich', 'openmpi'])
def test_hundred_thousand_buffers(name, way, runner, with_sluice):
    """Mappings, descriptors and memory at the end are as at the beginning."""
    runner.check(mpis.need(name), 'memory.c', 2, 'many_different_buffers', sluice=with_sluice, timeout=1500,
                 env={**WAYS[way], 'HARNESS_BUFFERS': '100000'})


@pytest.mark.parametrize('behaviour', ['large_type', 'large_count', 'large_message', 'large_gather',
                                       'large_alltoallv'])
@pytest.mark.parametrize('way', ['default', 'staged', 'cma', 'taken'])
@pytest.mark.parametrize('name', ['mpich', 'openmpi'])
def test_more_than_two_gib(name, way, behaviour, runner, with_sluice):
    if available_mib() < 12000:
        pytest.skip(f'{available_mib()} MiB of memory are available, 12000 are needed')
    runner.check(mpis.need(name), 'large.c', 2, behaviour, sluice=with_sluice,
                 env={**WAYS, 'taken': TAKEN}[way], timeout=600)


@pytest.mark.parametrize('seed', range(20))
@pytest.mark.parametrize('way', ['default', 'adopt', 'tight'])
@pytest.mark.parametrize('name, ranks', [('mpich', 2), ('openmpi', 3)])
def test_long_random_messages(name, ranks, way, seed, runner, with_sluice):
    """An hour with all cases: random messages beside collectives, from memory that changes."""
    runner.check(mpis.need(name), 'messages.c', ranks, 'random_messages', sluice=with_sluice, timeout=900,
                 env={**WAYS[way], 'HARNESS_SEED': str(seed), 'HARNESS_STEPS': '60000'})


@pytest.mark.parametrize('seed', range(10, 20))
@pytest.mark.parametrize('way', WAYS)
@pytest.mark.parametrize('name, ranks', [('mpich', 2), ('mpich', 3), ('mpich', 4), ('openmpi', 2),
                                         ('openmpi', 3)])
def test_long_random_sequence(name, ranks, way, seed, runner, with_sluice):
    runner.check(mpis.need(name), 'random_ops.c', ranks, 'random_sequence', sluice=with_sluice, timeout=900,
                 env={**WAYS[way], 'HARNESS_SEED': str(seed), 'HARNESS_STEPS': '1500'})


@pytest.mark.parametrize('round', range(20))
@pytest.mark.parametrize('way', ['default', 'adopt', 'tight'])
def test_threads_again_and_again(way, round, with_sluice):
    runner = Runner({})
    for behaviour in ['threads_with_own_communicators', 'other_threads_memory_stays']:
        runner.check(mpis.need('mpich'), 'threads.c', 2, behaviour, sluice=with_sluice, env=WAYS[way])


@pytest.mark.parametrize('ranks', [2, 4])
def test_intel_benchmarks_complete(ranks, with_sluice):
    """IMB's Bcast and Gather over its whole range of sizes."""
    mpi = mpis.need('impi')
    result = mpi.launch(ranks, mpi.bindir / 'IMB-MPI1', '-npmin', str(ranks), '-iter', '20', '-mem', '2',
                        'Bcast', 'Gather', sluice=with_sluice, timeout=900,
                        env={'SLUICE_COLL_THRESHOLD': '1'})
    assert result.status == 0 and '4194304' in result.out, result.explain()


KINDS = ['BCAST', 'GATHER', 'SCATTER', 'ALLGATHER', 'ALLTOALL', 'REDUCE', 'ALLREDUCE', 'REDUCE_SCATTER',
         'SCAN', 'VECTOR',
         'NEIGHBOR', 'NONBLOCKING', 'BARRIER']
TAKEN = {'SLUICE_COLL_THRESHOLD': '1', **{f'coll:{kind}': 'on' for kind in KINDS}}
WHOLE = {'taken': TAKEN, 'early': {**TAKEN, **mpis.EARLY, 'SLUICE_GUARD_KIND': 'uffd'}}


@pytest.mark.parametrize('name, ranks, way, behaviour', cases('matrix.c', ['mpich', 'openmpi', 'impi'],
                                                              [3, 9], WHOLE))
def test_whole_matrix(name, ranks, way, behaviour, with_sluice):
    """All cases, in communicators of 1 to 9 ranks."""
    each = '1' if ranks < 9 else '8'
    Runner({'matrix.c': {behaviour}}).check(mpis.need(name), 'matrix.c', ranks, behaviour, sluice=with_sluice,
                                            timeout=1700,
                                            env={**WHOLE[way], 'HARNESS_EACH': each})


@pytest.mark.parametrize('behaviour', [name for name, _ in behaviours('types_random.c')])
@pytest.mark.parametrize('name, ranks, config', [
    ('mpich', 3, 'taken'), ('mpich', 4, 'early'), ('mpich', 2, 'small_fragments'), ('mpich', 2, 'staged'),
    ('openmpi', 2, 'taken'), ('openmpi', 3, 'cma')])
def test_ten_thousand_random_types(name, ranks, config, behaviour, with_sluice, tmp_path):
    test_types.check_types(mpis.need(name), ranks, config, with_sluice, tmp_path, [behaviour], 1700,
                           HARNESS_CASES='10000', HARNESS_SEED='2')


@pytest.mark.parametrize('name, ranks', [('mpich', 2), ('openmpi', 3), ('impi', 2)])
def test_ten_thousand_requests(name, ranks, with_sluice):
    for program, behaviour in [('requests.c', 'thousands_are_in_flight'),
                               ('requests_short.c', 'thousands_of_all_kinds_are_in_flight')]:
        Runner({program: {behaviour}}).check(mpis.need(name), program, ranks, behaviour, sluice=with_sluice,
                                             timeout=600,
                                             env={**TAKEN, 'CHECK_REQUESTS': '10000'})


@pytest.mark.parametrize('behaviour', ['communicators_come_and_go', 'communicators_are_there_at_once'])
@pytest.mark.parametrize('name, ranks', [('mpich', 2), ('openmpi', 2), ('openmpi', 3)])
def test_thousand_communicators(name, ranks, behaviour, with_sluice):
    Runner({'lifetimes.c': {behaviour}}).check(mpis.need(name), 'lifetimes.c', ranks, behaviour,
                                               sluice=with_sluice, timeout=1700,
                                               env={**TAKEN, 'HARNESS_COMMUNICATORS': '1000'})
