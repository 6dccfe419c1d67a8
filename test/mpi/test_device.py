# SPDX-License-Identifier: BSD-3-Clause
"""Collectives on device memory (SLUICE_COLL=device:on), over a libcuda.so.1 of the tests.

Run alone: ./dev check mpi -k test_device
"""
import re

import pytest

from support import fake_cuda
from support.behaviours import Runner, behaviours
from test_early import counters

PROGRAM = 'device.c'
ON = {'coll:DEVICE': 'on', 'SLUICE_EARLY': 'off', 'SLUICE_MESSAGES': 'off', 'SLUICE_ENDPOINTS': 'off',
      'SLUICE_ENDPOINTS_SWITCH': 'kernel', 'SLUICE_COLL_THRESHOLD': '64K',
      **{f'coll:{family}': 'on' for family in ('BCAST', 'GATHER', 'SCATTER', 'ALLGATHER', 'ALLTOALL')},
      # the host MPI reads device memory by the CPU: no system call could
      'OMPI_MCA_smsc': '^cma', 'OMPI_MCA_btl_sm_use_cma': '0', 'MPIR_CVAR_CH4_CMA_ENABLE': '0'}
SHAPES = [('mpich', 2), ('mpich', 3), ('mpich', 4), ('openmpi', 2), ('openmpi', 3)]
BEHAVIOURS = [name for name, least in behaviours(PROGRAM) if name not in ('failures', 'killed')]


@pytest.fixture(scope='module', name='runner')
def make_runner():
    return Runner({PROGRAM: BEHAVIOURS})


def env_of(**more):
    return {**ON, 'FAKE_CUDA_LIBRARY': str(fake_cuda.library()), **more}


@pytest.mark.parametrize('behaviour', BEHAVIOURS)
@pytest.mark.parametrize('name, ranks', SHAPES)
def test_device(name, ranks, behaviour, runner, get_mpi):
    runner.check(get_mpi(name), PROGRAM, ranks, behaviour, env=env_of())


@pytest.mark.parametrize('name, ranks, gpus', [('mpich', 4, 2), ('mpich', 3, 3), ('openmpi', 3, 2)])
def test_device_on_several_gpus(name, ranks, gpus, get_mpi):
    """One rank of each GPU copies what the ranks of this GPU receive."""
    mpi = get_mpi(name)
    names = [b for b in BEHAVIOURS if b not in ('few_allocations_stay_open', 'an_allocation_is_opened_once')]
    done = mpi.launch(ranks, mpi.build(PROGRAM), *names, env=env_of(FAKE_CUDA_GPUS=str(gpus)))
    assert done.status == 0 and done.out.count('ok ') == len(names), done.explain()


@pytest.mark.parametrize('name', ['mpich', 'openmpi'])
def test_device_is_counted(name, get_mpi, tmp_path):
    mpi = get_mpi(name)
    env = env_of(SLUICE_STATS=str(tmp_path / 'stats'))
    done = mpi.launch(2, mpi.build(PROGRAM), 'parts_of_an_allocation', 'one_rank_in_host_memory', env=env)
    assert done.status == 0 and done.out.count('ok ') == 2, done.explain()
    total = counters(env['SLUICE_STATS'], done)
    parts = 1 + 2 + 2 + 4 + 4  # that GPUs copy in a bcast, gather, scatter, allgather, alltoall of 2 ranks
    assert total['bytes_device'] == parts * (65536 + 4660) and total['device_passed'] == 4 * 2, total
    assert total['gather_admitted'] == 2 and total['alltoall_admitted'] == 2, total


@pytest.mark.parametrize('name', ['mpich', 'openmpi'])
def test_device_beside_trials(name, get_mpi):
    """Trials decide about host memory only, and the first call on device memory connects."""
    mpi = get_mpi(name)
    env = env_of(SLUICE_DECIDE='measure', SLUICE_COLL='device:on')
    names = ['each_collective', 'other_communicators', 'host_memory_asks_no_driver',
             'one_rank_in_host_memory']
    done = mpi.launch(2, mpi.build(PROGRAM), *names, env={k: v for k, v in env.items() if 'coll:' not in k})
    assert done.status == 0 and done.out.count('ok ') == len(names), done.explain()


@pytest.mark.parametrize('names, is_admitted', [(['each_collective', 'other_communicators'], False),
                                                (['host_memory_asks_no_driver'], True)])
@pytest.mark.parametrize('name', ['mpich', 'openmpi'])
def test_device_memory_is_passed_on_without_the_option(name, names, is_admitted, get_mpi, tmp_path):
    mpi = get_mpi(name)
    env = env_of(FAKE_CUDA_IS_GPU='1', SLUICE_DECIDE='measure', SLUICE_TEST='fault=connect:all',
                 SLUICE_COLL='', SLUICE_STATS=str(tmp_path / 'stats'))
    done = mpi.launch(2, mpi.build(PROGRAM), *names, env={k: v for k, v in env.items() if 'coll:' not in k})
    assert done.status == 0 and done.out.count('ok ') == len(names), done.explain()
    total = counters(env['SLUICE_STATS'], done)
    admitted = sum(n for counter, n in total.items() if counter.endswith('_admitted'))
    assert (admitted > 0) == is_admitted and not total['bytes_device'], total


@pytest.mark.parametrize('name', ['mpich', 'openmpi'])
def test_device_of_ranks_that_share_an_address_space_is_passed(name, get_mpi):
    """The driver knows processes, and opens no memory of its own."""
    mpi = get_mpi(name)
    env = env_of(FAKE_CUDA_FAIL='none', SLUICE_ENDPOINTS='2')
    done = mpi.launch(2, mpi.build(PROGRAM), 'failures', env=env)
    assert done.status == 0 and done.out.count('passed 30') == 2, done.explain()


# These try a GPU, whatever the host MPI does with its memory: see programs/device_driver.h.
ON_A_GPU = ['each_collective', 'parts_of_an_allocation', 'other_communicators', 'freed_and_allocated_again',
            'few_allocations_stay_open', 'default_stream_goes_first', 'buffers_are_free_after_the_call',
            'threads']


def test_device_program_runs_over_a_driver_that_counts_nothing(get_mpi, tmp_path):
    mpi = get_mpi('mpich')
    env = env_of(FAKE_CUDA_IS_GPU='1', SLUICE_STATS=str(tmp_path / 'stats'))
    done = mpi.launch(2, mpi.build(PROGRAM), *ON_A_GPU, env=env)
    assert done.status == 0 and done.out.count('ok ') == len(ON_A_GPU), done.explain()
    total = counters(env['SLUICE_STATS'], done)
    assert total['bytes_device'] and not total['device_passed'], total


# After a copy that has failed a process copies no more, so a job shows one place only.
ONCE = [('cuMemcpyAsync', first) for first in (1, 2, 3, 7)] + \
       [('cuStreamSynchronize', first) for first in (1, 2, 3, 4, 10)]
AGAIN = [(f'cu{name}', 1) for name in (
    'CtxGetCurrent', 'CtxGetId', 'PointerGetAttributes', 'IpcGetMemHandle', 'IpcOpenMemHandle',
    'IpcCloseMemHandle', 'StreamCreate', 'StreamIsCapturing', 'CtxGetDevice', 'DeviceGetUuid')]


@pytest.mark.parametrize('function, first', ONCE + AGAIN)
@pytest.mark.parametrize('name, ranks', [('mpich', 3), ('openmpi', 2)])
def test_device_failure_of_the_driver_on_one_rank(name, ranks, function, first, get_mpi):
    mpi = get_mpi(name)
    done = mpi.launch(ranks, mpi.build(PROGRAM), 'failures',
                      env=env_of(FAKE_CUDA_FAIL=function, FAKE_CUDA_FAIL_FIRST=str(first)))
    assert done.status == 0 and 'ok failures' in done.out, done.explain()
    passed = int(re.search(r'passed (\d+)', done.out).group(1))
    assert passed > 0 or function == 'cuIpcCloseMemHandle', done.explain()


@pytest.mark.parametrize('name, ranks', [('mpich', 3), ('openmpi', 2)])
def test_device_death_of_a_rank_ends_the_job(name, ranks, get_mpi):
    mpi = get_mpi(name)
    done = mpi.launch(ranks, mpi.build(PROGRAM), 'killed', env=env_of(FAKE_CUDA_KILL='1'), timeout=30)
    assert done.status and not done.timed_out, done.explain()


@pytest.mark.parametrize('name', ['mpich', 'openmpi'])
def test_device_needs_a_program_with_cuda(name, get_mpi, tmp_path):
    """Without libcuda a run with the option is one without it."""
    mpi = get_mpi(name)
    env = {**ON, 'SLUICE_STATS': str(tmp_path / 'stats')}
    done = mpi.launch(2, mpi.build('semantics.c'), 'bcast_any_root', env=env)
    assert done.status == 0 and 'ok bcast_any_root' in done.out, done.explain()
    total = counters(env['SLUICE_STATS'], done)
    assert not total['bytes_device'] and not total['device_passed'], total
