# SPDX-License-Identifier: BSD-3-Clause
"""The unit tests under ASan + UBSan and under TSan. Run alone: ./dev check sanitize -k NAME"""
import pytest

from test_unit import run_one, tests_of

OPTIONS = {
    'asan': {'ASAN_OPTIONS': 'abort_on_error=0:exitcode=99:detect_leaks=1',
             'UBSAN_OPTIONS': 'halt_on_error=1:print_stacktrace=1:exitcode=99'},
    'tsan': {'TSAN_OPTIONS': 'halt_on_error=1:exitcode=99:second_deadlock_stack=1'},
}


def cases():
    return [pytest.param(build, test, id=f'{build}-{test["name"]}')
            for build in OPTIONS for test in tests_of(build)]


@pytest.mark.parametrize('build, test', cases())
def test_sanitized(build, test):
    run_one(test, OPTIONS[build])
