# SPDX-License-Identifier: BSD-3-Clause
"""Threads that use the heap while others adopt, evict and fork, for a minute: ./dev check stress"""
import pytest

from test_unit import known_to_meson, run_one

pytestmark = [pytest.mark.complete, pytest.mark.timeout(400)]


@pytest.mark.parametrize('test', [t for t in known_to_meson('dev') if t['name'] == 'region'],
                         ids=lambda t: t['name'])
def test_threads_use_the_heap(test):
    long = {**test, 'cmd': [*test['cmd'], 'threads_use_the_heap']}
    run_one(long, {'UNIT_REGION_SECONDS': '60'})
