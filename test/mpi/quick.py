# SPDX-License-Identifier: BSD-3-Clause
"""Each MPI program once on MPICH with early return, and once on Open MPI with default options.

`./dev check quick` runs this file. Run alone: ./dev check quick -k requests.c
"""
import pytest

from support.behaviours import Report, behaviours
from support.build import compile_once
from support.mpi import EARLY
from support.paths import PROGRAMS, SOURCES

# Programs that the default tier runs in places, or with options, that this file does not make.
ELSEWHERE = {
    'check.c': 'part of the others',
    'restrict.c': 'not an MPI program',
    'abi_check.c': 'test_abi.py compiles it against each mpi.h',
    'bench_abi.c': 'test_bench.py compiles it against each mpi.h',
    'exports.c': 'test_exports.py compares its output with that of a plain run',
    'two_mpis.c': 'test_front.py gives it a second MPI library',
    'endpoints.c': 'test_images.py',
    'turns_random.c': 'test_images.py compares its output with that of a plain run',
    'device.c': 'test_device.py gives it a CUDA driver',
    'gpu.c': 'test_gpu.py gives it a CUDA driver',
    'giant.c': 'test_front.py; it needs 10 GiB',
    'large.c': 'test_stress.py; it needs 12 GiB',
    'matrix.c': 'test_matrix.py; seconds a behaviour',
    'types_random.c': 'test_types.py; options of the libraries',
    'goal.c': 'test_goal_api.py links it with libsluice.so',
    'early_exit.c': 'test_early.py compares each end with that of a plain run',
    'early_long.c': 'test_early.py; seconds a behaviour',
    'spawn.c': 'test_programs.py gives it a command to spawn',
    'told.c': 'test_told.py gives it what to do',
    'survive.c': 'test_survival.py kills its ranks',
    'without_memory.c': 'test_requests.py injects faults',
    'spanning.c': 'test_spanning.py; several nodes',
    'spanning_cut.c': 'test_spanning.py; several nodes',
    'spanning_early.c': 'test_spanning.py; several nodes',
    'again.c': 'test_programs.py counts what is taken with default options',
    'again_nonblocking.c': 'test_programs.py counts what is taken with default options',
    'requests_away.c': 'test_requests.py; with default options an MPI needs every rank',
}
CONFIGS = {'mpich': {**EARLY, 'SLUICE_GUARD_KIND': 'mremap'}, 'openmpi': {}}
LESS = {'HARNESS_TRIALS': '3', 'HARNESS_SECONDS': '2', 'HARNESS_STEPS': '100', 'HARNESS_COUNT': '1000',
        'HARNESS_FOREIGN': '0', 'HARNESS_BUFFERS': '500', 'CHECK_REQUESTS': '500'}


def programs():
    return sorted(p.name for p in SOURCES.iterdir()
                  if p.suffix in ('.c', '.cc') and p.name not in ELSEWHERE)


@pytest.mark.parametrize('name', CONFIGS)
@pytest.mark.parametrize('program', programs())
def test_quick(program, name, get_mpi, with_sluice):
    mpi = get_mpi(name)
    area = compile_once(PROGRAMS / 'area.so', 'cc', ['-shared', '-fPIC'], [SOURCES / 'lib/area.c'])
    names = [behaviour for behaviour, least in behaviours(program) if least <= 2]
    result = mpi.launch(2, mpi.build(program), *names, sluice=with_sluice, timeout=100,
                        env={**CONFIGS[name], **LESS, 'HARNESS_LIBRARY': str(area)})
    verdicts = Report(result).verdicts
    bad = [behaviour for behaviour in names
           if verdicts.get(behaviour, ('none',))[0] not in ('ok', 'skip')]
    assert not bad and result.status == 0, f'{bad}\n{result.explain()}'
    assert names or 'ok ' in result.out or 'skip ' in result.out, result.explain()
    assert not result.leftovers, result.leftovers
