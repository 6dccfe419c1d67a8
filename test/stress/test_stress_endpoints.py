# SPDX-License-Identifier: BSD-3-Clause
"""Ranks that share an address space, for an hour, by name only: ./dev check stress -k programs_for_an_hour

STRESS_SECONDS makes the hour shorter, HARNESS_SEED begins with another program.
"""
import os
import time

import pytest

from support import mpi as mpis
from mpi.test_images import EARLY_AND_TAKEN, SWITCH, check, check_random_program

pytestmark = [pytest.mark.complete, pytest.mark.timeout(5400)]
WAYS = {'default': {}, 'taken': EARLY_AND_TAKEN}
NAMES = ['mpich', 'openmpi', 'impi', 'debian-mpich', 'debian-openmpi']
PLACES = [(2, 2), (4, 4), (4, 2), (3, 3), (8, 8), (16, 16), (6, 'core')] # ranks, of which share


def test_random_programs_for_an_hour(with_sluice):
    """All MPIs, schedulers and numbers of ranks in turn; each program plain first."""
    end = time.monotonic() + float(os.environ.get('STRESS_SECONDS', '3600'))
    seed = int(os.environ.get('HARNESS_SEED', time.time_ns() // 1000 % 10 ** 9))
    there = [name for name in NAMES if not mpis.ALL[name].missing()]
    turn = 0
    while time.monotonic() < end:
        (ranks, share), name = PLACES[turn % len(PLACES)], there[turn % len(there)]
        for switch in 'kernel', 'user':
            way = list(WAYS)[turn % len(WAYS)]
            print(f'{name} {ranks} ranks, {share} share, {switch}, {way}, seed {seed}', flush=True)
            check_random_program(mpis.ALL[name], ranks, share, switch, seed, 1000, with_sluice, WAYS[way])
        turn, seed = turn + 1, seed + 1


def test_a_million_barriers_of_64_ranks_on_one_cpu(with_sluice):
    check(mpis.need('mpich'), 64, 64, ['many_barriers'], with_sluice, 'turns.c', timeout=4000,
          outer=['taskset', '-c', str(min(os.sched_getaffinity(0)))],
          CHECK_BARRIERS='1000000', **{SWITCH: 'user'})
