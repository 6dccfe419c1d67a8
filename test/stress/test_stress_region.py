# SPDX-License-Identifier: BSD-3-Clause
"""The tests of region/, with threads on the heap for a minute and 100,000 buffers: ./dev check stress"""
import pytest

from test_unit import known_to_meson, run_one

pytestmark = [pytest.mark.complete, pytest.mark.timeout(400)]


@pytest.mark.parametrize('test', [t for t in known_to_meson('dev') if t['name'] == 'region'],
                         ids=lambda t: t['name'])
def test_region_for_long(test):
    run_one(test, {'UNIT_REGION_SECONDS': '60'})
