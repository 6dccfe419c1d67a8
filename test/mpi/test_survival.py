# SPDX-License-Identifier: BSD-3-Clause
"""Crashes, refusals and limits: a clear message or another way, never a hang, nothing left behind.

Run alone: ./dev check mpi -k killed
"""
import json
import os
import pathlib
import re
import shutil
import signal
import subprocess
import threading
import time

import pytest

from support.mpi import EARLY
from support.paths import ROOT, SLUICE

WANTED = ['bcast_any_root', 'gather_any_root', 'same_buffer_many_times', 'split_dup_free']
ADOPT = {'SLUICE_COLL_THRESHOLD': '4K', 'SLUICE_REGION_ADOPT_AFTER': '1', 'region_adopt_min': '16K'}


def passed(result, names=WANTED):
    for name in names:
        assert f'ok {name}\n' in result.out, result.explain()
    assert result.status == 0, result.explain()
    assert not result.leftovers, result.leftovers


# ---- a rank that is killed -----------------------------------------------------------------------

def traces():
    """Files of Sluice's that a crash might leave. (Abstract sockets end with the last process, and
    that none is left is checked by itself.)"""
    return {str(p) for folder in ('/dev/shm', '/tmp', '/run') for p in pathlib.Path(folder).glob('*sluice*')
            if not p.is_dir()}


def kill_one(folder, victim, ranks, when):
    """Once all ranks have told their pids, kill one with SIGKILL; note the time."""
    deadline = time.monotonic() + 60
    while time.monotonic() < deadline:
        files = [folder / str(r) for r in range(ranks)]
        if all(f.exists() and f.read_text().endswith('\n') for f in files):
            time.sleep(0.05)
            when.append(time.monotonic())
            os.kill(int(files[victim].read_text()), signal.SIGKILL)
            return
        time.sleep(0.02)


def run_and_kill(mpi, ranks, victim, argv, sluice, folder, env):
    when = []
    killer = threading.Thread(target=kill_one, args=(folder, victim, ranks, when))
    killer.start()
    result = mpi.launch(ranks, *argv, sluice=sluice, env={**env, 'HARNESS_PIDS': str(folder)}, timeout=80)
    ended = time.monotonic()
    killer.join()
    assert when, 'the ranks never got to the broadcasts\n' + result.explain()
    return result, ended - when[0]


def may_forget_status(mpi):
    """The mpiexec of MPICH 4.2.1 (Debian 13) ends with 0 after one of ten killed ranks, without Sluice
    likewise."""
    return mpi.name == 'debian-mpich' and re.search(r'Version:\s+4\.2\.', subprocess.run(
        [mpi.mpiexec, '--version'], capture_output=True, text=True, check=True).stdout)


def check_end_of_job(name, ranks, victim, what, env, get_mpi, with_sluice, tmp_path):
    before, mpi = traces(), get_mpi(name)
    result, seconds = run_and_kill(mpi, ranks, victim, [mpi.build('survive.c'), what], with_sluice,
                                   tmp_path, env)
    assert (result.status or may_forget_status(mpi)) and not result.timed_out, result.explain()
    assert seconds < 10, f'{seconds:.1f} s until the job had ended\n{result.explain()}'
    assert not result.leftovers, result.leftovers
    assert traces() <= before, traces() - before


# alone: traces() sees the files of every job on this machine
@pytest.mark.alone
@pytest.mark.parametrize('what', ['bcast', 'gather'])
@pytest.mark.parametrize('name, ranks, victim', [('mpich', 2, 1), ('mpich', 3, 0), ('openmpi', 2, 0)])
@pytest.mark.parametrize('kind', ['auto', 'trials', pytest.param('cma', marks=pytest.mark.complete),
                                  pytest.param('staged', marks=pytest.mark.complete)])
def test_killed_rank_ends_the_job(name, ranks, victim, what, kind, get_mpi, with_sluice, tmp_path):
    env = {'SLUICE_DECIDE': 'measure'} if kind == 'trials' else {'SLUICE_REGION_KIND': kind}
    check_end_of_job(name, ranks, victim, what, env, get_mpi, with_sluice, tmp_path)


@pytest.mark.alone
@pytest.mark.parametrize('name', ['mpich', 'openmpi', 'debian-mpich', 'debian-openmpi'])
def test_killed_sleeper_ends_the_job(name, get_mpi, with_sluice, tmp_path):
    check_end_of_job(name, 3, 1, 'asleep', {'SLUICE_WAIT': 'polite'}, get_mpi, with_sluice, tmp_path)


@pytest.mark.alone
@pytest.mark.parametrize('name, victim', [('mpich', 1), ('openmpi', 0),
                                          pytest.param('debian-mpich', 0, marks=pytest.mark.complete),
                                          pytest.param('debian-openmpi', 1, marks=pytest.mark.complete)])
def test_killed_in_a_message_ends_the_job(name, victim, get_mpi, with_sluice, tmp_path):
    check_end_of_job(name, 2, victim, 'messages', ADOPT, get_mpi, with_sluice, tmp_path)


class Keeper:
    """MPICH's launcher told to leave the other ranks alone, so that they must notice by themselves. It
    does so only if no child of its own dies by a signal, hence the shell between; and it may drop what
    the others say once a rank has ended, hence the file."""

    def __init__(self, mpi, folder):
        self.mpi, self.log = mpi, folder / 'stderr'

    def launch(self, ranks, *argv, **how):
        before = ['sh', '-c', f'trap "" USR1; "$@" 2>>{self.log}; exit $?', 'sh']
        result = self.mpi.launch(ranks, *argv, **how, launcher=['-disable-auto-cleanup'], before=before)
        result.err += self.log.read_text()
        return result


CALL_OF = {'bcast': 'MPI_Bcast', 'gather': 'MPI_Gather'}
# Every kind, call and victim; --complete has their product. A survivor notices in node/wait.c, whatever
# the kind and the call are.
SURVIVORS = {('auto', 'bcast', 2, 1), ('auto', 'gather', 2, 0), ('auto', 'bcast', 3, 2),
             ('cma', 'gather', 2, 1), ('cma', 'bcast', 2, 0), ('staged', 'bcast', 2, 1),
             ('staged', 'gather', 3, 2)}


def survivors():
    for kind in ('auto', 'cma', 'staged'):
        for what in CALL_OF:
            for ranks, victim in [(2, 1), (2, 0), (3, 2)]:
                case = kind, what, ranks, victim
                yield pytest.param(*case, marks=() if case in SURVIVORS else pytest.mark.complete)


@pytest.mark.parametrize('kind, what, ranks, victim', survivors())
def test_survivors_say_who_died(kind, what, ranks, victim, get_mpi, with_sluice, tmp_path):
    if not with_sluice:
        pytest.skip('--plain')
    mpi = get_mpi('mpich')
    result, seconds = run_and_kill(Keeper(mpi, tmp_path), ranks, victim, [mpi.build('survive.c'), what], True,
                                   tmp_path, {'SLUICE_REGION_KIND': kind})
    assert seconds < 10, f'{seconds:.1f} s until the job had ended\n{result.explain()}'
    lines = [line for line in result.err.splitlines() if line.startswith('sluice:')]
    told = [line for line in lines if f'rank {victim}' in line and CALL_OF[what] in line]
    assert told, 'no line names rank and call\n' + result.explain()
    assert not result.leftovers, result.leftovers


KINDS = ['BCAST', 'ALLTOALL', 'ALLREDUCE', 'NONBLOCKING']
TAKEN = {'SLUICE_COLL_THRESHOLD': '1', **{f'coll:{kind}': 'on' for kind in KINDS}}


@pytest.mark.alone
@pytest.mark.parametrize('what', ['requests', 'away'])
@pytest.mark.parametrize('name, ranks, victim',
                         [('mpich', 3, 1), ('openmpi', 2, 0),
                          *[pytest.param(*job, marks=pytest.mark.complete)
                            for job in [('mpich', 2, 0), ('mpich', 4, 3), ('openmpi', 3, 2), ('impi', 2, 1),
                                        ('impi', 3, 0)]]])
def test_killed_among_requests(name, ranks, victim, what, get_mpi, with_sluice, tmp_path):
    """Many collectives are in flight, and some have not begun: the job ends as it does without Sluice."""
    before, mpi = traces(), get_mpi(name)
    result, seconds = run_and_kill(mpi, ranks, victim, [mpi.build('survive.c'), what], with_sluice,
                                   tmp_path, TAKEN)
    assert (result.status or may_forget_status(mpi)) and not result.timed_out, result.explain()
    assert seconds < 10, f'{seconds:.1f} s until the job had ended\n{result.explain()}'
    assert not result.leftovers, result.leftovers
    assert traces() <= before, traces() - before


DECIDE = {'SLUICE_DECIDE': 'measure', 'SLUICE_COLL_THRESHOLD': '4K'}


@pytest.mark.alone
@pytest.mark.parametrize('name, ranks, victim',
                         [('mpich', 3, 1), ('openmpi', 2, 0),
                          *[pytest.param(*job, marks=pytest.mark.complete)
                            for job in [('mpich', 2, 0), ('mpich', 4, 3), ('openmpi', 3, 2),
                                        ('impi', 2, 1)]]])
def test_killed_while_a_decision_is_agreed(name, ranks, victim, get_mpi, with_sluice, tmp_path):
    """New communicators are connected, and tried against the host MPI, when a rank dies."""
    before, mpi = traces(), get_mpi(name)
    result, seconds = run_and_kill(mpi, ranks, victim, [mpi.build('survive.c'), 'decisions'], with_sluice,
                                   tmp_path, DECIDE)
    assert (result.status or may_forget_status(mpi)) and not result.timed_out, result.explain()
    assert seconds < 10, f'{seconds:.1f} s until the job had ended\n{result.explain()}'
    assert not result.leftovers, result.leftovers
    assert traces() <= before, traces() - before


@pytest.mark.parametrize('what, ranks, victim', [
    ('requests', 3, 0), pytest.param('away', 2, 1, marks=pytest.mark.complete)])
def test_waiting_ranks_say_who_died(what, ranks, victim, get_mpi, with_sluice, tmp_path):
    """Nobody tells them, and they notice while they wait for requests."""
    if not with_sluice:
        pytest.skip('--plain')
    mpi = get_mpi('mpich')
    result, seconds = run_and_kill(Keeper(mpi, tmp_path), ranks, victim, [mpi.build('survive.c'), what],
                                   True, tmp_path,
                                   TAKEN)
    assert seconds < 10, f'{seconds:.1f} s until the job had ended\n{result.explain()}'
    lines = [line for line in result.err.splitlines() if line.startswith('sluice:')]
    assert [line for line in lines if f'rank {victim}' in line], 'no line names the rank\n' + result.explain()
    assert not result.leftovers, result.leftovers


# ---- refusals --------------------------------------------------------------------------------------

REFUSALS = {
    'no_process_vm': ['deny=process_vm_readv', 'deny=process_vm_writev'],
    'no_process_vm_at_all': ['absent=process_vm_readv', 'absent=process_vm_writev'],
    'no_memfd': ['deny=memfd_create'],
    'no_memfd_no_process_vm': ['absent=memfd_create', 'deny=process_vm_readv', 'deny=process_vm_writev'],
    'no_pidfd': ['absent=pidfd_open'],
    'few_descriptors': ['nofile=64'],
    'no_locked_memory': ['memlock=0'],
    'small_files': ['fsize=200000000'],
}


@pytest.mark.parametrize('name', ['mpich', 'openmpi'])
@pytest.mark.parametrize('refusal', REFUSALS)
def test_refusals(name, refusal, get_mpi, with_sluice, restrict):
    """The result is right whatever the machine refuses to the ranks."""
    mpi = get_mpi(name)
    before, program = [restrict, *REFUSALS[refusal], '--'], mpi.build('semantics.c')
    result = mpi.launch(2, program, *WANTED, sluice=with_sluice, env=ADOPT, before=before)
    if result.status and mpi.launch(2, program, *WANTED, sluice=False, before=before).status:
        pytest.skip(f'{name} itself does not run like this')
    passed(result)


@pytest.mark.parametrize('refusal', ['no_process_vm', 'no_memfd', 'few_descriptors', 'small_files'])
def test_one_rank_is_refused(refusal, get_mpi, with_sluice, restrict):
    """Only rank 1 is refused something; both must take the same way."""
    mpi = get_mpi('mpich')
    program = mpi.build('semantics.c')
    script = f'[ "$PMI_RANK" = 1 ] && exec {restrict} {" ".join(REFUSALS[refusal])} -- "$@"; exec "$@"'
    passed(mpi.launch(2, program, *WANTED, sluice=with_sluice, env=ADOPT,
                      before=['sh', '-c', script, 'sh']))


def test_address_space_limit(get_mpi, with_sluice, restrict):
    """RLIMIT_AS leaves no room for the arena's window."""
    mpi = get_mpi('mpich')
    before, program = [restrict, 'as=1500000000', '--'], mpi.build('semantics.c')
    if mpi.launch(2, program, *WANTED, sluice=False, before=before).status:
        pytest.skip('MPICH itself does not run like this')
    passed(mpi.launch(2, program, *WANTED, sluice=with_sluice, env=ADOPT, before=before))


@pytest.mark.parametrize('name', ['mpich', 'openmpi'])
def test_calls_longer_than_the_arena(name, get_mpi, with_sluice):
    """As under ulimit -v, which makes small arenas."""
    mpi = get_mpi(name)
    passed(mpi.launch(2, mpi.build('scarce.c'), sluice=with_sluice,
                      env={**ADOPT, 'SLUICE_REGION_ARENA': '64M', 'SLUICE_DECIDE': 'table',
                           'SLUICE_COLL': 'all:on'}),
           ['large_packed_broadcast', 'large_packed_ibcast', 'copies_after_many_buffers'])


def test_processes_that_may_not_be_traced(get_mpi, with_sluice):
    """PR_SET_DUMPABLE 0 in the program: /proc/PID and process_vm_readv are closed to peers."""
    mpi = get_mpi('mpich')
    passed(mpi.launch(2, mpi.build('semantics.c'), *WANTED, sluice=with_sluice,
                      env={**ADOPT, 'HARNESS_DUMPABLE': '0'}))


def test_unprivileged_user(get_mpi, with_sluice, restrict, tmp_path):
    if os.getuid():
        pytest.skip('already unprivileged')
    mpi = get_mpi('mpich')
    program = mpi.build('semantics.c')
    before = [restrict, 'uid=65534', '--']
    if subprocess.run([*before, 'test', '-x', program]).returncode:
        pytest.skip('another user cannot read the build folder')
    passed(mpi.launch(2, program, *WANTED, sluice=with_sluice, before=before, cwd='/tmp',
                      env={**ADOPT, 'HARNESS_DUMPABLE': '0', 'HOME': '/tmp'}))


@pytest.mark.parametrize('name', ['mpich', 'openmpi'])
def test_a_rank_that_becomes_another_user(name, get_mpi, with_sluice):
    """It gives up root after MPI_Init: all ranks must agree whether Sluice serves them."""
    if os.getuid():
        pytest.skip('needs root')
    mpi = get_mpi(name)
    passed(mpi.launch(2, mpi.build('semantics.c'), *WANTED, sluice=with_sluice, timeout=40,
                      env={**ADOPT, 'HARNESS_USER': '65534', 'MPIR_CVAR_CH4_CMA_ENABLE': '0'}))


def test_info_says_why_not(with_sluice, restrict):
    """`sluice info` gives the reason for what is refused."""
    for refusal, reason in [('deny=process_vm_readv', 'operation not permitted'),
                            ('absent=memfd_create', 'not implemented')]:
        done = subprocess.run([restrict, refusal, '--', SLUICE, 'info', '--json'], capture_output=True,
                              text=True, timeout=60)
        assert done.returncode == 0, done.stderr
        assert reason in json.dumps(json.loads(done.stdout)).lower(), done.stdout


MOUNTS = {
    'small_shm': 'mount -t tmpfs -o size=64M tmpfs /dev/shm',
    'no_shm': 'mount -t tmpfs -o size=4k,mode=0555,ro tmpfs /dev/shm',
    'read_only': 'mount --bind / / && mount -o remount,bind,ro /',
}


@pytest.mark.parametrize('name', ['mpich', 'openmpi'])
@pytest.mark.parametrize('mount', MOUNTS)
def test_file_systems(name, mount, get_mpi, with_sluice):
    if not shutil.which('unshare') or subprocess.run(
            ['unshare', '-m', 'sh', '-c', MOUNTS[mount]], capture_output=True).returncode:
        pytest.skip('a mount namespace is not permitted here')
    mpi = get_mpi(name)
    program = mpi.build('semantics.c')
    outer = ['unshare', '-m', 'sh', '-c', f'{MOUNTS[mount]}; exec "$@"', 'sh']
    plain = mpi.launch(2, program, 'zero_counts', 'bcast_any_root', sluice=False, outer=outer)
    if plain.status:
        pytest.skip(f'{name} itself does not run like this: {plain.err.strip()[-200:]}')
    passed(mpi.launch(2, program, *WANTED, sluice=with_sluice, env=ADOPT, outer=outer))


NAMESPACE = ['unshare', '--pid', '--fork', '--mount-proc']


@pytest.fixture
def pid_namespace():
    """A command that executes others in one new PID namespace."""
    if subprocess.run([*NAMESPACE, 'true'], capture_output=True).returncode or not shutil.which('nsenter'):
        pytest.skip('a PID namespace is not permitted here')
    with subprocess.Popen([*NAMESPACE, 'sh', '-c', 'echo; exec sleep 120'],
                          stdout=subprocess.PIPE) as outside:
        outside.stdout.readline()
        inside = pathlib.Path(f'/proc/{outside.pid}/task/{outside.pid}/children').read_text().split()[0]
        yield ['nsenter', f'--target={inside}', '--pid', '--mount', '--']
        os.kill(int(inside), signal.SIGKILL)


def test_one_rank_in_a_pid_namespace(get_mpi, with_sluice, pid_namespace):
    """That rank cannot see which launcher is its own; no rank may wait for one that it does not find."""
    mpi = get_mpi('impi') # MPICH and Open MPI themselves do not run like this
    script = f'[ "$PMI_RANK" = 1 ] && exec {" ".join(pid_namespace)} "$@"; exec "$@"'
    passed(mpi.launch(2, mpi.build('semantics.c'), *WANTED, sluice=with_sluice, env=ADOPT,
                      before=['sh', '-c', script, 'sh']))


def test_ranks_of_one_pid_namespace(get_mpi, with_sluice, pid_namespace):
    """The launcher is outside; the ranks find each other nevertheless, from Linux 6.9 on."""
    mpi = get_mpi('mpich')
    result = mpi.launch(2, mpi.build('semantics.c'), *WANTED, sluice=with_sluice, before=pid_namespace,
                        env={**ADOPT, 'SLUICE_LOG': 'info'})
    passed(result)
    if tuple(int(n) for n in re.findall(r'\d+', os.uname().release)[:2]) >= (6, 9):
        assert 'calls may return early' in result.err, result.explain()


# ---- options -------------------------------------------------------------------------------------------

WRONG = {
    'name': ({'SLUICE_COL_THRESHOLD': '1'}, ['SLUICE_COL_THRESHOLD', 'SLUICE_COLL_THRESHOLD']),
    'range': ({'region_max': '-5'}, ['region_max', '0', '16384']),
    'choice': ({'SLUICE_REGION_KIND': 'magic'}, ['SLUICE_REGION_KIND', 'staged']),
    'unit': ({'SLUICE_COLL_THRESHOLD': '12Q'}, ['SLUICE_COLL_THRESHOLD', '12Q']),
}


@pytest.mark.parametrize('name', ['mpich', 'openmpi'])
@pytest.mark.parametrize('wrong', WRONG)
def test_wrong_options(name, wrong, get_mpi, with_sluice, tmp_path):
    """One line for the whole job, with the way out; the program runs plain."""
    if not with_sluice:
        pytest.skip('--plain')
    mpi, (env, words) = get_mpi(name), WRONG[wrong]
    env = {**env, 'SLUICE_STATS': str(tmp_path / 's')}
    result = mpi.launch(2, mpi.build('semantics.c'), *WANTED, env=env)
    passed(result)
    lines = [line for line in result.err.splitlines() if 'sluice' in line.lower()]
    assert len(lines) == 1, result.explain()
    for word in words:
        assert word in lines[0], lines
    for path in tmp_path.glob('s.*.json'):
        assert json.loads(path.read_text())['bcast_admitted'] == 0


@pytest.mark.parametrize('name', ['mpich', 'openmpi'])
def test_off(name, get_mpi, with_sluice, tmp_path):
    """SLUICE=off leaves nothing of Sluice in the process."""
    if not with_sluice:
        pytest.skip('--plain')
    mpi = get_mpi(name)
    result = mpi.launch(1, 'grep', '-c', 'libsluice', '/proc/self/maps', env={'SLUICE': 'off'})
    assert result.out.strip() == '0' and not result.err.strip().startswith('sluice'), result.explain()
    passed(mpi.launch(2, mpi.build('semantics.c'), *WANTED, env={'SLUICE': 'off'}))


def faults():
    """Every injection that the sources know, failing always and at the second call."""
    text = ''.join(p.read_text() for p in sorted((ROOT / 'src').rglob('*.c')))
    names = sorted(set(re.findall(r'base_fault\("(\w+)"\)', text)))
    return [f'{name}:{when}' for name in names for when in ('all', '2')]


@pytest.mark.parametrize('fault', faults())
def test_injected_failures(fault, get_mpi, with_sluice):
    """The n-th call of something that can fail does so; the results stay right."""
    if not with_sluice:
        pytest.skip('--plain')
    mpi = get_mpi('mpich')
    passed(mpi.launch(2, mpi.build('semantics.c'), *WANTED, env={**ADOPT, 'fault': fault}))


@pytest.mark.parametrize('guard', ['mprotect', 'mremap'])
def test_refused_copies_after_leaving(guard, get_mpi, with_sluice):
    """A sender that has left its call is asked for nothing any more: what the kernel refuses it,
    the receiver does."""
    if not with_sluice:
        pytest.skip('--plain')
    mpi = get_mpi('mpich')
    env = {**EARLY, **ADOPT, 'fault': 'vm_copy:all', 'SLUICE_GUARD_KIND': guard}
    passed(mpi.launch(2, mpi.build('semantics.c'), *WANTED, env=env))
