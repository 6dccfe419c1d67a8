# SPDX-License-Identifier: BSD-3-Clause
import pathlib
import sys

import pytest

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent))


def pytest_addoption(parser):
    parser.addoption('--complete', action='store_true', help='also what is marked complete (long)')
    parser.addoption('--early', metavar='GUARD', choices=['uffd', 'steal', 'mprotect'],
                     help='calls of MPI programs return early wherever they can, with this guard')
    parser.addoption('--plain', action='store_true',
                     help='run MPI programs without Sluice: are the tests themselves right?')


def pytest_configure(config):
    from support import mpi
    if config.getoption('--early'):
        mpi.forced = {**mpi.EARLY, 'SLUICE_GUARD_KIND': config.getoption('--early')}


def pytest_collection_modifyitems(config, items):
    if config.getoption('--complete'):
        return
    kept = [item for item in items if 'complete' not in item.keywords]
    config.hook.pytest_deselected(items=[item for item in items if 'complete' in item.keywords])
    items[:] = kept


@pytest.fixture(scope='session')
def with_sluice(request):
    return not request.config.getoption('--plain')
