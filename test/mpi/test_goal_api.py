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


# Intel MPI calls no function of another library while it waits, unless it is told to yield; in MPI_Probe
# it never does.
@pytest.mark.alone
@pytest.mark.parametrize('sluice', [False, True])
@pytest.mark.parametrize('name', ['mpich', 'openmpi', 'impi', 'abi', 'debian-mpich', 'debian-openmpi'])
def test_goal_is_left_to_waits_in_mpi(name, sluice, get_mpi):
    mpi = get_mpi(name)
    names = [f'goal_is_left_to_{wait}' for wait in ('barrier', 'recv', 'waitany', 'probe')]
    if name == 'impi':
        names.remove('goal_is_left_to_probe')
    env = {'I_MPI_WAIT_MODE': '1', 'I_MPI_THREAD_YIELD': '2'}
    result = mpi.launch(2, mpi.build('goal.c', EXTRA), *names, sluice=sluice,
                        env=env if name == 'impi' else {}, timeout=200)
    assert result.status == 0 and not result.leftovers, result.explain()
    assert [name for name in names if f'ok {name}\n' not in result.out] == [], result.explain()
