# SPDX-License-Identifier: BSD-3-Clause
"""sluice trace: nonblocking and persistent collectives, and reductions.

Run alone: ./dev check tools -k trace_requests
"""
import json
import re

import pytest

from cli import PROGRAMS
from support.mpi import need
from support.paths import SLUICE

ALL = [f'--set=COLL_{name}=on' for name in ('NONBLOCKING', 'ALLTOALL', 'REDUCE', 'ALLREDUCE', 'SCAN',
                                            'REDUCE_SCATTER',
                                            'BCAST', 'GATHER')] + ['--set=COLL_THRESHOLD=1']
WORKER = ['--set=WORKER_KIND=process', '--set=ENGINE_CPUS=0-1', '--set=WORKERS=1']


def trace(mpi, folder, *words, ranks=2, rounds=4, **more):
    done = mpi.launch(ranks, SLUICE, 'trace', '-o', folder, *words,
                      mpi.build(PROGRAMS / 'traced_requests.c'), str(rounds),
                      sluice=False, timeout=100, **more)
    assert done.status == 0 and not done.leftovers, done.explain()
    return done


def counted(done):
    """Returns the counts that the ranks print: {function: [calls, bytes, received]}"""
    sums = {}
    for name, *numbers in re.findall(r'(\w+) (\d+) (\d+) (\d+)$', done.out, re.M):
        sums[name] = [a + int(b) for a, b in zip(sums.get(name, [0, 0, 0]), numbers)]
    assert len(sums) == 14, done.out
    return sums


def places(folder):
    text = (folder / 'timeline.html').read_text()
    meta = re.search(r'<script id="meta" type="application/json">(.*?)</script>', text, re.S).group(1)
    return {p['function']: p for p in json.loads(meta)['places'] if p['calls']}


def moved(place):
    return place['own'] + place['peers'] + place['channel']


def events(folder, category):
    return [e for e in json.loads((folder / 'trace.json').read_text())['traceEvents']
            if e.get('cat') == category]


@pytest.mark.parametrize('name', ['mpich', 'openmpi'])
@pytest.mark.parametrize('words, ranks', [((), 2), ((), 3), (WORKER, 2)], ids=['two', 'three', 'worker'])
def test_calls_and_moved_bytes_are_the_programs_own_counts(name, words, ranks, tmp_path):
    done = trace(need(name), tmp_path / 't', *ALL, *words, ranks=ranks,
                 env={'fault': 'worker_idle:all'} if words else None)
    found, want = places(tmp_path / 't'), counted(done)
    # Before each of two sums of more than 512 KB the ranks agree, by a word each, whether they reuse buffers.
    want['now_scatter_sums'][2] += 2 * 8 * ranks
    assert {name: [found[name]['calls'], found[name]['bytes'], moved(found[name])] for name in want} == want
    for name, (calls, _, _) in want.items():
        is_later = name.startswith(('later', 'many', 'again'))
        assert found[name]['admitted'] == calls and found[name]['started'] == (calls if is_later else 0), name


def test_what_passes_says_why(tmp_path):
    done = trace(need('mpich'), tmp_path / 't', '--set=COLL_NONBLOCKING=off', '--set=COLL_REDUCE=off')
    found, want = places(tmp_path / 't'), counted(done)
    assert 'again_bcast' not in found # the trace does not record persistent requests of the host MPI
    del want['again_bcast']
    assert {name: [found[name]['calls'], found[name]['bytes']] for name in want} == {n: w[:2] for n,
                                                                                     w in want.items()}
    assert not any(found[name]['admitted'] + found[name]['started'] for name in want
                   if name.startswith(('later', 'many')))
    summary = (tmp_path / 't/summary.txt').read_text()
    assert 'x by the host MPI: SLUICE_COLL has nonblocking:off\n' in summary
    assert 'x by the host MPI: SLUICE_COLL has reduce:off\n' in summary


@pytest.mark.parametrize('name', ['mpich', 'openmpi'])
@pytest.mark.parametrize('words', [(), ('--set=COLL_VECTOR=on',)], ids=['host', 'sluice'])
def test_bytes_of_calls_whose_sizes_ranks_do_not_share(name, words, tmp_path):
    mpi = need(name)
    done = mpi.launch(2, SLUICE, 'trace', '-o', tmp_path / 't', *words,
                      mpi.build(PROGRAMS / 'traced_vectors.c'), sluice=False, timeout=100)
    assert done.status == 0 and not done.leftovers, done.explain()
    want = {}
    for function, bytes in re.findall(r'(do_\w+) (\d+)', done.out):
        want[function] = want.get(function, 0) + int(bytes)
    assert len(want) == 6, done.out
    assert {function: p['bytes'] for function, p in places(tmp_path / 't').items()} == want


def test_a_request_is_pending_from_its_call_to_its_end(tmp_path):
    trace(need('mpich'), tmp_path / 't', *ALL)
    calls, ends = events(tmp_path / 't', 'started'), events(tmp_path / 't', 'pending')
    assert len(calls) == len(ends) == sum(p['started'] for p in places(tmp_path / 't').values())
    for function in ('later_allreduce', 'many_allreduces'):
        begins = sorted((e['pid'], e['ts']) for e in calls if e['args']['function'] == function)
        pending = sorted((e['pid'], e['ts'], e['dur']) for e in ends if e['args']['function'] == function)
        assert [p for p, _ in begins] == [p for p, _, _ in pending]
        # it is pending from its call on, and not complete before the end of the call
        assert all(b[1] - 1 <= e[1] for b, e in zip(begins, pending)) and all(e[2] >= 0 for e in pending)
    # each moment of a wait for many requests counts once
    place = places(tmp_path / 't')['many_allreduces']
    everything = max(e['ts'] + e['dur'] for e in ends) - min(e['ts'] for e in calls)
    assert 0 < place['waited_ns'] <= 2 * 1000 * everything
    assert 'after the call: pending for ' in (tmp_path / 't/summary.txt').read_text()
