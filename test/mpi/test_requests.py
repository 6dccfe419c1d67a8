# SPDX-License-Identifier: BSD-3-Clause
"""Nonblocking collectives as requests, behaviour by behaviour. Run alone: ./dev check mpi -k requests"""
import pytest

from support.behaviours import behaviours, cases
from support.mpi import EARLY

KINDS = ['SCATTER', 'ALLGATHER', 'ALLTOALL', 'REDUCE', 'ALLREDUCE', 'SCAN', 'REDUCE_SCATTER', 'VECTOR',
         'NONBLOCKING', 'NEIGHBOR', 'BARRIER']
TAKEN = {'SLUICE_COLL_THRESHOLD': '1', **{f'coll:{kind}': 'on' for kind in KINDS}}
CONFIGS = {
    'default': {},
    'taken': TAKEN,
    'adopt': {**TAKEN, 'SLUICE_REGION_KIND': 'arena', 'SLUICE_REGION_ADOPT_AFTER': '1',
              'region_adopt_min': '4K'},
    # a queue behind few places
    'few': {**TAKEN, 'fault': 'slots:all'},
    # movers in the process, whoever has a CPU
    'threads': {**TAKEN, 'SLUICE_WORKER_KIND': 'thread', 'worker_cpus': '0-1',
                'SLUICE_WORKERS': '2'},
}


# calls return early before the queue, too
CONFIGS['left'] = {**TAKEN, **EARLY}
CONFIGS['left_few'] = {**CONFIGS['left'], **CONFIGS['few']}


def matrix(program):
    by_name = pytest.mark.complete
    return (cases(program, ['mpich'], [2], ['taken']) + cases(program, ['mpich'], [3], ['adopt']) +
            cases(program, ['openmpi'], [2], ['few']) +
            cases(program, ['mpich', 'openmpi'], [1, 4], ['taken'], by_name) +
            cases(program, ['mpich', 'openmpi'], [2, 3], CONFIGS, by_name) +
            cases(program, ['abi', 'impi', 'debian-mpich', 'debian-openmpi'], [2], ['taken'], by_name))


@pytest.mark.parametrize('mpi, ranks, config, behaviour', matrix('requests.c'))
def test_requests(mpi, ranks, config, behaviour, get_mpi, runner, with_sluice):
    runner.check(get_mpi(mpi), 'requests.c', ranks, behaviour, sluice=with_sluice, env=CONFIGS[config])


@pytest.mark.parametrize('mpi, ranks, config, behaviour', matrix('requests_threads.c'))
def test_requests_of_threads(mpi, ranks, config, behaviour, get_mpi, runner, with_sluice):
    runner.check(get_mpi(mpi), 'requests_threads.c', ranks, behaviour, sluice=with_sluice,
                 env=CONFIGS[config])


@pytest.mark.parametrize('mpi, ranks, config, behaviour', matrix('requests_short.c'))
def test_short_requests(mpi, ranks, config, behaviour, get_mpi, runner, with_sluice):
    runner.check(get_mpi(mpi), 'requests_short.c', ranks, behaviour, sluice=with_sluice, env=CONFIGS[config])


AWAY = (cases('requests_away.c', ['mpich'], [2], ['taken']) + cases('requests_away.c', ['openmpi'], [3],
                                                                    ['adopt']) +
        cases('requests_away.c', ['mpich'], [2], ['threads']) +
        cases('requests_away.c', ['mpich', 'openmpi'], [2, 3, 4], ['taken', 'adopt', 'few'],
              pytest.mark.complete))


@pytest.mark.parametrize('mpi, ranks, config, behaviour', AWAY)
def test_ranks_that_are_away(mpi, ranks, config, behaviour, get_mpi, runner, with_sluice):
    if not with_sluice:
        pytest.skip('an MPI that progresses in calls only needs every rank')
    runner.check(get_mpi(mpi), 'requests_away.c', ranks, behaviour, sluice=True, env=CONFIGS[config])


HELD_UP = (cases('requests_held_up.c', ['mpich'], [3], ['left_few']) + cases('requests_held_up.c',
                                                                             ['openmpi'], [2], ['taken']) +
           cases('requests_held_up.c', ['mpich', 'openmpi', 'impi'], [2, 3, 4], ['default', 'taken', 'few',
                                                                                 'left'],
                 pytest.mark.complete))


@pytest.mark.parametrize('mpi, ranks, config, behaviour', HELD_UP)
def test_nobody_is_held_up(mpi, ranks, config, behaviour, get_mpi, runner, with_sluice):
    runner.check(get_mpi(mpi), 'requests_held_up.c', ranks, behaviour, sluice=with_sluice,
                 env=CONFIGS[config])


SAID = (cases('requests_said.c', ['mpich', 'openmpi', 'impi'], [2], ['taken']) +
        cases('requests_said.c', ['abi', 'debian-mpich', 'debian-openmpi'], [2], ['taken'],
              pytest.mark.complete) +
        cases('requests_said.c', ['mpich', 'openmpi', 'impi'], [2, 3], ['default', 'adopt'],
              pytest.mark.complete))


@pytest.mark.parametrize('mpi, ranks, config, behaviour', SAID)
def test_statuses_and_errors(mpi, ranks, config, behaviour, get_mpi, runner, with_sluice):
    """The program sees the statuses and errors of the host MPI."""
    mpi = get_mpi(mpi)
    plain = runner.check(mpi, 'requests_said.c', ranks, behaviour, sluice=False)
    ours = runner.check(mpi, 'requests_said.c', ranks, behaviour, sluice=with_sluice, env=CONFIGS[config])
    assert ours.said_by(behaviour) == plain.said_by(behaviour)


test_statuses_and_errors.program = 'requests_said.c'
RANDOM = ([('mpich', 2, 'default', 1), ('mpich', 3, 'left', 2), ('openmpi', 2, 'adopt', 3)],
          [(name, ranks, config, seed) for name in ('mpich', 'openmpi', 'impi') for ranks in (2, 3, 4)
           for config in ('default', 'taken', 'adopt', 'few', 'left', 'threads') for seed in (4, 5)])


@pytest.mark.parametrize('name, ranks, config, seed',
                         RANDOM[0] + [pytest.param(*case, marks=pytest.mark.complete) for case in RANDOM[1]])
def test_requests_at_random(name, ranks, config, seed, get_mpi, runner, with_sluice):
    runner.check(get_mpi(name), 'requests_random.c', ranks, 'at_random', sluice=with_sluice,
                 env={**CONFIGS[config], 'HARNESS_SEED': str(seed)})


@pytest.mark.parametrize('mpi, ranks, config, behaviour', matrix('requests_neighbours.c'))
def test_requests_to_neighbours(mpi, ranks, config, behaviour, get_mpi, runner, with_sluice):
    runner.check(get_mpi(mpi), 'requests_neighbours.c', ranks, behaviour, sluice=with_sluice,
                 env=CONFIGS[config])


@pytest.mark.parametrize('mpi, ranks, config, behaviour', matrix('persistent.c'))
def test_persistent_requests(mpi, ranks, config, behaviour, get_mpi, runner, with_sluice):
    runner.check(get_mpi(mpi), 'persistent.c', ranks, behaviour, sluice=with_sluice, env=CONFIGS[config])


@pytest.mark.parametrize('mpi, ranks, config, behaviour', matrix('persistent_ends.c'))
def test_ends_of_persistent_requests(mpi, ranks, config, behaviour, get_mpi, runner, with_sluice):
    runner.check(get_mpi(mpi), 'persistent_ends.c', ranks, behaviour, sluice=with_sluice, env=CONFIGS[config])


# ---- a rank without memory -------------------------------------------------------------------------

def with_fault_on(rank, fault, mpi, program, *names, ranks=2, env=None):
    """One rank cannot do something; what all say."""
    faults = [{'fault': fault if r == rank else ''} for r in range(ranks)]
    return mpi.launch(ranks, mpi.build(program), *names, env={**TAKEN, **(env or {})}, rank_env=faults,
                      timeout=100)


# its request, the rest of its part, the communicator of persistent ones, its group: there may be
# another fault before
@pytest.mark.parametrize('fault', ['request:3', 'request:all', 'persistent:2', 'persistent:all', 'lanes:1',
                                   'group:1',
                                   'group:2', 'offers:2'])
@pytest.mark.parametrize('rank', [0, 1])
def test_persistent_requests_are_all_ranks_or_none(fault, rank, get_mpi, with_sluice):
    if not with_sluice:
        pytest.skip('--plain')
    # some are MPICH's now, which do not bear its MPI_Testall
    names = [name for name, least in behaviours('persistent.c') if name not in ('very_many',
                                                                                'among_persistent_messages')]
    names = sorted(set(names))
    result = with_fault_on(rank, fault, get_mpi('mpich'), 'persistent.c', *names)
    assert all(f'ok {name}\n' in result.out for name in names) and result.status == 0, result.explain()


@pytest.mark.parametrize('rank', [0, 1])
@pytest.mark.parametrize('mpi', ['mpich', 'openmpi'])
def test_nobody_waits_for_a_rank_that_cannot_take_part(rank, mpi, get_mpi, with_sluice):
    if not with_sluice:
        pytest.skip('--plain')
    result = with_fault_on(rank, 'request:3', get_mpi(mpi), 'without_memory.c', 'all_are_told')
    assert 'ok all_are_told\n' in result.out and result.status == 0, result.explain()


@pytest.mark.parametrize('rank', [0, 1])
@pytest.mark.parametrize('mpi', ['mpich', 'openmpi'])
def test_a_request_ends_though_an_error_handler_leaves_the_call(rank, mpi, get_mpi, with_sluice):
    if not with_sluice:
        pytest.skip('--plain')
    name = 'after_a_handler_that_leaves_the_call'
    result = with_fault_on(rank, 'request:3', get_mpi(mpi), 'without_memory.c', name)
    assert f'ok {name}\n' in result.out and result.status == 0, result.explain()


# Open MPI does not report a message that is too long for its receive
def test_both_errors_of_one_call(get_mpi, with_sluice):
    if not with_sluice:
        pytest.skip('--plain')
    name = 'beside_the_error_of_a_message'
    result = with_fault_on(1, 'request:3', get_mpi('mpich'), 'without_memory.c', name)
    assert f'ok {name}\n' in result.out and result.status == 0, result.explain()
