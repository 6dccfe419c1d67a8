# SPDX-License-Identifier: BSD-3-Clause
"""sluice run --endpoints: ranks that share an address space behave as processes. No MPI: this program
is the launcher.

Run alone: pytest test/tools/test_endpoints.py
"""
import fcntl
import os
import pathlib
import re
import resource
import shutil
import signal
import socket
import subprocess
import termios
import time

import pytest

from cli import PROGRAMS, ROOT, SLUICE, compile_c, plain_env


FOR_ALL = {} # environment of all ranks


@pytest.fixture(scope='module')
def programs(tmp_path_factory):
    """Compiled programs, and a library with state that they load."""
    folder = tmp_path_factory.mktemp('endpoints')
    compile_c(folder / 'plugin.so', 'int counter = 100;\n', '-shared', '-fPIC')
    compile_c(folder / 'ranks', 'endpoints.c', '-rdynamic', '-pthread')
    compile_c(folder / 'no_pie', 'endpoints.c', '-rdynamic', '-pthread', '-no-pie', '-fno-pie')
    compile_c(folder / 'self', 'endpoints_self.c', '-rdynamic', '-pthread', f'-I{ROOT}/include')
    compile_c(folder / 'static', 'int main(void) { return 3; }\n', '-static')
    return folder


@pytest.fixture(autouse=True, params=['kernel', 'user'])
def switch(request, monkeypatch):
    """Each test with both schedulers: the kernel, and the ranks themselves."""
    monkeypatch.setitem(FOR_ALL, 'SLUICE_ENDPOINTS_SWITCH', request.param)


def start_rank(rank, command, share, env=(), **popen):
    env = {**FOR_ALL, 'MPI_LOCALRANKID': str(rank), 'PMI_RANK': str(rank), 'SLUICE_LOG': 'info', **dict(env)}
    line = [SLUICE, 'run', f'--endpoints={share}', *command]
    return subprocess.Popen([str(word) for word in line], env=plain_env(**env), text=True,
                            **{'stdout': subprocess.PIPE, 'stderr': subprocess.PIPE, **popen})


def start(command, ranks, share, rank_env=(), rank_popen=(), **popen):
    """One process a rank, all children of this launcher."""
    return [start_rank(rank, command, share, rank_env[rank] if rank_env else (),
                       **{**popen, **(rank_popen[rank] if rank_popen else {})}) for rank in range(ranks)]


def finish(started):
    """(status, stdout, stderr) of each rank."""
    ends = []
    for child in started:
        out, err = child.communicate(timeout=60)
        ends.append((child.returncode, out, err))
    return ends


def run(command, ranks, share, **more):
    return finish(start(command, ranks, share, **more))


def children(pid):
    return [int(p) for p in pathlib.Path(f'/proc/{pid}/task/{pid}/children').read_text().split()]


def images(carrier):
    """Children of a carrier without the workers of its scheduler."""
    return [pid for pid in children(carrier)
            if pathlib.Path(f'/proc/{pid}/comm').read_text() != 'sluice-switch\n']


def is_running(pid):
    try:
        return pathlib.Path(f'/proc/{pid}/stat').read_text().rsplit(')', 1)[1].split()[0] not in 'ZX'
    except OSError:
        return False


def wait_until(condition, what):
    deadline = time.monotonic() + 20
    while not condition():
        assert time.monotonic() < deadline, what
        time.sleep(0.01)


@pytest.mark.parametrize('ranks, share', [(1, 1), (2, 2), (4, 2), (16, 16)])
def test_globals_tls_heap_threads_and_plugins_are_each_ranks_own(ranks, share, programs):
    ends = run([programs / 'ranks', 'state', programs / 'plugin.so'], ranks, share)
    expected = [(0, f'{r}: exit handler, global {7 + r}\n', '') for r in range(ranks)]
    assert ends == expected


def test_as_many_ranks_as_asked_for_share_an_address_space(programs, monkeypatch):
    """Each image has mapped ld.so once more, beside that of the carrier."""
    monkeypatch.setitem(FOR_ALL, 'MPI_LOCALNRANKS', '4')
    cpus = min(len(os.sched_getaffinity(0)), 4)
    core = {1: [5] * 4, 2: [3] * 4}.get(cpus, [2] * 4 if cpus == 4 else [3] * 4)
    for share, loaders in ((3, [4, 4, 4, 2]), (1, [2, 2, 2, 2]), ('off', [1, 1, 1, 1]), ('core', core)):
        ends = run([programs / 'ranks', 'space'], 4, share)
        assert [int(re.search(r'loaders (\d+)', out)[1]) for _, out, _ in ends] == loaders


def test_cxx(programs):
    if not shutil.which('c++'):
        pytest.skip('no C++ compiler')
    target = programs / 'cxx'
    subprocess.run(['c++', '-O1', '-std=c++17', '-rdynamic', '-pthread', '-o', target,
                    PROGRAMS / 'endpoints.cc'], check=True)
    assert run([target], 4, 4) == [(0, f'{r}: destroyed\n', '') for r in range(4)]


def test_fortran(programs, tmp_path):
    if not shutil.which('gfortran'):
        pytest.skip('no gfortran')
    target = programs / 'fortran'
    subprocess.run(['gfortran', '-O1', '-rdynamic', '-o', target, PROGRAMS / 'endpoints.f90'], check=True,
                   cwd=tmp_path)
    assert run([target], 4, 4, cwd=tmp_path) == [(0, f'{r}: fortran\n', '') for r in range(4)]
    assert not list(tmp_path.glob('unit.*'))


def test_arguments_environment_folder_mask_limits_and_cpus_arrive(programs, tmp_path):
    import resource
    folders = [tmp_path / str(r) for r in range(3)]
    cpus = sorted(os.sched_getaffinity(0))
    own = []
    for rank, folder in enumerate(folders):
        folder.mkdir()

        def before(rank=rank):
            os.umask(0o20 + rank)
            resource.setrlimit(resource.RLIMIT_NOFILE, (300 + rank, 400))
            os.sched_setaffinity(0, cpus[:1] if rank == 1 else cpus)
        own.append({'cwd': folder, 'preexec_fn': before})
    ends = run([programs / 'ranks', 'describe', 'a b', '', '*'], 3, 3, rank_popen=own,
               rank_env=[{'MINE': f'm{r}'} for r in range(3)])
    for rank, (status, out, err) in enumerate(ends):
        count = 1 if rank == 1 else len(cpus)
        assert out.splitlines()[0] == (
            f'{rank}: {programs}/ranks <describe> <a b> <> <*> in {folders[rank]} mask 02{rank} '
            f'files {300 + rank} cpus {count} name ranks mine m{rank}')
        others = [line for line in err.splitlines() if 'does not switch: its CPUs' not in line]
        assert (status, others) == (rank, [])


def test_descriptors_keep_their_numbers_and_pipes_end(programs):
    pipes = [os.pipe() for _ in range(2)]
    own = [{'preexec_fn': lambda end=end: os.dup2(end, 7), 'pass_fds': [7]} for _, end in pipes]
    started = start([programs / 'ranks', 'copy'], 2, 2, rank_popen=own, stdin=subprocess.PIPE)
    for _, end in pipes:
        os.close(end)
    for rank, child in enumerate(started):
        out, err = child.communicate(f'input of {rank}\n', timeout=60)
        assert (child.returncode, err) == (0, '')
        assert out == f'input of {rank}\n{rank}: exit handler, global 7\n'
        assert os.read(pipes[rank][0], 100) == f'{rank}: seven\n'.encode()
        assert os.read(pipes[rank][0], 100) == b'' # every copy of the other end is closed
        os.close(pipes[rank][0])


def test_a_rank_reads_from_its_terminal(programs):
    """The kernel stops whoever reads and is not in the terminal's foreground group."""
    master, terminal = os.openpty()
    own = {'stdin': terminal, 'start_new_session': True,
           'preexec_fn': lambda: fcntl.ioctl(0, termios.TIOCSCTTY, 0)}
    child, = start([programs / 'ranks', 'copy'], 1, 1, rank_popen=[own])
    os.write(master, b'a line\n\x04') # the end of the input
    out, _ = child.communicate(timeout=60)
    assert out == 'a line\n0: exit handler, global 7\n'
    os.close(master)
    os.close(terminal)


def test_forks_see_their_own_children_only(programs):
    for rank, (status, out, err) in enumerate(run([programs / 'ranks', 'forks'], 4, 4)):
        assert (status, out, err) == (0, f'{rank}: exit handler, global 7\n', '')


@pytest.mark.parametrize('end, status', [
    ('abort', -signal.SIGABRT), ('segv', -signal.SIGSEGV), ('deep', -signal.SIGSEGV), ('_exit', 21),
    ('quick', 21)])
def test_a_rank_ends_alone_and_its_process_ends_alike(end, status, programs):
    """Rank 1 ends; the others go on until their launcher ends them."""
    started = start([programs / 'ranks', end, '1'], 3, 3)
    try:
        assert started[1].wait(20) == status
        time.sleep(0.1)
        assert started[0].poll() is None and started[2].poll() is None
    finally:
        for child in started:
            child.terminate()
    assert [finish([c])[0][0] for c in (started[0], started[2])] == [-signal.SIGTERM] * 2


def started_pids(started):
    """Process IDs of the images, as they print them."""
    return [int(child.stdout.readline().split()[1]) for child in started]


def test_signals_are_forwarded(programs):
    started = start([programs / 'ranks', 'signal'], 2, 2)
    started_pids(started)
    started[1].send_signal(signal.SIGUSR1)
    assert finish([started[1]])[0][:2] == (33, '1: signal\n')
    started[0].send_signal(signal.SIGTERM)
    assert finish([started[0]])[0][:2] == (-signal.SIGTERM, '')


@pytest.mark.parametrize('are_crowded', [False, True])
def test_ranks_of_several_sessions_stay_in_several(are_crowded, programs, monkeypatch):
    """The kernel gives each session a share of the CPUs; but a yield reaches one's own session only."""
    cpus = len(os.sched_getaffinity(0))
    if cpus < 2:
        pytest.skip('one CPU')
    monkeypatch.setitem(FOR_ALL, 'MPI_LOCALNRANKS', str(2 * cpus if are_crowded else 2))
    started = start([programs / 'ranks', 'pause'], 2, 2, start_new_session=True)
    pids = started_pids(started)
    own = not are_crowded and FOR_ALL['SLUICE_ENDPOINTS_SWITCH'] == 'kernel'
    assert len({os.getsid(pid) for pid in pids}) == 1 + own
    for child in started:
        child.kill()
    finish(started)


def test_an_alarm_set_before_the_program_comes_in_the_foreground_of_a_terminal(programs):
    """execve() keeps it. Signals of the terminal itself reach the rank without its launched process."""
    master, terminal = os.openpty()

    def before():
        fcntl.ioctl(0, termios.TIOCSCTTY, 0)
        signal.setitimer(signal.ITIMER_REAL, 1)
    own = {'stdin': terminal, 'start_new_session': True, 'preexec_fn': before}
    assert run([programs / 'self', 'alarm'], 1, 1, rank_popen=[own])[0][0] == -signal.SIGALRM
    os.close(master)
    os.close(terminal)


CONTAINER = '''
#include <linux/filter.h>
#include <linux/seccomp.h>
#include <stddef.h>
#include <sys/prctl.h>
#include <sys/syscall.h>
#include <unistd.h>
int main(int argc, char **argv)
{
	struct sock_filter f[] = {
		BPF_STMT(BPF_LD | BPF_W | BPF_ABS, offsetof(struct seccomp_data, nr)),
		BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, SYS_sched_setaffinity, 0, 1),
		BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ERRNO | 0),
		BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ALLOW) };
	struct sock_fprog p = { sizeof f / sizeof *f, f };

	(void)argc;
	prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0);
	if (prctl(PR_SET_SECCOMP, SECCOMP_MODE_FILTER, &p))
		return 97;
	execv(argv[0], argv);
	return 98;
}
'''


def test_each_rank_has_its_own_priority(programs):
    own = [{'preexec_fn': lambda nice=nice: os.nice(nice)} for nice in (3, 7, 3)]
    assert [end[0] for end in run([programs / 'self', 'nice'], 3, 3, rank_popen=own)] == [3, 7, 3]


def cpu_ticks(pid):
    return sum(map(int, pathlib.Path(f'/proc/{pid}/stat').read_text().rsplit(')')[1].split()[11:13]))


@pytest.fixture
def first(programs):
    """Starts rank 0, from which the carrier descends. Returns the process ID of its image."""
    started = []

    def begin(share, does, **popen):
        started.append(start_rank(0, [programs / 'ranks', 'signal', does], share, **popen))
        return started_pids(started)[0]
    yield begin
    for child in started:
        child.send_signal(signal.SIGUSR1)
    assert [end[:2] for end in finish(started)] == [(33, '0: signal\n')] * len(started)


def test_a_rank_that_cannot_start_beside_the_first_stays_a_process(first, programs):
    """The first one's limit does not permit the number of a descriptor that the second one has."""
    few = {'preexec_fn': lambda: resource.setrlimit(resource.RLIMIT_NOFILE, (64, 64))}
    pid = first(3, 'yield', **few)
    null = os.open('/dev/null', os.O_RDONLY)
    os.dup2(null, 100)
    os.close(null)
    refused = start_rank(1, [programs / 'ranks', '_exit'], 3, pass_fds=[100])
    os.close(100)
    (status, _, err), = finish([refused])
    assert status == 21 and 'this rank stays a process: fcntl(F_DUPFD): Invalid argument' in err
    before = cpu_ticks(pid) # it is the only one: once it is at home it does not go to a worker
    wait_until(lambda: cpu_ticks(pid) > before + 5, 'the scheduler has a rank that has not started')
    assert finish([start_rank(2, [programs / 'ranks', '_exit'], 3, **few)]) == [(22, '', '')]


def test_a_rank_whose_cpus_the_first_may_not_use_stays_a_process(first, programs, tmp_path):
    """A filter in place of a cgroup: the first one's descendants cannot change their CPUs."""
    if len(os.sched_getaffinity(0)) < 2:
        pytest.skip('needs two CPUs')
    own = min(os.sched_getaffinity(0))
    compile_c(tmp_path / 'container', CONTAINER)
    first(2, 'pause', executable=tmp_path / 'container', preexec_fn=lambda: os.sched_setaffinity(0, {own}))
    (status, _, err), = finish([start_rank(1, [programs / 'ranks', '_exit'], 2)])
    assert status == 21 and 'this rank stays a process: sched_setaffinity' in err


def test_a_carrier_that_refuses_all_ranks_ends_with_the_job(programs, tmp_path):
    compile_c(tmp_path / 'container', CONTAINER.replace('SECCOMP_RET_ERRNO | 0', 'SECCOMP_RET_ERRNO | 1'))
    ends = run([programs / 'ranks', '_exit'], 2, 2, executable=tmp_path / 'container')
    name, ended = f'@sluice-carrier-{os.getuid()}-{os.getpid()}-', time.monotonic()
    assert all('stays a process: sched_setaffinity' in err for _, _, err in ends), ends
    wait_until(lambda: name not in pathlib.Path('/proc/net/unix').read_text(), 'it is still there')
    assert time.monotonic() - ended < 5


def test_ranks_in_containers_of_their_own_do_not_share(programs):
    """A process ID of another container names a process that is not the rank."""
    if subprocess.run(['unshare', '--pid', '--fork', 'true'], capture_output=True).returncode:
        pytest.skip('no new namespaces of process IDs')
    started = []
    for rank in range(2):
        env = plain_env(**FOR_ALL, MPI_LOCALRANKID=str(rank), PMI_RANK=str(rank))
        line = ['unshare', '--pid', '--fork', SLUICE, 'run', '--endpoints=2', programs / 'ranks', 'signal']
        started.append(subprocess.Popen(line, env=env, text=True, stdout=subprocess.PIPE,
                                        stderr=subprocess.PIPE))
    started_pids(started)
    for child in started:
        shell, = children(child.pid)
        os.kill(shell, signal.SIGUSR1)
    assert [end[:2] for end in finish(started)] == [(33, f'{rank}: signal\n') for rank in range(2)]


def test_the_group_of_a_rank_with_closed_streams_is_complete(programs):
    """No copy of the socket at which the carrier has waited for ranks remains where a stream was."""
    child, = start([programs / 'self', 'alarm'], 1, 1, stdin=subprocess.DEVNULL,
                   preexec_fn=lambda: (os.close(0), os.close(1)))
    name = f'@sluice-carrier-{os.getuid()}-{os.getpid()}-'
    try:
        wait_until(lambda: any(map(images, children(child.pid))), 'no image')
        wait_until(lambda: not any(name in line and line.split()[3] == '00010000' # it listens
                                   for line in open('/proc/net/unix')), 'a socket still waits for ranks')
    finally:
        child.kill()
        finish([child])


def test_the_connection_to_the_launcher_is_open_until_the_launched_process_ends(programs):
    """Hydra kills the process that closes it before."""
    launcher, rank = socket.socketpair()
    child, = start([programs / 'ranks', 'pause'], 1, 1, [{'PMI_FD': str(rank.fileno())}],
                   pass_fds=[rank.fileno()])
    rank.close()
    image, = started_pids([child])
    os.kill(image, signal.SIGTERM)
    launcher.settimeout(20)
    assert launcher.recv(1) == b''
    assert os.waitid(os.P_PID, child.pid, os.WEXITED | os.WNOHANG | os.WNOWAIT), 'closed before its end'
    assert finish([child])[0][0] == -signal.SIGTERM


def test_a_killed_launched_process_takes_its_rank_with_it(programs):
    started = start([programs / 'ranks', 'pause'], 2, 2)
    pids = started_pids(started)
    started[0].kill()
    wait_until(lambda: not is_running(pids[0]), 'the image outlives its process')
    assert is_running(pids[1]) and started[1].poll() is None
    os.kill(pids[1], signal.SIGKILL)
    assert [end[0] for end in finish(started)] == [-signal.SIGKILL] * 2


def test_a_killed_launched_process_takes_the_children_of_its_rank_with_it(programs):
    """Launchers kill process groups; that of a rank is another one than that of its launched process."""
    child, = start([programs / 'self', 'child'], 1, 1)
    pid, = started_pids([child])
    child.kill()
    finish([child])
    wait_until(lambda: not is_running(pid), 'a child outlives the job')


def test_a_signal_of_the_launcher_reaches_the_children_of_a_rank(programs):
    """Open MPI ends a job by SIGTERM to the process group of each process that it has started."""
    child, = start([programs / 'self', 'child'], 1, 1)
    pid, = started_pids([child])
    child.terminate()
    assert finish([child])[0][0] == -signal.SIGTERM
    wait_until(lambda: not is_running(pid), 'a child outlives the job')


def test_a_killed_carrier_takes_all_ranks_with_it(programs):
    started = start([programs / 'ranks', 'pause'], 2, 2)
    pids = started_pids(started)
    carriers = [p for child in started for p in children(child.pid)]
    assert len(carriers) == 1 and sorted(images(carriers[0])) == sorted(pids)
    others = children(carriers[0])
    os.kill(carriers[0], signal.SIGKILL)
    assert [end[0] for end in finish(started)] == [-signal.SIGKILL] * 2
    wait_until(lambda: not any(map(is_running, others)), 'a process outlives the carrier')


def test_nothing_outlives_the_job(programs):
    started = start([programs / 'ranks', 'pause'], 2, 2)
    started_pids(started)
    carrier = next(p for child in started for p in children(child.pid))
    for child in started:
        child.terminate()
    finish(started)
    wait_until(lambda: not is_running(carrier), 'the carrier outlives its ranks')


@pytest.mark.parametrize('program, reason', [
    ('no_pie', 'is not position-independent'), ('static', None), ('/bin/sh', 'links no MPI library')])
def test_a_program_that_cannot_share_stays_a_process(program, reason, programs):
    path = program if program.startswith('/') else programs / program
    args = {'no_pie': ['_exit'], 'static': [], '/bin/sh': ['-c', 'exit 4']}[program]
    for rank, (status, _, err) in enumerate(run([path, *args], 2, 2)):
        assert status == {'no_pie': 20 + rank, 'static': 3, '/bin/sh': 4}[program]
        if reason:
            assert 'this rank stays a process: ' in err and reason in err


def test_a_path_that_looks_like_an_option_stays_with_its_process(programs, tmp_path):
    folder = tmp_path / '-x'
    folder.mkdir()
    shutil.copy(programs / 'ranks', folder)
    (status, _, err), = run(['--', '-x/ranks', '_exit'], 1, 1, cwd=tmp_path)
    assert status == 20 and 'takes the path -x/ranks for an option' in err


def test_a_limited_address_space_stays_with_its_process(programs):
    command = ['sh', '-c', 'ulimit -v 4000000; exec "$@"', 'sh', SLUICE, 'run', '--endpoints=2',
               programs / 'ranks', '_exit']
    done = subprocess.run([str(w) for w in command], capture_output=True, text=True, timeout=60,
                          env=plain_env(MPI_LOCALRANKID='0', PMI_RANK='0', SLUICE_LOG='info'))
    assert done.returncode == 20 and 'ulimit -v' in done.stderr


def test_different_programs_may_share(programs):
    """MPMD: both are images of one carrier."""
    shutil.copy(programs / 'ranks', programs / 'other')
    started = [start([programs / 'ranks', 'pause'], 1, 2)[0]]
    env = plain_env(MPI_LOCALRANKID='1', PMI_RANK='1')
    started.append(subprocess.Popen([SLUICE, 'run', '--endpoints=2', programs / 'other', 'pause'], env=env,
                                    text=True, stdout=subprocess.PIPE, stderr=subprocess.PIPE))
    pids = started_pids(started)
    carrier = next(p for child in started for p in children(child.pid))
    assert sorted(images(carrier)) == sorted(pids)
    for child in started:
        child.terminate()
    assert [end[0] for end in finish(started)] == [-signal.SIGTERM] * 2


@pytest.mark.parametrize('value', ['0', '65', '-1', 'many', '2x', ''])
def test_a_wrong_number_is_reported_in_one_line(value, programs):
    (status, _, err), = run([programs / 'ranks', '_exit'], 1, value)
    assert status == 20
    assert len(err.splitlines()) == 1 and 'SLUICE_ENDPOINTS' in err and '1 to 64' in err


def test_without_a_launcher_the_program_runs_as_it_is(programs):
    done = subprocess.run([SLUICE, 'run', '--endpoints=2', '/bin/true'], capture_output=True, text=True,
                          env=plain_env(SLUICE_LOG='info'), timeout=60)
    assert done.returncode == 0 and 'no launcher has started it' in done.stderr


# ---- what a rank knows of itself and of others ---------------------------------------------------------


@pytest.mark.parametrize('ranks, share', [(3, 3), (4, 2), (2, 1), (16, 16)])
def test_ranks_use_each_others_memory_by_pointers(ranks, share, programs):
    ends = run([programs / 'self', 'pointers', ranks], ranks, share, rank_env=[{'SHARE': str(share)}] * ranks)
    assert ends == [(0, f'{r}: {share - 1} here\n', '') for r in range(ranks)]


def test_a_rank_alone_is_told_so(programs):
    """Without Sluice, without endpoints, and where it had to stay a process."""
    alone = plain_env(MPI_LOCALRANKID='0', SHARE='1') # without PMI_RANK: its rank is unknown
    for command in [], [SLUICE, 'run'], [SLUICE, 'run', '--endpoints=2']:
        done = subprocess.run([*command, programs / 'self', 'pointers', '1'], env=alone, text=True,
                              capture_output=True, timeout=60)
        assert (done.returncode, done.stdout, done.stderr) == (0, '0: 0 here\n', '')


def test_a_rank_that_was_killed_is_no_longer_there(programs):
    ends = run([programs / 'self', 'end', '3'], 3, 3)
    assert ends == [(0, '', ''), (-signal.SIGKILL, '', ''), (0, '', '')]


def test_the_link_to_its_program_is_the_ranks_own(programs, tmp_path):
    """Different programs, one by a relative path and a symbolic link, of one address space."""
    (tmp_path / 'link').symlink_to(programs / 'self')
    shutil.copy(programs / 'self', tmp_path / 'other')
    started = (start(['./link', 'names'], 1, 2, cwd=tmp_path),
               start([tmp_path / 'other', 'names'], 1, 2, rank_env=[{'MPI_LOCALRANKID': '1'}], cwd=tmp_path))
    for (child,), path in zip(started, (programs / 'self', tmp_path / 'other')):
        (status, out, err), = finish([child])
        path = str(path)
        assert (status, err) == (0, '')
        assert out.splitlines() == [path, f'{len(path)} {path}', path, path, path, f'3 {path[:3]}',
                                    str(tmp_path)]


def test_a_rank_executes_itself_by_the_link_to_its_program(programs):
    ends = run([programs / 'self', 'again', '2'], 2, 2)
    assert ends == [(42, '', '')] * 2


def test_a_deep_frame_does_not_reach_the_memory_of_others(programs):
    """As below the stack of any process, a megabyte is free: one page is passed by an array of some pages."""
    assert run([programs / 'self', 'guard'], 4, 4) == [(0, '', '')] * 4


# ---- programs between the launcher and the ranks -------------------------------------------------------


WRAPPERS = {
    'sh': ['sh', '-c', 'RANKS "$@"', 'sh'],
    'sh that goes on': ['sh', '-c', 'RANKS "$@"; exit $?', 'sh'],
    'bash': ['bash', '-c', 'RANKS "$@"; exit $?', 'bash'],
    'exec': ['bash', '-c', 'exec -a name RANKS "$@"', 'bash'],
    'env': ['env', 'MINE=env', 'RANKS'],
    'taskset': ['taskset', '-p0x1', 'RANKS'],
    'nice': ['nice', '-n', '1', 'RANKS'],
    'timeout': ['timeout', '50', 'RANKS'],
    'python': ['python3', '-c',
               'import subprocess, sys; sys.exit(subprocess.run(["RANKS"] + sys.argv[1:]).returncode)'],
    'two of them': ['sh', '-c', 'env -u NOTHING sh -c \'RANKS "$@"\' sh "$@"', 'sh'],
}


def wrapped(name, program):
    if not shutil.which(WRAPPERS[name][0]):
        pytest.skip(f'no {WRAPPERS[name][0]}')
    words = ['-c' if word == '-p0x1' else word for word in WRAPPERS[name]]
    if name == 'taskset':
        words.insert(2, str(min(os.sched_getaffinity(0))))
    return [word.replace('RANKS', str(program)) for word in words]


def said(err):
    return [line for line in err.splitlines() if 'a program that it executes may share' not in line]


@pytest.mark.parametrize('name', WRAPPERS)
def test_ranks_behind_a_wrapper_share_an_address_space(name, programs):
    ends = run([*wrapped(name, programs / 'self'), 'pointers', 2], 2, 2, rank_env=[{'SHARE': '2'}] * 2)
    for rank, (status, out, err) in enumerate(ends):
        assert (status, out, said(err)) == (0, f'{rank}: 1 here\n', [])


@pytest.mark.parametrize('name', ['sh that goes on', 'exec', 'env', 'python'])
def test_a_wrapper_hands_arguments_environment_and_status_on(name, programs, tmp_path):
    ends = run([*wrapped(name, programs / 'ranks'), 'describe', 'a b', ''], 2, 2, cwd=tmp_path)
    for rank, (status, out, err) in enumerate(ends):
        argv0 = 'name' if name == 'exec' else str(programs / 'ranks')
        assert out.startswith(f'{rank}: {argv0} <describe> <a b> <> in {tmp_path} mask ')
        assert out.splitlines()[0].endswith(f'mine {"env" if name == "env" else "-"}')
        assert (status, said(err)) == (rank, [])


def test_a_signal_ends_a_rank_behind_a_wrapper(programs):
    ends = run(['bash', '-c', f'{programs}/ranks "$@"; echo $?', 'bash', 'segv'], 2, 2)
    assert [(status, out) for status, out, _ in ends] == [(0, '139\n')] * 2


def test_programs_one_after_another_behind_a_wrapper(programs):
    """Programs in which the ranks meet come first: a rank that is ahead shares with the next that comes."""
    pair = f'{programs}/self pointers 2'
    ends = run(['sh', '-c', f'{pair}; {pair}; exec {programs}/self names'], 2, 2,
               rank_env=[{'SHARE': '2'}] * 2)
    for rank, (status, out, err) in enumerate(ends):
        lines = out.splitlines()
        assert (status, said(err), len(lines)) == (0, [], 9), out
        assert lines[0] == lines[1] == f'{rank}: 1 here' and lines[2] == f'{programs}/self'


def test_what_a_rank_executes_is_a_process(programs):
    ends = run([programs / 'self', 'system', f'{programs}/ranks space'], 2, 2)
    assert [(status, out.splitlines()[0], err) for status, out, err in ends] == [
        (0, f'{rank}: loaders 1', '') for rank in range(2)]


def test_what_cannot_share_behind_a_wrapper_stays_a_process(programs):
    for rank, (status, _, err) in enumerate(run(['sh', '-c', f'{programs}/no_pie _exit'], 2, 2)):
        assert status == 20 + rank and 'no_pie is not position-independent' in err
