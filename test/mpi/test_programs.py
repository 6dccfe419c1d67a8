# SPDX-License-Identifier: BSD-3-Clause
"""Whole programs: other languages, other models, other tools. Run alone: ./dev check mpi -k fortran"""
import json
import os

import pytest

from support.build import compile_once
from support.mpi import EARLY
from support.paths import LIBRARY, PROGRAMS, SLUICE, SOURCES

ONE_BYTE = {'SLUICE_COLL_THRESHOLD': '1'}
MAIN = ['mpich', 'openmpi']
DEBIAN = ['debian-mpich', 'debian-openmpi']


def passed(result, what):
    """The program said ok, ended well and left nothing."""
    if f'skip {what}' in result.out:
        pytest.skip(result.out.strip())
    assert result.status == 0 and f'ok {what}' in result.out, result.explain()
    assert not result.leftovers, result.leftovers
    return result


def counters(prefix, ranks):
    """Counters that SLUICE_STATS=prefix wrote, summed over the ranks."""
    total = {}
    for path in prefix.parent.glob(prefix.name + '.*.json'):
        for name, value in json.loads(path.read_text()).items():
            total[name] = total.get(name, 0) + value
    assert total, f'no counters of {ranks} ranks at {prefix}'
    return total


@pytest.mark.parametrize('name', ['mpich', 'openmpi', 'abi', 'impi', *DEBIAN])
def test_calls_are_taken(name, get_mpi, with_sluice, tmp_path):
    """Large calls are really done by Sluice, small ones really passed on, on every ABI."""
    if not with_sluice:
        pytest.skip('--plain')
    mpi = get_mpi(name)
    result = mpi.launch(2, mpi.build('semantics.c'), 'same_buffer_many_times',
                        env={'SLUICE_STATS': str(tmp_path / 'stats')})
    passed(result, 'same_buffer_many_times')
    total = counters(tmp_path / 'stats', 2)
    assert total['bcast_admitted'] == 24 and total['gather_admitted'] == 24, total


@pytest.mark.parametrize('name', MAIN)
def test_small_calls_are_passed_on(name, get_mpi, with_sluice, tmp_path):
    if not with_sluice:
        pytest.skip('--plain')
    mpi = get_mpi(name)
    env = {'SLUICE_STATS': str(tmp_path / 'stats'), 'SLUICE_COLL_THRESHOLD': '100M'}
    passed(mpi.launch(2, mpi.build('semantics.c'), 'same_buffer_many_times', env=env),
           'same_buffer_many_times')
    total = counters(tmp_path / 'stats', 2)
    assert total['bcast_admitted'] == 0 and total['groups'] == 0, total


@pytest.mark.parametrize('name', DEBIAN)
@pytest.mark.parametrize('how', ['mpifh', 'usempi', 'f08'])
@pytest.mark.parametrize('threshold', ['1', pytest.param('64K', marks=pytest.mark.complete)])
def test_fortran(name, how, threshold, get_mpi, with_sluice, tmp_path):
    mpi = get_mpi(name)
    env = {'SLUICE_COLL_THRESHOLD': threshold, 'SLUICE_STATS': str(tmp_path / 'stats')}
    program = mpi.build(f'fortran_{how}.f90')
    passed(mpi.launch(2, program, sluice=with_sluice, env=env), 'fortran')
    if with_sluice:
        assert counters(tmp_path / 'stats', 2)['bcast_admitted'] >= 16


@pytest.mark.parametrize('name', DEBIAN)
@pytest.mark.parametrize('how', ['mpifh', 'f08'])
def test_fortran_requests(name, how, get_mpi, with_sluice, tmp_path):
    """Requests of ours and of the library's, completed from Fortran."""
    mpi = get_mpi(name)
    kinds = {f'coll:{kind}': 'on' for kind in ('BCAST', 'ALLGATHER', 'ALLREDUCE', 'NONBLOCKING')}
    passed(mpi.launch(2, mpi.build(f'fortran_requests_{how}.f90'), sluice=with_sluice,
                      env={**ONE_BYTE, **kinds, 'SLUICE_STATS': str(tmp_path / 'stats')}), 'fortran')
    if with_sluice:
        assert counters(tmp_path / 'stats', 2)['allreduce_admitted'] == 24


# Debian's Open MPI is of MPI 3, and no other has Fortran here
@pytest.mark.parametrize('name', ['debian-mpich'])
@pytest.mark.parametrize('how', ['mpifh', 'f08'])
def test_fortran_persistent(name, how, get_mpi, with_sluice, tmp_path):
    """Persistent collectives of ours among the library's messages, started and completed from Fortran."""
    mpi = get_mpi(name)
    kinds = {f'coll:{kind}': 'on' for kind in ('BCAST', 'ALLGATHER', 'ALLREDUCE', 'NONBLOCKING')}
    passed(mpi.launch(2, mpi.build(f'fortran_persistent_{how}.f90'), sluice=with_sluice,
                      env={**ONE_BYTE, **kinds, 'SLUICE_STATS': str(tmp_path / 'stats')}), 'fortran')
    if with_sluice: # each start counts
        assert counters(tmp_path / 'stats', 2)['allreduce_admitted'] == 24


@pytest.mark.parametrize('name', ['mpich', 'openmpi', 'debian-mpich', 'debian-openmpi'])
@pytest.mark.parametrize('env', [{}, ONE_BYTE], ids=['default', 'one_byte'])
def test_c_plus_plus(name, env, get_mpi, with_sluice):
    mpi = get_mpi(name)
    passed(mpi.launch(2, mpi.build('plus.cc'), sluice=with_sluice, env=env), 'plus')


LATE = {('mpich', 2, 'default'), ('mpich', 3, 'one_byte'), ('openmpi', 3, 'default'),
        ('openmpi', 2, 'one_byte'), ('impi', 2, 'default'), ('impi', 3, 'one_byte')}


@pytest.mark.parametrize('name, ranks, env', [
    pytest.param(name, ranks, env, id=f'{name}-{ranks}-{way}',
                 marks=() if (name, ranks, way) in LATE else pytest.mark.complete)
    for name in ('mpich', 'openmpi', 'impi') for ranks in (2, 3)
    for way, env in (('default', {}), ('one_byte', ONE_BYTE))])
def test_python_loads_mpi_late(name, ranks, env, get_mpi, with_sluice, tmp_path):
    mpi = get_mpi(name)
    env = {**env, 'SLUICE_STATS': str(tmp_path / 'stats')}
    passed(mpi.launch(ranks, mpi.python, SOURCES / 'late.py', sluice=with_sluice, env=env), 'late')
    if with_sluice:
        assert counters(tmp_path / 'stats', ranks)['bcast_admitted'] >= 8 * ranks


# MPICH 5.0 ends 1 of 400 launches so under load, without Sluice as well: the addresses that ranks
# exchange for a second session are sometimes incomplete (compare pmodels/mpich issue 7417).
SECOND_SESSION_FAILS = 'Fatal error in internal_Comm_create_from_group'


@pytest.mark.parametrize('name', ['mpich', 'openmpi', 'abi'])
def test_sessions(name, get_mpi, with_sluice):
    mpi = get_mpi(name)
    for _ in range(3):
        done = mpi.launch(2, mpi.build('sessions.c'), sluice=with_sluice, env=ONE_BYTE)
        if SECOND_SESSION_FAILS not in done.err:
            break
    passed(done, 'sessions')


@pytest.mark.parametrize('name', MAIN)
def test_collectives_inside_finalize(name, get_mpi, with_sluice):
    mpi = get_mpi(name)
    passed(mpi.launch(2, mpi.build('finalize.c'), sluice=with_sluice, env=EARLY, timeout=20), 'finalize')


@pytest.mark.parametrize('name', MAIN)
@pytest.mark.parametrize('children', ['plain', 'sluice'])
def test_spawn(name, children, get_mpi, with_sluice):
    """Children that run under Sluice or not; what parents and children do together must agree."""
    mpi = get_mpi(name)
    program = mpi.build('spawn.c')
    door = [SLUICE, 'run', program] if children == 'sluice' else [program]
    plain = mpi.launch(2, program, *door, sluice=False, timeout=30)
    if 'ok spawn' not in plain.out:
        pytest.skip(f'{name} cannot spawn here: {plain.explain()[-300:]}')
    for env in (ONE_BYTE, {'SLUICE_DECIDE': 'measure', 'fault': 'slow_host:all'}):
        passed(mpi.launch(2, program, *door, sluice=with_sluice, env=env, timeout=30), 'spawn')


@pytest.mark.parametrize('name', MAIN)
@pytest.mark.parametrize('nodes', ['ab', 'aab', 'abab'])
def test_nodes(name, nodes, get_mpi, with_sluice):
    """Ranks that say they are on different machines; communicators that span them are passed on."""
    mpi = get_mpi(name)
    rank_env = [{'node_name': node} for node in nodes]
    wanted = ['bcast_any_root', 'gather_any_root', 'split_dup_free', 'inter_communicator']
    result = mpi.launch(len(nodes), mpi.build('semantics.c'), *wanted, sluice=with_sluice, env=ONE_BYTE,
                        rank_env=rank_env)
    for name in wanted:
        passed(result, name)


@pytest.mark.parametrize('name', MAIN)
@pytest.mark.parametrize('odd', [{'SLUICE': 'off'}, {'SLUICE_COLL_THRESHOLD': '2M'},
                                 {'SLUICE_COL_BCAST': 'on'}], ids=['off', 'threshold', 'wrong'])
def test_ranks_with_different_options(name, odd, get_mpi, with_sluice):
    """One rank's options differ: all must still do the same thing."""
    mpi = get_mpi(name)
    result = mpi.launch(2, mpi.build('semantics.c'), 'bcast_any_root', 'gather_any_root',
                        sluice=with_sluice, rank_env=[{}, odd], timeout=40)
    passed(result, 'bcast_any_root')
    passed(result, 'gather_any_root')


@pytest.mark.parametrize('name', MAIN)
@pytest.mark.parametrize('order', ['before', 'after', 'linked'])
def test_another_pmpi_tool(name, order, get_mpi, with_sluice, tmp_path):
    """A profiler preloaded before or after Sluice, or linked in: it counts, and Sluice still works."""
    mpi = get_mpi(name)
    tool = compile_once(PROGRAMS / mpi.name / 'tool.so', mpi.compilers['cc'], ['-shared', '-fPIC'],
                        [SOURCES / 'lib/tool.c'], mpi.env())
    env = {'SLUICE_STATS': str(tmp_path / 'stats')}
    before, program, direct = [], mpi.build('semantics.c'), False
    if order == 'linked':
        program = mpi.build('semantics.c', extra=[str(SOURCES / 'lib/tool.c')], name='semantics-tool')
    elif order == 'before' or not with_sluice:
        before = ['env', f'LD_PRELOAD={tool}']
    else:
        before, direct = ['env', f'LD_PRELOAD={LIBRARY}:{tool}'], True
    result = mpi.launch(2, program, 'same_buffer_many_times', before=before, env=env,
                        sluice=with_sluice and not direct)
    passed(result, 'same_buffer_many_times')
    assert result.err.count('tool: 12 broadcasts, 12 gathers') == 2, result.explain()
    if with_sluice:
        assert counters(tmp_path / 'stats', 2)['bcast_admitted'] == 24


def test_intel_benchmarks(get_mpi, with_sluice):
    """IMB's Bcast and Gather as Intel ships them, unmodified."""
    mpi = get_mpi('impi')
    result = mpi.launch(2, mpi.bindir / 'IMB-MPI1', '-npmin', '2', '-iter', '8', '-msglog', '14:22', '-mem',
                        '1', 'Bcast', 'Gather', sluice=with_sluice, timeout=100)
    assert result.status == 0 and '4194304' in result.out, result.explain()


def test_stdout_is_the_programs_own(get_mpi, with_sluice):
    """Sluice prints nothing: stdout and stderr are those of the plain run."""
    mpi = get_mpi('mpich')
    program = mpi.build('semantics.c')
    plain = mpi.launch(2, program, 'comm_self', 'zero_counts', sluice=False)
    ours = mpi.launch(2, program, 'comm_self', 'zero_counts', sluice=with_sluice)
    assert (ours.out, ours.err, ours.status) == (plain.out, plain.err, plain.status)


AGAIN = {
    # behaviour: the share of its calls that are taken, at least and at most
    'used_again': (0.9, 1.0),
    'new_each_time': (0.0, 0.0),
    'one_rank_is_different': (0.0, 0.0),
    'ranks_change_their_minds': (0.0, 1.0),
}


@pytest.mark.parametrize('name, ranks', [('mpich', 3), ('openmpi', 2)])
@pytest.mark.parametrize('behaviour', AGAIN)
def test_taken_while_buffers_are_used_again(behaviour, name, ranks, get_mpi, with_sluice, tmp_path):
    """All ranks come to the same, whatever each does with its memory: else the job would hang."""
    mpi = get_mpi(name)
    passed(mpi.launch(ranks, mpi.build('again.c'), behaviour, sluice=with_sluice,
                      env={'SLUICE_STATS': str(tmp_path / 'stats')}), behaviour)
    if with_sluice:
        total = counters(tmp_path / 'stats', ranks)
        taken = total['alltoall_admitted'] / (total['alltoall_admitted'] + total['alltoall_passed'])
        assert AGAIN[behaviour][0] <= taken <= AGAIN[behaviour][1] and total['reuse_asked'], total


AGAIN_NONBLOCKING = {
    'used_again': (0.7, 1.0),
    'new_each_time': (0.0, 0.0),
    'one_rank_is_different': (0.0, 0.0),
    'ranks_change_their_minds': (0.0, 1.0),
    'no_blocking_call_any_more': (0.3, 0.8),
}


# alone: how soon ranks come decides what is admitted
@pytest.mark.alone
@pytest.mark.parametrize('name', ['mpich', 'openmpi'])
@pytest.mark.parametrize('behaviour', AGAIN_NONBLOCKING)
def test_nonblocking_taken_while_buffers_are_used_again(behaviour, name, get_mpi, with_sluice, tmp_path):
    """Nonblocking calls likewise, which may not wait for others; only where each rank has a CPU."""
    mpi, ranks = get_mpi(name), 2
    passed(mpi.launch(ranks, mpi.build('again_nonblocking.c'), behaviour, sluice=with_sluice,
                      env={'SLUICE_STATS': str(tmp_path / 'stats')}), behaviour)
    if with_sluice and len(os.sched_getaffinity(0)) >= ranks:
        total = counters(tmp_path / 'stats', ranks)
        taken = total['alltoall_admitted'] / (total['alltoall_admitted'] + total['alltoall_passed'])
        assert AGAIN_NONBLOCKING[behaviour][0] <= taken <= AGAIN_NONBLOCKING[behaviour][1], total
