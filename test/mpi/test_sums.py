# SPDX-License-Identifier: BSD-3-Clause
"""The bits of floating point reductions (SLUICE_SUMS). Run alone: ./dev check mpi -k sums"""
import json

import pytest

from support.behaviours import behaviours

PROGRAM = 'sums.c'
RANKS = 4
NAMES = [name for name, _ in behaviours(PROGRAM)]
ALL = {'SLUICE_SUMS': 'fixed', 'SLUICE_COLL_THRESHOLD': '1', 'SLUICE_REGION_ADOPT_AFTER': '1',
       **{f'coll:{kind}': 'on' for kind in ['allreduce', 'reduce', 'reduce_scatter', 'scan', 'nonblocking']}}
LIKE_HOST = ['allreduce', 'allreduce_in_place', 'iallreduce', 'floats', 'operation_of_the_program']
WAYS = {
    'mapped': {'SLUICE_REGION_KIND': 'arena'},
    'cma': {'SLUICE_REGION_KIND': 'cma'},
    'staged': {'SLUICE_REGION_KIND': 'staged'},
    'worker': {'SLUICE_EARLY': 'on', 'SLUICE_EARLY_MIN': '1', 'SLUICE_WORKERS': '1', 'worker_cpus': '1'},
}


def said(report):
    return {name: report.said_by(name) for name in NAMES}


def run(runner, mpi, sluice=True, env=None):
    for name in NAMES:
        report = runner.check(mpi, PROGRAM, RANKS, name, sluice=sluice, env=env)
    return report


def admitted(prefix, counter):
    files = list(prefix.parent.glob(f'{prefix.name}.*.json'))
    assert len(files) == RANKS
    return sum(json.loads(path.read_text()).get(counter, 0) for path in files)


@pytest.mark.parametrize('name', ['mpich', 'openmpi'])
def test_sums_of_the_host_mpi(name, get_mpi, runner, tmp_path):
    mpi = get_mpi(name)
    plain = run(runner, mpi, sluice=False)
    env = {**ALL, 'SLUICE_SUMS': 'host', 'SLUICE_STATS': str(tmp_path / 'stats')}
    assert said(run(runner, mpi, env=env)) == said(plain)
    assert admitted(tmp_path / 'stats', 'allreduce_admitted') >= RANKS * 8  # whole_numbers


@pytest.mark.parametrize('way', WAYS)
def test_sums_in_one_order(way, get_mpi, runner):
    report = run(runner, get_mpi('mpich'), env={**ALL, **WAYS[way], 'HARNESS_ORDER': '1'})
    reference = run(runner, get_mpi('openmpi'), env={**ALL, **WAYS['mapped'], 'HARNESS_ORDER': '1'})
    assert said(report) == said(reference)


@pytest.mark.parametrize('name', ['mpich', 'openmpi'])
def test_allreduces_as_by_the_host_mpi(name, get_mpi, runner):
    """Both MPIs combine messages of this size by recursive doubling."""
    mpi = get_mpi(name)
    plain, ours = said(run(runner, mpi, sluice=False)), said(run(runner, mpi, env=ALL))
    assert {n: ours[n] for n in LIKE_HOST} == {n: plain[n] for n in LIKE_HOST}


@pytest.mark.parametrize('decide', ['table', 'measure'])
@pytest.mark.parametrize('name', ['mpich', 'openmpi'])
def test_equal_calls_give_equal_bits(name, decide, get_mpi, runner):
    env = {'SLUICE_DECIDE': decide, 'SLUICE_SUMS': 'fixed', 'fault': 'slow_sluice:all',
           'coll:nonblocking': 'on'}
    run(runner, get_mpi(name), env=env)
