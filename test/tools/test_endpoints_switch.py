# SPDX-License-Identifier: BSD-3-Clause
"""Ranks of one address space that give each other the processor (SLUICE_ENDPOINTS_SWITCH=user) keep what a
process has of its own. No MPI: this program is the launcher.

Run alone: pytest test/tools/test_endpoints_switch.py
"""
import os
import signal

import pytest

from cli import compile_c
from test_endpoints import children, finish, images, start, wait_until


@pytest.fixture(scope='module')
def program(tmp_path_factory):
    path = tmp_path_factory.mktemp('switches') / 'ranks'
    compile_c(path, 'switches.c', '-rdynamic', '-pthread', '-mavx', '-lm')
    return path


@pytest.fixture
def run(program, tmp_path):
    def run(what, ranks, rounds=1000, cpus=None):
        own = [{'preexec_fn': lambda: os.sched_setaffinity(0, cpus)} if cpus else {}] * ranks
        return start([program, what, ranks, rounds, tmp_path / 'shared'], ranks, ranks, rank_popen=own,
                     rank_env=[{'SLUICE_ENDPOINTS_SWITCH': 'user'}] * ranks)
    return run


def user_ticks(pid):
    return int(open(f'/proc/{pid}/stat').read().rsplit(')', 1)[1].split()[11])


def one_cpu():
    return sorted(os.sched_getaffinity(0))[:1]


@pytest.mark.parametrize('ranks, rounds', [(2, 20000), (4, 5000), (16, 500)])
@pytest.mark.parametrize('on_one_cpu', [True, False])
def test_registers_errno_tls_and_process_id_are_each_ranks_own(ranks, rounds, on_one_cpu, run):
    ends = finish(run('state', ranks, rounds, one_cpu() if on_one_cpu else None))
    assert ends == [(0, '', '')] * ranks


@pytest.mark.parametrize('what', ['signals', 'sigwait', 'timer', 'faults', 'threads'])
@pytest.mark.parametrize('ranks', [2, 4])
def test_signals_faults_threads_and_children_are_each_ranks_own(what, ranks, run):
    assert finish(run(what, ranks)) == [(0, '', '')] * ranks


@pytest.mark.parametrize('what', ['computes', 'sleeps'])
def test_others_go_on_while_a_rank_keeps_its_processor(what, run):
    """A spare worker runs them; 1000 rounds of 3 ranks take less than 0.3 s, and more on a busy machine."""
    assert finish(run(what, 4)) == [(0, '0: others went on\n', '')] + [(0, '', '')] * 3


@pytest.mark.alone
@pytest.mark.parametrize('ranks', [2, 3])
def test_ranks_compute_at_a_time_where_a_cpu_is_free(ranks, program, tmp_path):
    """In bursts that are shorter than the monitor's time slice: a worker that watches runs the others. All
    see it in the first few of 200 bursts, and later while something else keeps the CPUs busy. (Without
    that worker the monitor would let them all do so in 1000 now and then.)"""
    if len(os.sched_getaffinity(0)) < 2:
        pytest.skip('one CPU')
    env = {'SLUICE_ENDPOINTS_SWITCH': 'user', 'MPI_LOCALNRANKS': str(ranks)}
    ends = finish(start([program, 'bursts', ranks, 200, tmp_path / 'shared'], ranks, ranks,
                        rank_env=[env] * ranks))
    assert ends == [(0, f'{r}: together\n', '') for r in range(ranks)]


@pytest.mark.parametrize('how, status', [
    ('segv', -signal.SIGSEGV), ('exit', 21), ('exec', 22), ('spin', -signal.SIGKILL)])
def test_a_rank_ends_alone(how, status, run):
    """Also one that is killed while a worker runs it, which must not go on."""
    ends = finish(run(how, 3))
    assert [end[0] for end in ends] == [0, status, 0]
    assert [ends[0][1], ends[2][1]] == ['0: goes on\n', '2: goes on\n']


def test_ranks_end_with_the_worker_that_runs_them(run):
    started = run('state', 2, 1 << 30)
    carrier = []
    wait_until(lambda: carrier.extend(p for c in started for p in children(c.pid)) or carrier, 'no carrier')

    def ticks_of_workers(): # on a busy machine the monitor has started a second one
        return [(user_ticks(p), p) for p in children(carrier[0])
                if open(f'/proc/{p}/comm').read() == 'sluice-switch\n']
    wait_until(lambda: len(images(carrier[0])) == 2 and ticks_of_workers(), 'no worker')
    wait_until(lambda: max(ticks_of_workers())[0] > 5, 'no rank runs on a worker')
    os.kill(max(ticks_of_workers())[1], signal.SIGKILL)
    assert [end[0] for end in finish(started)] == [-signal.SIGKILL] * 2


def test_bound_ranks_do_not_switch(program, tmp_path):
    cpus = sorted(os.sched_getaffinity(0))
    if len(cpus) < 2:
        pytest.skip('one CPU')
    own = [{'preexec_fn': lambda cpu=cpu: os.sched_setaffinity(0, [cpu])} for cpu in cpus[:2]]
    started = start([program, 'state', 2, 100, tmp_path / 'shared'], 2, 2, rank_popen=own,
                    rank_env=[{'SLUICE_ENDPOINTS_SWITCH': 'user', 'SLUICE_LOG': 'info'}] * 2)
    ends = finish(started)
    assert [end[0] for end in ends] == [0, 0]
    assert 'its CPUs are not those of its group' in ends[0][2] + ends[1][2]
