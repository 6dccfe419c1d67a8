# SPDX-License-Identifier: BSD-3-Clause
"""The worker process: a job may end, or lose it, in any way.

Run alone: ./dev check mpi -k test_worker
"""
import os
import pathlib
import re
import signal
import subprocess
import time
import uuid

import pytest

from support import job
from support.options import spelled
from support.paths import SLUICE

PROCESS = {'SLUICE_COLL_THRESHOLD': '1', 'SLUICE_REGION_ADOPT_AFTER': '0', 'region_adopt_min': '16K',
           'SLUICE_EARLY': 'on', 'SLUICE_EARLY_MIN': '1', 'SLUICE_WORKER_KIND': 'process',
           'worker_cpus': '0-1', 'fault': 'worker_idle:all', 'SLUICE_LOG': 'info'}
BY_NAME = pytest.mark.complete
SERVED = re.compile(r'worker process (\d+) serves')
ENDS = ['finalize', '_exit', 'mpi_abort', 'kill', 'exec']


def command_line(pid):
    """None: there is no such process, or only a zombie."""
    try:
        return pathlib.Path(f'/proc/{pid}/cmdline').read_bytes().split(b'\0') or None
    except OSError:
        return None


def is_worker(pid):
    words = command_line(pid)
    return bool(words) and words[0] == b'sluice-worker'


def wait_until(is_so, seconds=10.0):
    deadline = time.monotonic() + seconds
    while not is_so() and time.monotonic() < deadline:
        time.sleep(0.02)
    return is_so()


def workers_of(starters):
    found = []
    for entry in pathlib.Path('/proc').iterdir():
        words = command_line(entry.name) if entry.name.isdigit() else None
        if words and words[0] == b'sluice-worker' and int(words[1]) in starters:
            found.append(int(entry.name))
    return found


@pytest.fixture(autouse=True)
def only_with_sluice(with_sluice):
    if not with_sluice:
        pytest.skip('--plain')


@pytest.mark.parametrize('name', ['mpich', pytest.param('openmpi', marks=BY_NAME)])
@pytest.mark.parametrize('how', ENDS)
def test_nothing_is_left_of_it(how, name, get_mpi):
    """Its pipes too are closed, or the launcher would not end."""
    mpi = get_mpi(name)
    result = mpi.launch(2, mpi.build('early_exit.c'), how, env={**PROCESS, 'SLUICE_GUARD_KIND': 'mremap'},
                        timeout=60)
    served = [int(pid) for pid in SERVED.findall(result.err)]
    assert served, result.explain()
    assert not result.timed_out and not result.leftovers, result.explain()
    assert wait_until(lambda: not any(map(is_worker, served))), [job.describe(pid) for pid in served]


class Running:
    """A job that goes on for some seconds."""

    def __init__(self, mpi, seconds, more, ranks=2):
        self.token = uuid.uuid4().hex
        env = {**mpi.env(), **mpi.own_env, **PROCESS, 'HARNESS_SECONDS': str(seconds),
               job.TOKEN: self.token, **more}
        self.child = subprocess.Popen(
            [str(a) for a in (mpi.mpiexec, '-n', ranks, SLUICE, 'run', mpi.build('early_random.c'),
                              'random_operations')],
            env=spelled(env), text=True, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            start_new_session=True)
        self.workers = []

    def worker(self):
        assert wait_until(self.find), self.end()
        return self.workers[0]

    def find(self):
        self.workers = workers_of(job.processes_with(self.token))
        return bool(self.workers)

    def kill(self):
        for pid in job.processes_with(self.token):
            try:
                os.kill(pid, signal.SIGKILL)
            except ProcessLookupError:
                pass

    def end(self, timeout=60):
        try:
            out, err = self.child.communicate(timeout=timeout)
        except subprocess.TimeoutExpired:
            self.kill()
            out, err = self.child.communicate()
        return self.child.returncode, out, err


@pytest.mark.parametrize('name', ['mpich', pytest.param('openmpi', marks=BY_NAME)])
def test_it_dies_with_a_job_that_is_killed(name, get_mpi):
    run = Running(get_mpi(name), 60, {})
    worker = run.worker()
    run.kill()
    run.end()
    assert wait_until(lambda: not is_worker(worker))


@pytest.mark.parametrize('how', ['SIGKILL', 'SIGSTOP'])
@pytest.mark.parametrize('name, guard', [('mpich', 'mremap'), pytest.param('mpich', 'uffd', marks=BY_NAME),
                                         pytest.param('openmpi', 'mremap', marks=BY_NAME)])
def test_a_job_goes_on_without_it(name, guard, how, get_mpi, tmp_path):
    """Killed in the middle of whatever it was copying, nothing is lost."""
    run = Running(get_mpi(name), 4, {'SLUICE_GUARD_KIND': guard, 'engine_timeout': '100'})
    worker = run.worker()
    time.sleep(1.5)
    os.kill(worker, getattr(signal, how))
    status, out, err = run.end()
    assert status == 0 and 'ok random_operations' in out, f'{out}\n{err}'
    assert wait_until(lambda: not is_worker(worker))
