# SPDX-License-Identifier: BSD-3-Clause
"""Messages that the host MPI reads from its sender: the same bytes from mapped memory, and counted.

Run alone: ./dev check mpi -k messages
"""
import json

import pytest

from support.behaviours import cases
from support.mpi import EARLY

EARNS = {'SLUICE_REGION_ADOPT_AFTER': '1', 'region_adopt_min': '16K'}
CONFIGS = {
    'adopt': EARNS,
    # regions are evicted all the time, also under a message
    'tight': {**EARNS, 'region_max': '2', 'region_pool': '0'},
    'alone': {**EARNS, 'SLUICE_COLL': 'all:off'},
}


@pytest.mark.parametrize('mpi, ranks, config, behaviour', (
    cases('messages.c', ['mpich', 'openmpi'], [2], CONFIGS) +
    cases('messages.c', ['debian-mpich', 'debian-openmpi'], [3], ['adopt'], pytest.mark.complete)))
def test_messages(mpi, ranks, config, behaviour, get_mpi, runner, with_sluice):
    runner.check(get_mpi(mpi), 'messages.c', ranks, behaviour, sluice=with_sluice, env=CONFIGS[config])


@pytest.mark.parametrize('mpi, ranks, config, behaviour',
                         cases('messages_threads.c', ['mpich', 'openmpi'], [2], CONFIGS) +
                         cases('messages_threads.c', ['mpich', 'openmpi'], [3], ['adopt'],
                               pytest.mark.complete))
def test_messages_of_threads(mpi, ranks, config, behaviour, get_mpi, runner, with_sluice):
    runner.check(get_mpi(mpi), 'messages_threads.c', ranks, behaviour, sluice=with_sluice,
                 env=CONFIGS[config])


OTHERS = {**CONFIGS, 'forced': EARLY}


# Debian's Open MPI returns wrong words to three ranks without Sluice as well.
@pytest.mark.parametrize('mpi, ranks, config, behaviour', (
    cases('messages_others.c', ['mpich', 'openmpi'], [2], ['adopt', 'forced']) +
    cases('messages_others.c', ['mpich', 'openmpi', 'debian-mpich'], [3], OTHERS, pytest.mark.complete) +
    cases('messages_others.c', ['debian-openmpi'], [2], OTHERS, pytest.mark.complete)))
def test_messages_beside_others(mpi, ranks, config, behaviour, get_mpi, runner, with_sluice):
    runner.check(get_mpi(mpi), 'messages_others.c', ranks, behaviour, sluice=with_sluice, env=OTHERS[config])


@pytest.mark.parametrize('mpi, ranks, config, behaviour', (
    cases('messages_memory.c', ['mpich', 'openmpi'], [2], ['adopt']) +
    cases('messages_memory.c', ['mpich', 'openmpi', 'debian-mpich', 'debian-openmpi'], [3], OTHERS,
          pytest.mark.complete)))
def test_messages_from_memory_that_changes(mpi, ranks, config, behaviour, get_mpi, runner, with_sluice):
    runner.check(get_mpi(mpi), 'messages_memory.c', ranks, behaviour, sluice=with_sluice, env=OTHERS[config])


@pytest.mark.parametrize('mpi, ranks, config, behaviour', (
    cases('messages_stopped.c', ['mpich', 'openmpi'], [3], ['adopt']) +
    cases('messages_stopped.c', ['mpich', 'openmpi'], [3], ['tight', 'forced'], pytest.mark.complete) +
    cases('messages_stopped.c', ['debian-mpich', 'debian-openmpi'], [3], ['adopt'], pytest.mark.complete)))
def test_messages_to_a_rank_that_is_stopped(mpi, ranks, config, behaviour, get_mpi, runner, with_sluice):
    runner.check(get_mpi(mpi), 'messages_stopped.c', ranks, behaviour, sluice=with_sluice, env=OTHERS[config])


@pytest.mark.parametrize('name', ['mpich', 'openmpi', 'debian-mpich', 'debian-openmpi'])
@pytest.mark.parametrize('option', ['auto', 'off'])
def test_messages_are_served_where_the_library_reads_them(get_mpi, tmp_path, name, option):
    mpi = get_mpi(name)
    result = mpi.launch(2, mpi.build('messages.c'), 'messages_of_all_sizes',
                        env={**EARNS, 'SLUICE_STATS': str(tmp_path / 'stats'), 'SLUICE_MESSAGES': option})
    assert result.status == 0, result.explain()
    for rank in range(2):
        counters = json.loads((tmp_path / f'stats.{rank}.json').read_text())
        if option == 'off':
            assert counters['messages'] == 0
        else:
            assert counters['bytes_messages'] > 50 << 20
            assert counters['messages_repeated'] < 10


@pytest.mark.parametrize('name, behaviour, sends', [
    *[(name, *copied) for name in ('mpich', 'openmpi') for copied in (
        ('nonblocking_sends_in_all_ways', 540), ('persistent_sends_of_16_kilobytes', 200))],
    ('openmpi', 'messages_of_4_kilobytes', 200), ('debian-openmpi', 'messages_of_4_kilobytes', 200)])
def test_copies_of_sends_are_read_and_end(get_mpi, tmp_path, name, behaviour, sends):
    """Without an end of each copy, no place would be left after some thirty of them. With a number of uses
    in place of costs, copies are made whether they pay or not. MPICH reads no message of 4 KiB."""
    mpi = get_mpi(name)
    result = mpi.launch(2, mpi.build('messages.c'), behaviour,
                        env={**EARNS, 'SLUICE_STATS': str(tmp_path / 'stats')})
    assert result.status == 0, result.explain()
    for rank in range(2):
        counters = json.loads((tmp_path / f'stats.{rank}.json').read_text())
        assert counters['messages'] > 0.8 * sends


@pytest.mark.parametrize('name', ['openmpi', pytest.param('debian-openmpi', marks=pytest.mark.complete)])
def test_no_copy_outlives_its_send_among_sends_with_one_handle(get_mpi, tmp_path, name, with_sluice):
    """UCX buffers messages of up to 32 KiB, and reads longer ones from their sender."""
    mpi = get_mpi(name)
    ucx = {'OMPI_MCA_pml': 'ucx', 'OMPI_MCA_osc': '^ucx', 'OMPI_MCA_pml_ucx_tls': 'any',
           'OMPI_MCA_pml_ucx_devices': 'any', 'UCX_TLS': 'self,sm,cma', 'UCX_RNDV_THRESH': '32k'}
    result = mpi.launch(2, mpi.build('messages.c'), 'sends_with_one_handle', sluice=with_sluice,
                        env={**EARNS, **ucx})
    assert result.status == 0 and 'ok sends_with_one_handle' in result.out, result.explain()
    assert '32 pairs had one handle' in result.out, result.explain()


@pytest.mark.parametrize('name', ['mpich', 'openmpi'])
def test_no_copy_outlives_a_call_that_an_error_handler_leaves(get_mpi, runner, name, with_sluice):
    runner.check(get_mpi(name), 'messages.c', 2, 'calls_that_an_error_handler_leaves', sluice=with_sluice,
                 env={**EARNS, 'coll:BCAST': 'off'})


@pytest.mark.parametrize('name', ['mpich', 'openmpi'])
def test_no_copies_of_sends_by_threads_of_a_session(get_mpi, tmp_path, name):
    """The pages of the messages are copied, and the kernel reads the bytes at their ends. Only the latter
    could come from copies, which several threads would confuse."""
    mpi = get_mpi(name)
    result = mpi.launch(2, mpi.build('messages_sessions.c'), 'threads_of_a_session_send_at_once',
                        env={**EARNS, 'SLUICE_STATS': str(tmp_path / 'stats')})
    assert result.status == 0, result.explain()
    if 'skip' in result.out:
        pytest.skip(f'{name}: the session does not provide MPI_THREAD_MULTIPLE')
    counters = json.loads((tmp_path / 'stats.0.json').read_text())
    assert counters['messages'] > 0
    assert counters['bytes_messages'] % 4096 == 0
