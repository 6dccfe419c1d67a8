# SPDX-License-Identifier: BSD-3-Clause
"""GOAL's public functions over communicators, in a program linked with libsluice-goal: without
libsluice.so in the process, and with it. Run alone: ./dev check mpi -k goal_api"""
import re

import pytest

from support.paths import LIBRARY, PREFIX

EXTRA = ['-I', str(PREFIX / 'include'), '-Wl,--no-as-needed', f'-L{LIBRARY.parent}', '-lsluice-goal',
         f'-Wl,-rpath,{LIBRARY.parent}']
NAMES = ['goal_small_sum', 'goal_large_sum', 'goal_on_halves', 'goal_beside_mpi', 'goal_after_mpi',
         'goal_in_threads_beside_mpi', 'goal_while_ranks_wait_in_mpi']
# Every collective runs over adopted memory and returns early.
EARLY = {'SLUICE_COLL_THRESHOLD': '1', 'SLUICE_REGION_ADOPT_AFTER': '0', 'SLUICE_EARLY': 'on',
         'SLUICE_EARLY_MIN': '1'}
# The tests start Intel MPI with I_MPI_THREAD_YIELD=3, which lets some rounds of a wait sleep: two of six
# tests failed with it. 2: all rounds yield, as they do where a user sets I_MPI_WAIT_MODE alone.
YIELDS = {'I_MPI_WAIT_MODE': '1', 'I_MPI_THREAD_YIELD': '2'}


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
    result = mpi.launch(2, mpi.build('goal.c', EXTRA), *names, sluice=sluice,
                        env=YIELDS if name == 'impi' else {}, timeout=200)
    assert result.status == 0 and not result.leftovers, result.explain()
    assert [name for name in names if f'ok {name}\n' not in result.out] == [], result.explain()


# The MPI library calls sched_yield() in idle rounds through libsluice-goal.so. A rank of a node with
# more ranks than CPUs naps there, as it does without a group.
@pytest.mark.alone
@pytest.mark.parametrize('name', ['impi', 'abi'])
def test_goal_leaves_naps_to_waits_in_mpi(name, get_mpi, with_sluice):
    if not with_sluice:
        pytest.skip('--plain')
    mpi = get_mpi(name)
    env = YIELDS if name == 'impi' else {'MPIR_CVAR_CH4_NETMOD': 'ofi'}
    shares = []
    for _ in range(3):
        done = mpi.launch(2, mpi.build('goal.c', EXTRA), 'goal_leaves_waits_alone',
                          env={**env, 'SLUICE_WAIT': 'polite'})
        assert done.status == 0 and done.out.count('ok ') == 1, done.explain()
        shares += [float(re.search(r'cpu ([\d.]+)', done.out).group(1))]
    assert min(shares) < 20, shares  # 4 to 13; without naps 22 to 54
