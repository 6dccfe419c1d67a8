# SPDX-License-Identifier: BSD-3-Clause
"""SLUICE_DECIDE: trials, figures. Run alone: ./dev check mpi -k decide"""
import json
import os

import pytest

# The first call connects, and three uses are a reused buffer.
MEASURE = {'SLUICE_DECIDE': 'measure', 'SLUICE_COLL': 'nonblocking:on', 'SLUICE_REGION_ADOPT_AFTER': '3'}
NAMES = ['one_kind', 'many_kinds', 'late_and_slow_ranks', 'exchanges', 'communicators_come_and_go']


def run(mpi, ranks, names, with_sluice, folder, env=None, rank_env=None):
    """Runs the behaviours; returns the counters summed over the ranks."""
    env = {**MEASURE, 'SLUICE_STATS': str(folder / 'stats'), **(env or {})}
    result = mpi.launch(ranks, mpi.build('decide.c'), *names, sluice=with_sluice, env=env, rank_env=rank_env)
    for name in names:
        assert f'ok {name}\n' in result.out, result.explain()
    assert result.status == 0 and not result.leftovers, result.explain()
    total = {}
    for path in folder.glob('stats.*.json'):
        for key, value in json.loads(path.read_text()).items():
            total[key] = total.get(key, 0) + value
    return total


@pytest.mark.parametrize('name, ranks', [('mpich', 2), ('openmpi', 3), ('impi', 2), ('debian-mpich', 4),
                                         ('debian-openmpi', 2)])
def test_decide_all_ranks_alike(name, ranks, get_mpi, with_sluice, tmp_path):
    total = run(get_mpi(name), ranks, NAMES, with_sluice, tmp_path)
    assert not with_sluice or total['trials'] >= 2 * ranks, total


@pytest.mark.parametrize('name, ranks', [('mpich', 2), ('openmpi', 3)])
@pytest.mark.parametrize('slow, least, most', [('slow_sluice', 4, 8), ('slow_host', 85, 96)])
def test_decide_for_the_faster(name, ranks, slow, least, most, get_mpi, with_sluice, tmp_path):
    """Times of 1 s more on one rank alone: the others decide likewise."""
    if not with_sluice:
        pytest.skip('--plain')
    rank_env = [{'fault': f'{slow}:all'}] + [{}] * (ranks - 1)
    total = run(get_mpi(name), ranks, ['one_kind'], with_sluice, tmp_path, rank_env=rank_env)
    assert least * ranks <= total['bcast_admitted'] <= most * ranks, total


@pytest.mark.parametrize('name', ['mpich', 'openmpi'])
def test_decide_in_new_buffers(name, get_mpi, with_sluice, tmp_path):
    """The first trial waits for no reuse. Sluice that won there goes on."""
    if not with_sluice:
        pytest.skip('--plain')
    total = run(get_mpi(name), 2, ['new_buffers'], with_sluice, tmp_path,
                rank_env=[{'fault': 'slow_host:all'}, {}])
    assert total['adopted'] == 0, total
    assert 2 * 85 <= total['alltoall_admitted'] <= 2 * 96, total
    assert 2 * 55 <= total['allreduce_admitted'] <= 2 * 60, total


@pytest.mark.parametrize('name, ranks', [('mpich', 3), ('openmpi', 2)])
@pytest.mark.parametrize('behaviour, family', [('long_sums', 'allreduce'),
                                               ('long_scattered_sums', 'reduce_scatter')])
@pytest.mark.parametrize('how', ['measure', 'table'])
def test_decide_how_long_sums_are_cut(name, ranks, how, behaviour, family, get_mpi, with_sluice, tmp_path):
    """Operands that ranks pack take little memory, and sums are right when ranks begin and cease to reuse
    their buffers. (That they are whole in between, test_early.py sees: only whole ones return early.)"""
    if not with_sluice:
        pytest.skip('--plain')
    env = {'SLUICE_SUMS': 'any', 'SLUICE_DECIDE': how,
           'SLUICE_COLL': f'{family}:on' if how == 'table' else MEASURE['SLUICE_COLL']}
    total = run(get_mpi(name), ranks, [behaviour], with_sluice, tmp_path, env=env,
                rank_env=[{'fault': 'slow_host:all'}] + [{}] * (ranks - 1))
    assert total[f'{family}_admitted'] >= 15 * ranks and total['adopted'] >= 2 * ranks, total


@pytest.mark.parametrize('name, ranks', [('mpich', 3), ('debian-openmpi', 2)])
def test_decide_about_exchanges(name, ranks, get_mpi, with_sluice, tmp_path):
    """The first eight calls go by, the ninth connects, and a trial follows."""
    if not with_sluice:
        pytest.skip('--plain')
    total = run(get_mpi(name), ranks, ['exchanges'], with_sluice, tmp_path,
                rank_env=[{'fault': 'slow_host:all'}] + [{}] * (ranks - 1))
    assert 75 * ranks <= total['alltoall_admitted'] <= 90 * ranks, total


@pytest.mark.parametrize('kind, family', [
    ('allgatherv', 'allgather'), ('gatherv', 'gather'), ('scatterv', 'scatter'),
    ('reduce_scatter', 'reduce_scatter'), ('reduce_scatter_block', 'reduce_scatter')])
def test_decide_about_kinds_with_lists(kind, family, get_mpi, with_sluice, tmp_path):
    """They join trials without an option."""
    if not with_sluice:
        pytest.skip('--plain')
    total = run(get_mpi('mpich'), 2, [f'{kind}_alone'], with_sluice, tmp_path,
                rank_env=[{'fault': 'slow_host:all'}, {}])
    assert total['trials'] >= 2 and 2 * 40 <= total[f'{family}_admitted'] <= 2 * 96, total


@pytest.mark.parametrize('name', ['mpich', 'debian-openmpi'])
def test_decide_about_short_calls(name, get_mpi, with_sluice, tmp_path):
    """A trial after 1024 all-to-alls of 24 KB, and after 512 reductions of 48 KB."""
    if not with_sluice:
        pytest.skip('--plain')
    total = run(get_mpi(name), 2, ['short_ones'], with_sluice, tmp_path,
                rank_env=[{'fault': 'slow_host:all'}, {}])
    assert 2 * 1000 <= total['alltoall_admitted'] <= 2 * 2000, total
    assert 2 * 100 <= total['allreduce_admitted'] <= 2 * 500, total
    assert total['reuse_asked'] <= 2 * 300, total


@pytest.mark.parametrize('slow, line, calls', [('slow_host', 'bcast.again = 262144', 100),
                                               ('slow_sluice', 'bcast.again = never', 0)])
def test_decide_as_an_earlier_run(slow, line, calls, get_mpi, with_sluice, tmp_path):
    """A run writes what its trials have shown; a later one has no trials, and the same decisions."""
    if not with_sluice:
        pytest.skip('--plain')
    mpi, figures = get_mpi('mpich'), tmp_path / 'my.figures'
    run(mpi, 2, ['one_kind'], with_sluice, tmp_path,
        env={'SLUICE_DECIDE': f'measure:{figures}', 'fault': f'{slow}:all'})
    assert f'\n{line}\n' in figures.read_text()
    later = tmp_path / 'later'
    later.mkdir()
    total = run(mpi, 2, ['one_kind'], with_sluice, later, env={'SLUICE_DECIDE': str(figures)})
    assert total['bcast_admitted'] == calls * 2 and not total['trials'], total


def test_decisions_written_to_a_device(get_mpi, with_sluice, tmp_path):
    """A file there would take its place (measure:/dev/stdout). Here it is a pipe."""
    if not with_sluice:
        pytest.skip('--plain')
    device = tmp_path / 'device'
    os.mkfifo(device)
    reader = os.open(device, os.O_RDWR | os.O_NONBLOCK)
    run(get_mpi('mpich'), 2, ['one_kind'], with_sluice, tmp_path, env={'SLUICE_DECIDE': f'measure:{device}'})
    assert device.is_fifo() and b'\nsluice-tune 1\n' in os.read(reader, 1 << 16)
    os.close(reader)
    assert not list(tmp_path.glob('device.*'))


@pytest.mark.parametrize('text, why', [(None, 'it does not exist'), ('hello\n', 'it is not a tune file'),
                                       ('sluice-tune 1\nmpi *\nbcast.again = soon\n', 'bcast.again'),
                                       ('sluice-tune 1\nmpi Other*\nbcast.again = 1M\n', 'this MPI')])
def test_decide_by_a_bad_file(text, why, get_mpi, with_sluice, tmp_path):
    if not with_sluice:
        pytest.skip('--plain')
    mpi, figures = get_mpi('mpich'), tmp_path / 'my.figures'
    if text:
        figures.write_text(text)
    result = mpi.launch(2, mpi.build('decide.c'), 'one_kind', env={'SLUICE_DECIDE': str(figures)})
    assert result.status == 0 and 'ok one_kind' in result.out, result.explain()
    assert result.err.count('SLUICE_DECIDE') == 2 and why in result.err, result.explain()


def test_decide_without_a_common_clock(get_mpi, with_sluice, tmp_path):
    """One rank's clock is an hour ahead: the figures decide, for Sluice."""
    if not with_sluice:
        pytest.skip('--plain')
    total = run(get_mpi('mpich'), 3, ['one_kind'], with_sluice, tmp_path,
                rank_env=[{}, {'fault': 'clock:all'}, {}])
    assert total['bcast_admitted'] >= 85 * 3, total


@pytest.mark.parametrize('name', ['mpich', 'openmpi'])
def test_decide_later_where_calls_are_few(name, get_mpi, with_sluice, tmp_path):
    """A program with a few collectives has no node group, however long they take."""
    if not with_sluice:
        pytest.skip('--plain')
    total = run(get_mpi(name), 2, ['communicators_come_and_go'], with_sluice, tmp_path,
                env={'SLUICE_COLL': 'auto', 'fault': 'slow_host:all'})
    assert total['groups'] == 0 and total['gather_admitted'] == 0, total


@pytest.mark.alone # the times of a rank without the fault count, too
@pytest.mark.parametrize('name', ['mpich', 'openmpi'])
@pytest.mark.parametrize('agree', [True, False], ids=['all', 'one'])
def test_decide_sooner_where_all_ranks_find_the_host_slow(name, agree, get_mpi, with_sluice, tmp_path):
    """The ranks agree long before the lower bound says so, and on no rank otherwise."""
    if not with_sluice:
        pytest.skip('--plain')
    slow = {'fault': 'slow_host:all'}
    total = run(get_mpi(name), 2, ['few_short_ones'], with_sluice, tmp_path, env={'SLUICE_COLL': 'auto'},
                rank_env=[slow, slow if agree else {}])
    assert total['groups'] == (2 if agree else 0), total


REQUESTS = {'SLUICE_COLL': 'auto', 'SLUICE_REGION_ADOPT_AFTER': '3', 'fault': 'connect:all'}
REQUEST_NAMES = ['requests_one_by_one', 'requests_at_once', 'requests_polled', 'requests_of_late_ranks',
                 'requests_across_blocking_calls', 'requests_of_freed_communicators']


@pytest.mark.parametrize('name', ['mpich', 'openmpi', 'impi', 'debian-mpich', 'debian-openmpi'])
def test_decide_about_requests_alike(name, get_mpi, with_sluice, tmp_path):
    total = run(get_mpi(name), 2, REQUEST_NAMES, with_sluice, tmp_path, env=REQUESTS)
    assert not with_sluice or total['trials'] >= 4, total


@pytest.mark.parametrize('name', ['mpich', 'openmpi'])
@pytest.mark.parametrize('behaviour, depth', [('requests_one_by_one', 1), ('requests_at_once', 3)])
@pytest.mark.parametrize('slow', ['slow_sluice', 'slow_host'])
def test_decide_about_requests_for_the_faster(name, behaviour, depth, slow, get_mpi, with_sluice, tmp_path):
    """Two trials where requests are active at once: the first one shows that."""
    if not with_sluice:
        pytest.skip('--plain')
    total = run(get_mpi(name), 2, [behaviour], with_sluice, tmp_path, env=REQUESTS,
                rank_env=[{'fault': f'connect:all,{slow}:all'}, {}])
    if slow == 'slow_sluice':  # in new memory and in mapped memory
        assert 2 * 4 <= total['bcast_admitted'] <= 2 * 4 * (1 + 2 * depth), total
    else:
        assert total['bcast_admitted'] >= 2 * 60 * depth, total


def test_decide_about_requests_as_an_earlier_run(get_mpi, with_sluice, tmp_path):
    if not with_sluice:
        pytest.skip('--plain')
    mpi, figures = get_mpi('mpich'), tmp_path / 'my.figures'
    run(mpi, 2, ['requests_one_by_one'], with_sluice, tmp_path,
        env={**REQUESTS, 'SLUICE_DECIDE': f'measure:{figures}', 'fault': 'connect:all,slow_sluice:all'})
    assert '\nibcast.again = never\n' in figures.read_text(), figures.read_text()
    later = tmp_path / 'later'
    later.mkdir()
    total = run(mpi, 2, ['requests_one_by_one'], with_sluice, later,
                env={**REQUESTS, 'SLUICE_DECIDE': str(figures)})
    assert not total['bcast_admitted'] and not total['trials'], total
