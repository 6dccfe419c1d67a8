# SPDX-License-Identifier: BSD-3-Clause
"""Early return for long: an hour of random operations, two million collectives; by name only.

./dev check stress -k random_operations_for_an_hour; STRESS_SECONDS makes the hour shorter, STRESS_TURN
begins at that minute of it, HARNESS_SEED repeats a failure, --engine dsa uses this engine all the time.
"""
import os
import time

import pytest

from support import mpi as mpis
from support.behaviours import Runner
from support.engines import engine_env
from mpi.test_early import EARLY, KINDS, LONG, counters

pytestmark = [pytest.mark.complete, pytest.mark.timeout(5400)]
WAYS = {
    'sw': {'SLUICE_ENGINE': 'sw'},
    'none': {'SLUICE_ENGINE': 'none'},
    'delay': {'SLUICE_ENGINE': 'fault', 'engine_fault': 'delay=300'},
    'error': {'SLUICE_ENGINE': 'fault', 'engine_fault': 'error=50'},
    'short': {'SLUICE_ENGINE': 'fault', 'engine_fault': 'short=20'},
    'hang': {'SLUICE_ENGINE': 'fault', 'engine_fault': 'hang=200', 'engine_timeout': '50'},
    'few_regions': {'region_max': '2', 'region_pool': '0'},
    'small_fragments': {'xfer_fragment': '16K', 'engine_depth': '8'},
}
DEVICES = ['dsa', 'dsa_faults', 'dsa_shared', 'dsa_hang']
GUARDS = ['uffd', 'mremap', 'mprotect']
JOBS = [('mpich', 2), ('mpich', 3), ('openmpi', 2), ('mpich', 4)]


def run(name, ranks, program, behaviour, with_sluice, env, prefix, timeout, before=()):
    env = {**env, 'SLUICE_STATS': str(prefix)}
    runner = Runner({program: {behaviour}})
    report = runner.check(mpis.need(name), program, ranks, behaviour, sluice=with_sluice, env=env,
                          timeout=timeout, before=before)
    if with_sluice:
        total = counters(env['SLUICE_STATS'], report.result)
        assert total['early'] > 0, total
        assert env.get('SLUICE_ENGINE') not in ('sw', 'dsa') or total['bytes_engine'] > 0, total


def test_random_operations_for_an_hour(with_sluice, tmp_path, request):
    """All guards, engines and MPIs in turn, a minute each, until the time is over."""
    end = time.monotonic() + float(os.environ.get('STRESS_SECONDS', '3600'))
    seed = int(os.environ.get('HARNESS_SEED', time.time_ns() // 1000 % 10 ** 9))
    turn = int(os.environ.get('STRESS_TURN', '0'))
    engine = request.config.getoption('--engine')
    ways = [engine] if engine else [*WAYS, *DEVICES]
    while time.monotonic() < end:
        guard, way, (name, ranks) = GUARDS[turn % 3], ways[turn % len(ways)], JOBS[turn % len(JOBS)]
        seconds = max(5, min(60, end - time.monotonic()))
        env = {**EARLY, **KINDS, **(WAYS.get(way) or engine_env(way)), 'SLUICE_GUARD_KIND': guard,
               'HARNESS_SEED': str(seed + turn * 1000),
               'HARNESS_SECONDS': str(int(seconds))}
        print(f'{guard} {way} {name} {ranks} ranks, seed {seed + turn * 1000}', flush=True)
        run(name, ranks, 'early_random.c', 'random_operations', with_sluice, env, tmp_path / f's{turn}', 300)
        turn += 1


# All ranks on one CPU: then they sleep while they wait. Where each has its own they yield, which on
# a machine that
# others use as well costs whole time slices: hours for two million. No call is left to the MPI, which spins.
ON_ONE_CPU = ('taskset', '-c', str(min(os.sched_getaffinity(0))))
LONGER = {**LONG, 'SLUICE_COLL_THRESHOLD': '32K'}


@pytest.mark.parametrize('name, ranks, guard', [('mpich', 2, 'uffd'), ('mpich', 2, 'mremap'),
                                                ('openmpi', 2, 'mremap'), ('mpich', 2, 'mprotect')])
def test_two_million_collectives(name, ranks, guard, with_sluice, tmp_path):
    run(name, ranks, 'early_long.c', 'many_collectives', with_sluice,
        {**LONGER, 'SLUICE_GUARD_KIND': guard, 'HARNESS_COUNT': '2000000'}, tmp_path / 'stats', 5000,
        ON_ONE_CPU)


@pytest.mark.parametrize('name, ranks, guard', [('mpich', 2, 'uffd'), ('mpich', 2, 'mremap')])
def test_hundred_thousand_buffers_freed_meanwhile(name, ranks, guard, with_sluice, tmp_path):
    run(name, ranks, 'early_long.c', 'many_buffers_freed_meanwhile', with_sluice,
        {**LONGER, 'SLUICE_GUARD_KIND': guard, 'HARNESS_COUNT': '2000000'}, tmp_path / 'stats', 5000,
        ON_ONE_CPU)
