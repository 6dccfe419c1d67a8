# SPDX-License-Identifier: BSD-3-Clause
"""GOAL's public functions over communicators, in a program linked with libsluice-goal. Run alone:
./dev check mpi -k goal_api"""
import pytest

from support.paths import LIBRARY, PREFIX

EXTRA = ['-I', str(PREFIX / 'include'), '-Wl,--no-as-needed', f'-L{LIBRARY.parent}', '-lsluice-goal',
         f'-Wl,-rpath,{LIBRARY.parent}']
NAMES = ['goal_small_sum', 'goal_large_sum', 'goal_on_halves', 'goal_beside_mpi',
         'goal_in_threads_beside_mpi']


@pytest.mark.parametrize('ranks', [2, 4])
@pytest.mark.parametrize('name', ['mpich', 'openmpi'])
def test_goal_api(name, ranks, get_mpi):
    mpi = get_mpi(name)
    result = mpi.launch(ranks, mpi.build('goal.c', EXTRA), sluice=False, timeout=100)
    for what in NAMES:
        if what != 'goal_on_halves' or ranks >= 4:
            assert f'ok {what}\n' in result.out, result.explain()
    assert result.status == 0 and not result.leftovers, result.explain()
