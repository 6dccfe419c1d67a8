# SPDX-License-Identifier: BSD-3-Clause
"""mpi4py's own test-suite under Sluice: nothing may fail that does not fail without it.

Run alone: ./dev check mpi4py -k mpich-2-early_mremap-collectives
"""
import json
import pathlib
import re

import pytest

from support import mpi as mpis
from support.paths import BUILD

TESTS = BUILD / 'mpi4py-tests/test'
FAILURE = re.compile(r'^(?:FAIL|ERROR): (.*)$', re.M)
RAN = re.compile(r'^Ran (\d+) tests? in', re.M)
# Modules of the default check, where minutes count.
QUICK = ['test_cco_buf', 'test_cco_obj']
# The suite's modules that move data or manage communicators, by the second word of their names: a job each.
GROUPS = {'collectives': ['cco'], 'messages': ['p2p', 'pack', 'datatype'], 'one_sided': ['win', 'rma'],
          'communicators': ['comm', 'session', 'errhandler', 'threads', 'io'], 'utilities': ['util'],
          'processes': ['spawn', 'dynproc']}
BESIDE = pathlib.Path(__file__).resolve().parent / 'beside.py'
# Everything adopted at once and returned from early, whether it pays or not; with broadcasts of our own
# under way beside the suite's tests.
EARLY = {'SLUICE_COLL_THRESHOLD': '1', 'SLUICE_REGION_ADOPT_AFTER': '0', 'region_adopt_min': '4K',
         'SLUICE_EARLY': 'on', 'SLUICE_EARLY_MIN': '1', 'SLUICE_WORKERS': '1'}
KINDS = ['BCAST', 'GATHER', 'SCATTER', 'ALLGATHER', 'ALLTOALL', 'REDUCE', 'ALLREDUCE', 'SCAN',
         'REDUCE_SCATTER', 'VECTOR', 'NONBLOCKING', 'NEIGHBOR',
         'BARRIER']
TAKEN = {f'coll:{kind}': 'on' for kind in KINDS}
# taken: every collective there is, whether it pays or not
THRESHOLDS = {'one_byte': {'SLUICE_COLL_THRESHOLD': '1'}, 'taken': {**TAKEN, 'SLUICE_COLL_THRESHOLD': '1'},
              'default': {},
              **{f'early_{guard}': {**EARLY, 'SLUICE_GUARD_KIND': guard} for guard in ('uffd', 'mremap',
                                                                                       'mprotect')},
              'early_taken': {**EARLY, **TAKEN, 'SLUICE_GUARD_KIND': 'uffd'}}


def modules(group):
    names = sorted(p.stem for p in TESTS.glob('test_*.py'))
    return [name for name in names if name.split('_')[1] in GROUPS[group]]


def failures(mpi, ranks, names, sluice, env, timeout):
    """(set of failing tests, number of tests that ran, the job)."""
    main = BESIDE if 'SLUICE_EARLY' in env else 'main.py'
    result = mpi.launch(ranks, mpi.python, main, '-q', *names, sluice=sluice, env=env, timeout=timeout,
                        cwd=TESTS)
    text = result.out + result.err
    failed = set(FAILURE.findall(text))
    if (result.status or result.timed_out) and not failed:
        failed.add('the job itself')
    return failed, sum(map(int, RAN.findall(text))), result


def compare(name, ranks, names, env, with_sluice, timeout):
    mpi = mpis.ALL[name]
    if mpi.missing() or not TESTS.is_dir():
        pytest.skip(mpi.missing() or 'the suite is not here; ./dev setup gets it')
    ours, ran, result = failures(mpi, ranks, names, with_sluice, env, timeout)
    if not ours:
        assert ran, result.explain()
        return
    theirs, _, _ = failures(mpi, ranks, names, False, {k: v for k, v in env.items() if 'STATS' not in k},
                            timeout)
    assert ours <= theirs, f'only under Sluice: {sorted(ours - theirs)}\n{result.explain()}'


@pytest.mark.timeout(420)
@pytest.mark.parametrize('name, ranks', [('mpich', 2), ('openmpi', 3)])
def test_quick(name, ranks, with_sluice):
    compare(name, ranks, QUICK, THRESHOLDS['one_byte'], with_sluice, 200)


@pytest.mark.timeout(420)
def test_quick_early(with_sluice, tmp_path):
    compare('mpich', 2, QUICK, {**THRESHOLDS['early_mremap'], 'SLUICE_STATS': str(tmp_path / 's')},
            with_sluice,
            200)
    early = [json.loads(path.read_text())['early'] for path in tmp_path.glob('s.*.json')]
    assert sum(early) > 100 or not with_sluice, early


@pytest.mark.complete
@pytest.mark.timeout(3600)
@pytest.mark.parametrize('group', GROUPS)
@pytest.mark.parametrize('threshold', THRESHOLDS)
@pytest.mark.parametrize('ranks', [1, 2, 3, 4])
@pytest.mark.parametrize('name', ['mpich', 'openmpi'])
def test_modules(name, ranks, threshold, group, with_sluice):
    compare(name, ranks, modules(group), THRESHOLDS[threshold], with_sluice, 1700)
