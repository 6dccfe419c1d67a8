# SPDX-License-Identifier: BSD-3-Clause
"""Options of the test suite, and the grouping of tests that share one MPI job."""
import pathlib
import sys

import pytest

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent))

# Fixtures that keep the result of a job for other tests. Tests with the same job must run in the
# same pytest-xdist worker, or each worker would launch the job again.
JOB_FIXTURES = {'runner', 'early_runner', 'plain_ends'}


def pytest_addoption(parser):
    from support import engines
    parser.addoption('--complete', action='store_true', help='run also the tests marked complete (long)')
    parser.addoption('--early', metavar='GUARD', choices=['uffd', 'mremap', 'mprotect'],
                     help='MPI programs return early from every call, with this guard')
    parser.addoption('--engine', metavar='NAME', choices=list(engines.ENGINES),
                     help='MPI programs use this copy engine of test/support/engines.py')
    parser.addoption('--endpoints', metavar='N', help='N ranks of an MPI program share an address space')
    parser.addoption('--switch', metavar='HOW', choices=['user', 'kernel'],
                     help='with --endpoints: SLUICE_ENDPOINTS_SWITCH')
    parser.addoption('--failed-to', metavar='FILE', type=pathlib.Path,
                     help='write the names of failed tests to FILE, one a line')
    parser.addoption('--plain', action='store_true',
                     help='run MPI programs without Sluice: are the tests themselves right?')


def pytest_configure(config):
    from support import engines, mpi
    if config.getoption('--early'):
        mpi.forced = {**mpi.EARLY, 'SLUICE_GUARD_KIND': config.getoption('--early')}
    if config.getoption('--engine'):
        mpi.forced = {**mpi.forced, **engines.engine_env(config.getoption('--engine'))}
    if config.getoption('--endpoints'):
        mpi.forced = {**mpi.forced, 'SLUICE_ENDPOINTS': config.getoption('--endpoints'),
                      'SLUICE_ENDPOINTS_SWITCH': config.getoption('--switch') or 'kernel',
                      'PMIX_MCA_gds': 'hash'} # spawned programs that run without Sluice, too


def job_of(item):
    """The name of the MPI job that the test shares with others, or None."""
    params = getattr(getattr(item, 'callspec', None), 'params', {})
    if not JOB_FIXTURES & set(item.fixturenames):
        return None
    if 'plain_ends' in item.fixturenames:
        return f'end-{params["name"]}-{params["end"]}'
    program = params.get('program') or getattr(item.function, 'program', item.originalname)
    words = [str(value) for key, value in params.items() if key not in ('behaviour', 'program')]
    return '-'.join([item.path.stem, str(program), *words])


# The longest tests begin early, or one worker would end long after the others. pytest-xdist deals groups of
# many tests first, then single tests in this order.
LONG = ('[asan-engine]', '[tsan-rt]', '[asan-rt]', '[asan-sched]', '[asan-goal]', '[asan-guard]',
        '[asan-exec]', '[asan-mailbox]', 'test_fuzz', '[check_signal_safety]', '[region', '[engine]')


def place_of(item):
    """Sanitized tests come last, when their builds are there; long tests come before short ones."""
    return item.path.parent.name == 'sanitize', not any(word in item.name for word in LONG)


@pytest.hookimpl(tryfirst=True)
def pytest_collection_modifyitems(config, items):
    if not config.getoption('--complete'):
        long = [item for item in items if 'complete' in item.keywords]
        config.hook.pytest_deselected(items=long)
        items[:] = [item for item in items if 'complete' not in item.keywords]
    for item in items:
        if job := job_of(item):
            item.add_marker(pytest.mark.xdist_group(job))
    items.sort(key=place_of)


def name_of(report):
    """The test's own name: pytest-xdist appends @ and the group."""
    return report.nodeid.rsplit('@', 1)[0]


def pytest_terminal_summary(terminalreporter, config):
    if path := config.getoption('--failed-to'):
        stats = terminalreporter.stats
        bad = [name_of(report) for kind in ('failed', 'error') for report in stats.get(kind, [])]
        path.write_text(''.join(f'{name}\n' for name in dict.fromkeys(bad)))


@pytest.fixture(scope='session')
def with_sluice(request):
    return not request.config.getoption('--plain')
