# SPDX-License-Identifier: BSD-3-Clause
"""Host memory that GPUs access, over a libcuda.so.1 of the tests: it is not adopted, and no call returns
early that uses it.

Run alone: ./dev check mpi -k gpu
"""
import pytest

from support import fake_cuda
from support.mpi import forced
from test_early import EARLY, counters


@pytest.mark.parametrize('how, is_pageable, is_adopted, is_early', [
    ('loaded', False, True, True), ('registered', False, False, False), ('later', False, True, True),
    ('loaded', True, True, False)])
@pytest.mark.parametrize('name', ['mpich', 'openmpi'])
def test_gpu_sees_the_memory_that_it_registered(name, how, is_pageable, is_adopted, is_early, get_mpi,
                                                tmp_path):
    if forced.get('SLUICE_ENDPOINTS_SWITCH') == 'user':
        pytest.skip('ranks that switch do not return early')
    mpi = get_mpi(name)
    env = {**EARLY, 'SLUICE_STATS': str(tmp_path / 'stats'),
           **({'FAKE_CUDA_PAGEABLE': '1'} if is_pageable else {})}
    done = mpi.launch(2, mpi.build('gpu.c'), fake_cuda.library(), how, env=env)
    assert done.status == 0 and done.out.count('ok gpu') == 2, done.explain()
    total = counters(env['SLUICE_STATS'], done)
    assert (total['adopted'] > 0) == is_adopted and (total['early'] > 0) == is_early, total
    assert how != 'later' or total['early_not'] > 0, total
