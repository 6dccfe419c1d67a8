# SPDX-License-Identifier: BSD-3-Clause
import os
import pathlib
import time

import pytest

from support.paths import BUILD


@pytest.fixture
def built(request):
    """Waits for the build of this test, which `./dev check` compiles beside the other tests."""
    build = request.node.callspec.params['build']
    failed = os.environ.get('HARNESS_BUILD_FAILED')
    while not (BUILD / build / '.tests-built').exists():
        if not failed:
            pytest.skip(f'build/{build} is not complete; ./dev check sanitize compiles it')
        assert not pathlib.Path(failed).exists(), 'the build failed: build/logs/sanitized-builds.log'
        time.sleep(0.2)
