# SPDX-License-Identifier: BSD-3-Clause
"""mpi4py's own test-suite under Sluice: nothing may fail that does not fail without it.

Run alone: ./dev check mpi4py -k test_cco_buf
"""
import re

import pytest

from support import mpi as mpis
from support.paths import BUILD

TESTS = BUILD / 'mpi4py-tests/test'
FAILURE = re.compile(r'^(?:FAIL|ERROR): (.*)$', re.M)
RAN = re.compile(r'^Ran (\d+) tests? in', re.M)
# What runs in the default check, where minutes count.
QUICK = ['test_cco_buf', 'test_cco_obj']
KINDS = ('cco', 'p2p', 'comm', 'win', 'rma', 'session', 'spawn', 'dynproc', 'threads', 'util', 'pack', 'io',
         'datatype', 'errhandler')
THRESHOLDS = {'one_byte': {'SLUICE_COLL_THRESHOLD': '1'}, 'default': {}}


def modules():
    """The suite's modules that move data or manage communicators."""
    names = sorted(p.stem for p in TESTS.glob('test_*.py'))
    return [name for name in names if name.split('_')[1] in KINDS]


def failures(mpi, ranks, names, sluice, env, timeout):
    """(set of failing tests, number of tests that ran, the job)."""
    result = mpi.launch(ranks, mpi.python, 'main.py', '-q', *names, sluice=sluice, env=env, timeout=timeout,
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
    theirs, _, _ = failures(mpi, ranks, names, False, {}, timeout)
    assert ours <= theirs, f'only under Sluice: {sorted(ours - theirs)}\n{result.explain()}'


@pytest.mark.timeout(420)
@pytest.mark.parametrize('name, ranks', [('mpich', 2), ('openmpi', 3)])
def test_quick(name, ranks, with_sluice):
    compare(name, ranks, QUICK, THRESHOLDS['one_byte'], with_sluice, 200)


@pytest.mark.complete
@pytest.mark.timeout(1500)
@pytest.mark.parametrize('module', modules())
@pytest.mark.parametrize('threshold', THRESHOLDS)
@pytest.mark.parametrize('ranks', [1, 2, 3, 4])
@pytest.mark.parametrize('name', ['mpich', 'openmpi'])
def test_module(name, ranks, threshold, module, with_sluice):
    compare(name, ranks, [module], THRESHOLDS[threshold], with_sluice, 700)
