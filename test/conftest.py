# SPDX-License-Identifier: BSD-3-Clause
import pathlib
import sys

import pytest

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent))


def pytest_addoption(parser):
    parser.addoption('--complete', action='store_true', help='also what is marked complete (long)')
    parser.addoption('--early', metavar='GUARD', choices=['uffd', 'steal', 'mprotect'],
                     help='calls of MPI programs return early wherever they can, with this guard')
    parser.addoption('--failed-to', metavar='FILE', type=pathlib.Path, help='write the names of tests that fail there, a line each')
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


def pytest_terminal_summary(terminalreporter, config):
    if path := config.getoption('--failed-to'):
        bad = [r.nodeid for key in ('failed', 'error') for r in terminalreporter.stats.get(key, [])]
        path.write_text(''.join(f'{nodeid}\n' for nodeid in dict.fromkeys(bad)))


@pytest.fixture(scope='session')
def with_sluice(request):
    return not request.config.getoption('--plain')
