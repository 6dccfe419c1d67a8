# SPDX-License-Identifier: BSD-3-Clause
"""Communicators that span nodes: on several hosts made of namespaces. Run alone: ./dev check mpi -k spanning"""
import pytest

from support import hosts
from support.behaviours import Report

# Segments so small that every message has several.
SMALL = {'SLUICE_SPAN': 'on', 'SLUICE_SPAN_SEGMENT': '4K', 'SLUICE_COLL_THRESHOLD': '1', 'SLUICE_COLL_REDUCE': 'on'}


@pytest.fixture(scope='session')
def get_hosts(tmp_path_factory):
    """get_hosts(3): so many, kept for the session; or the test is skipped with the reason."""
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


def run(some, mpi, ranks, program, *args, env, sluice=True, timeout=100):
    """The program, so many ranks on each host."""
    how = some.launcher(mpi, ranks)
    return mpi.launch(sum(ranks), mpi.build(program), *args, sluice=sluice, outer=how['outer'],
                      launcher=how['launcher'], env={**how['env'], **env}, timeout=timeout)


def counted(result, counter):
    """The counter on each rank (SLUICE_STATS=-)."""
    return [int(line.split()[1]) for line in result.err.splitlines() if line.split()[:1] == [counter]]


def check(result, names, counter='span_taken'):
    report = Report(result)
    assert result.status == 0, result.explain()
    assert [report.verdicts.get(name, ('none',))[0] for name in names] == ['ok'] * len(names), result.explain()
    assert not result.leftovers, result.leftovers
    taken = counted(result, counter)
    assert taken and all(taken), f'{counter}: {taken}'


PLACES = [('mpich', [1, 2, 1]), ('openmpi', [3, 1])]


@pytest.mark.parametrize('mpi, ranks', PLACES)
def test_broadcasts(mpi, ranks, get_mpi, get_hosts, with_sluice):
    result = run(get_hosts(len(ranks)), get_mpi(mpi), ranks, 'moves.c', 'bcast', env={**SMALL, 'SLUICE_STATS': '-'},
                 sluice=with_sluice)
    check(result, ['bcast'])


@pytest.mark.parametrize('mpi, ranks', PLACES)
def test_reductions(mpi, ranks, get_mpi, get_hosts, with_sluice):
    result = run(get_hosts(len(ranks)), get_mpi(mpi), ranks, 'reductions.c', 'allreduce', 'reduce',
                 env={**SMALL, 'SLUICE_STATS': '-'}, sluice=with_sluice)
    check(result, ['allreduce', 'reduce'])
