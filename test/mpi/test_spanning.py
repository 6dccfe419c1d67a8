# SPDX-License-Identifier: BSD-3-Clause
"""Communicators that span nodes: on several hosts made of namespaces. Run alone: ./dev check mpi -k
spanning"""
import subprocess
import sys
import threading

import pytest

from support import hosts
from support.behaviours import Report, behaviours
from support.mpi import EARLY, forced

# Segments so small that every message has several; all that can be served is.
SMALL = {'SLUICE_HIER': 'on', 'hier_segment': '16K', 'SLUICE_COLL_THRESHOLD': '1', 'SLUICE_STATS': '-',
         **{f'coll:{kind}': 'on' for kind in ('BCAST', 'REDUCE', 'ALLREDUCE', 'ALLGATHER', 'GATHER',
                                                     'SCATTER', 'ALLTOALL',
                                                'REDUCE_SCATTER', 'BARRIER')}}
LIMIT = 250


@pytest.fixture(scope='module')
def get_hosts(tmp_path_factory):
    """get_hosts(3): so many, kept for these tests; or the test is skipped with the reason."""
    why, made = hosts.missing(), {}

    def get(n):
        if why:
            pytest.skip(why)
        if n not in made:
            made[n] = hosts.Hosts(n, tmp_path_factory.mktemp(f'hosts{n}')).__enter__()
        return made[n]
    yield get
    for some in made.values():
        some.__exit__()


def run(some, mpi, ranks, program, *args, env, sluice=True, rank_env=None):
    """The program, so many ranks on each host."""
    how = some.launcher(mpi, ranks)
    return mpi.launch(sum(ranks), mpi.build(program), *args, sluice=sluice, outer=how['outer'],
                      rank_env=rank_env,
                      launcher=how['launcher'], env={**how['env'], **env}, timeout=LIMIT)


def counted(result, counter):
    """Least and most of a rank, of the table of each host; nothing where all are zero."""
    return [int(word) for line in result.err.splitlines() if line.split()[:1] == [counter]
            for word in line.split()[2:4]]


def check(result, names, sluice):
    """Each of these behaviours held, and was served over several nodes."""
    report = Report(result)
    assert result.status == 0, result.explain()
    assert [report.verdicts.get(name, ('none',))[0]
            for name in names] == ['ok'] * len(names), result.explain()
    assert not result.leftovers, result.leftovers
    taken = counted(result, 'hier_admitted')
    assert not sluice or (taken and all(taken)), f'hier_admitted: {taken}'
    return report


PLACES = [('mpich', [1, 2]), ('openmpi', [2, 1])]
OTHER_PLACES = [pytest.param(mpi, ranks, marks=pytest.mark.complete)
                for mpi in ('mpich', 'openmpi') for ranks in ([1, 2, 1], [2, 2], [3, 1], [1, 1, 1, 2],
                                                              [4, 2, 3])]
places = pytest.mark.parametrize('mpi, ranks', PLACES + OTHER_PLACES, ids=str)
# what does not depend on the MPI as much
one_place = pytest.mark.parametrize('mpi, ranks', PLACES[:1] +
                                    [pytest.param(*PLACES[1], marks=pytest.mark.complete)] +
                                    OTHER_PLACES, ids=str)


@places
def test_what_is_moved(mpi, ranks, get_mpi, get_hosts, with_sluice):
    names = ['bcast', 'allgather', 'allgatherv', 'gather', 'scatter', 'alltoall']
    check(run(get_hosts(len(ranks)), get_mpi(mpi), ranks, 'moves.c', *names, env=SMALL, sluice=with_sluice),
          names,
          with_sluice)


@one_place
def test_what_is_computed(mpi, ranks, get_mpi, get_hosts, with_sluice):
    names = ['allreduce', 'reduce', 'reduce_scatter', 'reduce_scatter_block']
    check(run(get_hosts(len(ranks)), get_mpi(mpi), ranks, 'reductions.c', *names, env=SMALL,
              sluice=with_sluice), names,
          with_sluice)


@places
def test_communicators(mpi, ranks, get_mpi, get_hosts, with_sluice):
    names = ['ranks_may_lie_in_any_order', 'some_ranks_only', 'threads_with_communicators_of_their_own']
    check(run(get_hosts(len(ranks)), get_mpi(mpi), ranks, 'spanning.c', *names, env=SMALL,
              sluice=with_sluice), names,
          with_sluice)


def test_each_kind_is_served(get_mpi, get_hosts):
    result = run(get_hosts(3), get_mpi('mpich'), [1, 2], 'spanning.c', 'each_kind_once', env=SMALL)
    check(result, ['each_kind_once'], True)
    kinds = 10
    assert set(counted(result, 'hier_admitted')) == {kinds + 1}, result.explain()  # the verdict: allreduce


def test_who_is_late_gets_what_was_sent(get_mpi, get_hosts, with_sluice):
    """In the middle of a chain, and at its end."""
    name = 'who_is_late_gets_what_was_sent'
    check(run(get_hosts(3), get_mpi('mpich'), [1, 1, 2], 'spanning.c', name,
              env={**SMALL, 'hier_segment': '160K'}, sluice=with_sluice), [name], with_sluice)


@one_place
def test_barriers(mpi, ranks, get_mpi, get_hosts, with_sluice, tmp_path):
    name = 'barriers_wait_for_all'
    check(run(get_hosts(len(ranks)), get_mpi(mpi), ranks, 'spanning.c', name,
              env={**SMALL, 'SPANNING_FOLDER': str(tmp_path)}, sluice=with_sluice), [name], with_sluice)


REQUESTS = ['requests_over_nodes', 'blocking_ones_come_after_requests',
            'requests_move_while_others_are_in_the_library']


@one_place
def test_nonblocking(mpi, ranks, get_mpi, get_hosts, with_sluice):
    result = run(get_hosts(len(ranks)), get_mpi(mpi), ranks, 'spanning.c', *REQUESTS,
                 env={**SMALL, 'coll:nonblocking': 'on', 'coll:gather': 'on'},
                 sluice=with_sluice)
    report = check(result, REQUESTS, with_sluice)
    has_threads = '1' in report.notes['requests_over_nodes'][0].split()
    assert not with_sluice or not has_threads or min(counted(result,
                                                             'bcast_admitted')) > sum(ranks), result.explain()


@pytest.mark.parametrize('threads', ['0', pytest.param('1', marks=pytest.mark.complete)])
def test_nonblocking_ones_are_served_where_threads_may_call(threads, get_mpi, get_hosts):
    """Elsewhere nobody could make them progress while this rank is in a call of the library's."""
    name = 'every_form_of_wait_and_test_completes_collectives_among_messages'
    result = run(get_hosts(3), get_mpi('mpich'), [1, 2], 'requests.c', name,
                 env={**SMALL, 'coll:nonblocking': 'on', 'HARNESS_THREAD_MULTIPLE': threads})
    check(result, [name], True)
    assert all(counted(result, 'bcast_admitted') or [0]) == (threads == '1'), result.explain()


@pytest.mark.complete
@places
def test_communicators_come_and_go(mpi, ranks, get_mpi, get_hosts, with_sluice):
    check(run(get_hosts(len(ranks)), get_mpi(mpi), ranks, 'spanning.c', 'communicators_come_and_go',
              env=SMALL,
              sluice=with_sluice), ['communicators_come_and_go'], with_sluice)


def test_floats_are_the_same_from_run_to_run(get_mpi, get_hosts):
    name = 'floats_are_the_same_everywhere'
    notes = [check(run(get_hosts(3), get_mpi('mpich'), [1, 2, 1], 'spanning.c', name, env=SMALL), [name],
                   True).notes
             for _ in range(2)]
    assert notes[0] == notes[1]


def test_without_the_option_it_is_the_host_mpis(get_mpi, get_hosts):
    result = run(get_hosts(3), get_mpi('mpich'), [2, 1], 'spanning.c', 'ranks_may_lie_in_any_order',
                 env={**SMALL, 'SLUICE_HIER': 'off'})
    check(result, ['ranks_may_lie_in_any_order'], False)
    assert not counted(result, 'hier_admitted')


def test_ranks_that_are_each_alone_are_the_host_mpis(get_mpi, get_hosts):
    result = run(get_hosts(3), get_mpi('mpich'), [1, 1], 'spanning.c', 'ranks_may_lie_in_any_order',
                 env=SMALL)
    check(result, ['ranks_may_lie_in_any_order'], False)
    assert not counted(result, 'hier_admitted')


def test_different_options_are_the_host_mpis(get_mpi, get_hosts):
    name = 'ranks_may_lie_in_any_order'
    result = run(get_hosts(3), get_mpi('mpich'), [2, 1], 'spanning.c', name, env=SMALL,
                 rank_env=[{'hier_segment': '32K'}] * 2 + [{'hier_segment': '64K'}])
    check(result, [name], False)
    assert not counted(result, 'hier_admitted')


# ---- nodes by name
# -----------------------------------------------------------------------------------------------
# Ranks that say on which node they are, in any order: what does not need another network.

ALL = {**SMALL, 'coll:nonblocking': 'on', 'HARNESS_THREAD_MULTIPLE': '1'}


def run_named(mpi, nodes, program, *names, env=ALL, sluice=True, faults=None):
    """faults: by rank."""
    rank_env = [{'node_name': node, 'fault': (faults or {}).get(r, '')} for r,
                node in enumerate(nodes)]
    return mpi.launch(len(nodes), mpi.build(program), *names, sluice=sluice, rank_env=rank_env, env=env,
                      timeout=LIMIT)


OTHER_NAMES = [pytest.param(mpi, nodes, marks=pytest.mark.complete)
               for mpi in ('mpich', 'openmpi', 'impi') for nodes in ('aab', 'abba', 'abcab', 'abcdefa')]
named = pytest.mark.parametrize('mpi, nodes', [('mpich', 'abab'), *OTHER_NAMES])


@named
@pytest.mark.parametrize('name', ['lengths_around_those_at_which_messages_are_cut',
                                  'elements_that_do_not_divide_segments',
                                  'nothing_grows', 'threads_with_requests_on_communicators_of_their_own',
                                  'threads_go_with_their_communicators'])
def test_nodes_by_name(mpi, nodes, name, get_mpi, with_sluice):
    check(run_named(get_mpi(mpi), nodes, 'spanning.c', name, sluice=with_sluice), [name], with_sluice)


@named
def test_between_parts_others_may_write(mpi, nodes, get_mpi, with_sluice):
    """Memory is adopted by a thread of ours while the program goes on."""
    name = 'between_parts_others_may_write'
    check(run_named(get_mpi(mpi), nodes, 'threads.c', name, sluice=with_sluice, env={
        **ALL, 'hier_segment': '0', 'SLUICE_REGION_KIND': 'arena',
        'SLUICE_REGION_ADOPT_AFTER': '0'}), [name], with_sluice)


EARLY_NAMED = [('mpich', 'aab', 'uffd')] + [pytest.param(mpi, nodes, guard, marks=pytest.mark.complete)
                                            for mpi in ('mpich', 'openmpi') for nodes in ('aab', 'abab')
                                            for guard in ('mremap', 'mprotect')]


@pytest.mark.parametrize('mpi, nodes, guard', EARLY_NAMED)
def test_what_is_pending_inside_a_node(mpi, nodes, guard, get_mpi, with_sluice):
    if forced.get('SLUICE_ENDPOINTS_SWITCH') == 'user':
        pytest.skip('ranks that switch do not return early')
    names = ['what_is_pending_is_sent_on', 'what_is_pending_is_received_into']
    env = {**SMALL, **EARLY, 'hier_segment': '64K', 'SLUICE_GUARD_KIND': guard, 'NODES': nodes}
    result = run_named(get_mpi(mpi), nodes, 'spanning_early.c', *names, env=env, sluice=with_sluice)
    check(result, names, with_sluice)
    assert not with_sluice or sum(counted(result, 'early')), result.explain()


@named
@pytest.mark.parametrize('program', ['matrix.c', pytest.param('reductions.c', marks=pytest.mark.complete),
                                     pytest.param('moves.c', marks=pytest.mark.complete)])
def test_what_is_known_to_be_right(mpi, nodes, program, get_mpi, with_sluice):
    """Programs that pass inside a node pass in segments of a few elements."""
    names = [name for name, ranks in behaviours(program) if ranks <= len(nodes)]
    env = {**ALL, 'hier_segment': '600' if program == 'matrix.c' else '4K', 'HARNESS_EACH': '2000'}
    check(run_named(get_mpi(mpi), nodes, program, *names, sluice=with_sluice, env=env), names, with_sluice)


def test_segments_shorter_than_a_node_has_ranks(get_mpi):
    check(run_named(get_mpi('mpich'), 'aabab', 'spanning.c', 'few_bytes',
                    env={**ALL, 'hier_segment': '1'}),
          ['few_bytes'], True)


@pytest.mark.parametrize('fault, is_served', [('hier_bootstrap:1', False), ('hier_thread:1', True)])
def test_one_rank_lacks_something(fault, is_served, get_mpi):
    """Then nothing of the kind is served anywhere."""
    name = 'requests_over_nodes'
    result = run_named(get_mpi('mpich'), 'aab', 'spanning.c', name, faults={1: fault})
    check(result, [name], is_served)
    assert is_served or not counted(result, 'hier_admitted'), result.explain()


@pytest.mark.parametrize('rank, fault', [(1, 'hier_start:2'), (2, 'hier_wait:5')] + [
    pytest.param(rank, fault, marks=pytest.mark.complete)
    for rank in range(3) for fault in ('hier_start:1', 'hier_piece:3', 'hier_wait:2')])
def test_requests_that_fail(rank, fault, get_mpi):
    name = 'failed_requests'
    report = check(run_named(get_mpi('mpich'), 'aab', 'spanning.c', name, faults={rank: fault}), [name], True)
    errors = {note.split()[1]: int(note.split()[2]) for note in report.notes[name]}
    assert len(errors) == 3 and errors[f'{rank}:'], report.result.explain()


# ---- failures ------------------------------------------------------------------------------------
# ----------------

# The rank that fails, where, and the ranks that are told: all whose results would be wrong.
FAILURES = [('bcast', 2, 'hier_wait:2', '0011'), ('allreduce', 2, 'hier_wait:3', '1111'),
            ('allreduce', 1, 'hier_piece:1', '1111'), ('allgather', 3, 'hier_piece:2', '1111'),
            ('gather', 3, 'hier_piece:2', '1011'), ('scatter', 2, 'hier_wait:3', '0011'),
            ('alltoall', 1, 'hier_piece:2', '1111'), ('reduce_scatter', 2, 'hier_wait:2', '1111')]
FAILURES += [pytest.param(*failure, marks=pytest.mark.complete) for failure in [
    ('bcast', 0, 'hier_piece:1', '1111'), ('allreduce', 0, 'hier_piece:9', '1111'),
    ('allgather', 2, 'hier_wait:3', '1111'), ('gather', 2, 'hier_wait:2', '1011'),
    ('scatter', 0, 'hier_piece:1', '1111'),
    ('barrier', 3, 'hier_piece:1', '1111'), ('barrier', 0, 'hier_wait:1', '1100'),
    ('alltoall', 2, 'hier_wait:3', '1111'), ('reduce_scatter', 0, 'hier_piece:3', '1111')]]


@pytest.mark.parametrize('kind, rank, fault, told', FAILURES)
def test_an_error_reaches_all_who_need_to_know(kind, rank, fault, told, get_mpi, get_hosts):
    rank_env = [{'fault': fault if r == rank else ''} for r in range(4)]
    result = run(get_hosts(3), get_mpi('mpich'), [2, 2], 'spanning.c', f'failed_{kind}', env=SMALL,
                 rank_env=rank_env)
    report = check(result, [f'failed_{kind}'], False)
    assert sorted(report.notes[f'failed_{kind}']) == [f'rank {r}: {told[r]}'
                                                      for r in range(4)], result.explain()


def breaks(some, program, ready, how):
    """Waits for the file `ready`; then the network of the second host is in trouble. None: it is
    left alone."""
    def trouble():
        if not ready.wait() or not how:
            return
        if how == 'closed':
            some.close_connections(1, program)
        else:
            some.cut(1)
            ready.pause()
            some.mend(1)
    thread = threading.Thread(target=trouble, daemon=True)
    thread.start()
    return thread


class Ready:
    """A file that a program makes."""

    def __init__(self, path):
        self.path, self.over = path, threading.Event()

    def wait(self):
        while not self.path.exists():
            if self.over.wait(0.01):
                return False
        return True

    def pause(self):
        self.over.wait(1)


def run_broken(some, mpi, kind, how, tmp_path):
    ready = Ready(tmp_path / 'ready')
    thread = breaks(some, 'spanning_cut', ready, how)
    try:
        return run(some, mpi, [2, 1], 'spanning_cut.c', kind, str(1 << 18), ready.path,
                   env={**SMALL, 'hier_segment': '64K', 'coll:nonblocking': 'on'})
    finally:
        ready.over.set()
        thread.join()


CLOSES = """
import socket, subprocess
server = socket.create_server(('127.0.0.1', 0))
client = socket.create_connection(server.getsockname())
subprocess.run(['ss', '-K', 'dport', '=', f':{server.getsockname()[1]}'], stdout=subprocess.DEVNULL)
client.settimeout(1)
try:
    client.recv(1)
except ConnectionError:
    print('closed')
"""


def can_close_connections(some):
    """Kernels may be built without."""
    done = subprocess.run([*some.inside(1), sys.executable, '-c', CLOSES], capture_output=True, text=True)
    return done.stdout == 'closed\n'


@pytest.mark.parametrize('mpi, kind', [('mpich', 'allreduce'), ('openmpi', 'bcast'), ('mpich', 'iallreduce'),
                                       pytest.param('openmpi', 'gather', marks=pytest.mark.complete),
                                       pytest.param('mpich', 'gather', marks=pytest.mark.complete),
                                       pytest.param('openmpi', 'iallreduce', marks=pytest.mark.complete),
                                       pytest.param('mpich', 'bcast', marks=pytest.mark.complete),
                                       pytest.param('openmpi', 'allreduce', marks=pytest.mark.complete)])
def test_connections_that_break_end_the_job(mpi, kind, get_mpi, get_hosts, tmp_path):
    """Both host MPIs abort, whatever the error handler says; nobody may be left waiting."""
    some = get_hosts(3)
    if not can_close_connections(some):
        pytest.skip('ss cannot close connections here')
    result = run_broken(some, get_mpi(mpi), kind, 'closed', tmp_path)
    assert not result.timed_out and result.status, result.explain()
    assert 'wrong:' not in result.out, result.explain()
    assert not result.leftovers, result.leftovers


@pytest.mark.parametrize('mpi, kind', [('mpich', 'allreduce'),
                                       pytest.param('openmpi', 'gather', marks=pytest.mark.complete),
                                       pytest.param('mpich', 'iallreduce', marks=pytest.mark.complete),
                                       pytest.param('openmpi', 'allreduce', marks=pytest.mark.complete)])
def test_a_rank_that_is_killed_ends_the_job(mpi, kind, get_mpi, get_hosts, tmp_path):
    """On another node than the others, in the middle: these wait for messages of its, and nothing
    of ours is left on any node."""
    some = get_hosts(3)
    result = run_broken(some, get_mpi(mpi), f'killed-{kind}', None, tmp_path)
    assert not result.timed_out and result.status, result.explain()
    assert 'wrong:' not in result.out and 'ok:' not in result.out, result.explain()
    assert not result.leftovers, result.leftovers
    assert not [some.shared_memory(i, 'sluice') for i in range(2) if some.shared_memory(i, 'sluice')]


def test_a_network_that_comes_back_is_waited_for(get_mpi, get_hosts, tmp_path):
    """While it is silent the host MPIs wait, and we with them: then all goes on, and every result
    is right."""
    result = run_broken(get_hosts(3), get_mpi('mpich'), 'finite-allreduce', 'silent', tmp_path)
    assert result.status == 0 and result.out.count('ok: rank') == 3, result.explain()
    assert all(counted(result, 'hier_admitted')), result.explain()
