# SPDX-License-Identifier: BSD-3-Clause
"""GOAL's public functions over communicators, in a program linked with libsluice-goal: without
libsluice.so in the process, and with it. Run alone: ./dev check mpi -k goal_api"""
import pytest

from support.paths import LIBRARY, PREFIX

EXTRA = ['-I', str(PREFIX / 'include'), '-Wl,--no-as-needed', f'-L{LIBRARY.parent}', '-lsluice-goal',
         f'-Wl,-rpath,{LIBRARY.parent}']
NAMES = ['goal_small_sum', 'goal_large_sum', 'goal_on_halves', 'goal_beside_mpi', 'goal_after_mpi',
         'goal_in_threads_beside_mpi', 'goal_while_ranks_wait_in_mpi']
# Every collective runs over adopted memory and returns early.
EARLY = {'SLUICE_COLL_THRESHOLD': '1', 'SLUICE_REGION_ADOPT_AFTER': '0', 'SLUICE_EARLY': 'on',
         'SLUICE_EARLY_MIN': '1'}


@pytest.mark.parametrize('ranks', [2, 4])
@pytest.mark.parametrize('name', ['mpich', 'openmpi'])
@pytest.mark.parametrize('guard', [None, 'mprotect', 'mremap'])
def test_goal_api(name, ranks, guard, get_mpi):
    mpi = get_mpi(name)
    env = {**EARLY, 'SLUICE_GUARD_KIND': guard} if guard else {}
    result = mpi.launch(ranks, mpi.build('goal.c', EXTRA), sluice=bool(guard), env=env, timeout=100)
    for behaviour in NAMES:
        if behaviour != 'goal_on_halves' or ranks >= 4:
            assert f'ok {behaviour}\n' in result.out, result.explain()
    assert result.status == 0 and not result.leftovers, result.explain()
