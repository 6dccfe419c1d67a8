# SPDX-License-Identifier: BSD-3-Clause
"""Habits of programs that use what a process has, in ranks of one address space at the same time, with both
schedulers. No MPI: this program is the launcher.

Run alone: pytest test/tools/test_endpoints_habits.py
"""
import os
import re
import resource
import shutil
import signal
import subprocess

import pytest

from cli import SLUICE, compile_c, plain_env, sluice
from test_endpoints import finish, start

HABITS = ['libc', 'tls', 'libraries', 'stacks', 'raised stacks', 'heaps', 'timers', 'float traps',
          'signal stacks', 'masks', 'filters', 'cancels', 'mutex', 'files', 'limits', 'names', 'children',
          'pipes and locks', 'silence']
LIBRARY = '''
int habit_state = 1;
int habit_add(int n) { static int sum; return sum += n; }
'''


@pytest.fixture(scope='module')
def program(tmp_path_factory):
    folder = tmp_path_factory.mktemp('habits')
    (folder / 'path').mkdir()
    compile_c(folder / 'libhabit_origin.so', LIBRARY, '-shared', '-fPIC')
    compile_c(folder / 'path/libhabit_path.so', LIBRARY, '-shared', '-fPIC')
    return compile_c(folder / 'habits', 'endpoints_habits.c', '-rdynamic', '-pthread', '-lm', f'-L{folder}',
                     '-Wl,--no-as-needed', '-lhabit_origin', '-Wl,-rpath,$ORIGIN')


@pytest.fixture(params=['kernel', 'user'])
def run(request, program, tmp_path):
    def run(habit, ranks, share, cpus=None, unlimited=False):
        def before():
            if cpus:
                os.sched_setaffinity(0, cpus)
            if unlimited:
                resource.setrlimit(resource.RLIMIT_STACK, (resource.RLIM_INFINITY, resource.RLIM_INFINITY))
        env = {'SLUICE_ENDPOINTS_SWITCH': request.param, 'LD_LIBRARY_PATH': str(program.parent / 'path')}
        return finish(start([program, habit, ranks, tmp_path], ranks, share, rank_env=[env] * ranks,
                            rank_popen=[{'preexec_fn': before}] * ranks))
    return run


@pytest.mark.parametrize('habit', HABITS)
@pytest.mark.parametrize('ranks, share', [(2, 2), (4, 4)])
def test_each_rank_keeps_what_is_its_own(habit, ranks, share, run):
    ends = run(habit, ranks, share, unlimited=habit == 'stacks')
    assert ends == [(0, '', '')] * ranks


@pytest.mark.parametrize('habit', ['libc', 'timers', 'mutex', 'children', 'pipes and locks', 'silence'])
def test_sixteen_ranks_on_one_cpu(habit, run):
    ends = run(habit, 16, 16, cpus=sorted(os.sched_getaffinity(0))[:1])
    assert ends == [(0, '', '')] * 16


@pytest.mark.parametrize('switch', ['kernel', 'user'])
def test_openmp(switch, tmp_path):
    source = '''
#include <omp.h>
#include <sched.h>
#include <stdlib.h>
int PMPI_Openmp_test(void) { return 0; }
int main(void)
{
	long sum = 0, rank = atoi(getenv("MPI_LOCALRANKID"));
	for (int i = 0; i < 50; i++) {
#pragma omp parallel for reduction(+ : sum)
		for (int k = 0; k < 1000; k++)
			sum += rank + omp_get_thread_num() * 0;
		sched_yield();
	}
	return sum == 50000 * rank ? 0 : 1;
}
'''
    compile_c(tmp_path / 'openmp', source, '-fopenmp', '-rdynamic')
    env = {'SLUICE_ENDPOINTS_SWITCH': switch, 'OMP_NUM_THREADS': '3'}
    assert finish(start([tmp_path / 'openmp'], 3, 3, rank_env=[env] * 3)) == [(0, '', '')] * 3


def test_a_set_user_id_program_runs_as_it_is(program, tmp_path):
    if os.getuid():
        pytest.skip('needs root')
    target = tmp_path / 'setuid'
    shutil.copy(program, target)
    os.chown(target, 65534, 65534)
    target.chmod(0o4755)
    (status, out, err), = finish(start([target, 'limits', '1', tmp_path], 1, 1))
    assert 'is set-user-ID' in err and 'shares' not in out and status != -signal.SIGKILL
    assert re.search('endpoints +no +the program is set-user-ID', sluice('check', target).stdout)


def test_ranks_in_a_container_without_ptrace(program, tmp_path):
    """seccomp refuses what containers refuse: ptrace, process_vm_readv, kcmp."""
    source = '''
#include <errno.h>
#include <linux/filter.h>
#include <linux/seccomp.h>
#include <stddef.h>
#include <sys/prctl.h>
#include <sys/syscall.h>
#include <unistd.h>
#define REFUSE BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ERRNO | EPERM)
#define NO(call) BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, call, 0, 1), REFUSE
int main(int argc, char **argv)
{
	struct sock_filter f[] = {
		BPF_STMT(BPF_LD | BPF_W | BPF_ABS, offsetof(struct seccomp_data, nr)),
		NO(SYS_ptrace), NO(SYS_process_vm_readv), NO(SYS_process_vm_writev), NO(SYS_kcmp),
		NO(SYS_pidfd_getfd), BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ALLOW) };
	struct sock_fprog p = { sizeof f / sizeof *f, f };

	(void)argc;
	prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0);
	if (prctl(PR_SET_SECCOMP, SECCOMP_MODE_FILTER, &p))
		return 97;
	execv(argv[1], argv + 1);
	return 98;
}
'''
    compile_c(tmp_path / 'container', source)
    started = []
    for rank in range(2):
        env = plain_env(MPI_LOCALRANKID=str(rank), PMI_RANK=str(rank), SLUICE_LOG='info',
                        LD_LIBRARY_PATH=str(program.parent / 'path'))
        line = [tmp_path / 'container', SLUICE, 'run', '--endpoints=2', program, 'libc', '2', tmp_path]
        started.append(subprocess.Popen([str(w) for w in line], env=env, text=True, stdout=subprocess.PIPE,
                                        stderr=subprocess.PIPE))
    assert finish(started) == [(0, '', '')] * 2


def test_a_program_with_a_sanitizer_stays_a_process(tmp_path):
    source = '''
#include <stdlib.h>
int PMPI_Sanitized_test(void) { return 0; }
int main(void) { char *p = malloc(8); int ok = !p[0] + 1; free(p); return !ok; }
'''
    compile_c(tmp_path / 'sanitized', source, '-fsanitize=address', '-rdynamic')
    for status, out, err in finish(start([tmp_path / 'sanitized'], 2, 2)):
        assert (status, out) == (0, '') and 'a sanitizer needs its address space' in err
    assert re.search('endpoints +no +a sanitizer needs', sluice('check', tmp_path / 'sanitized').stdout)


def test_a_program_with_openshmem_stays_a_process(tmp_path):
    """Its library maps the heap of each process at the same address, MAP_FIXED."""
    compile_c(tmp_path / 'liboshmem.so', LIBRARY, '-shared', '-fPIC')
    source = '''
int PMPI_Shmem_test(void) { return 0; }
int habit_add(int);
int main(void) { return habit_add(5); }
'''
    path = compile_c(tmp_path / 'shmem', source, '-rdynamic', f'-L{tmp_path}', '-loshmem',
                     f'-Wl,-rpath,{tmp_path}')
    for status, out, err in finish(start([path], 2, 2)):
        assert (status, out) == (5, '') and 'links OpenSHMEM, whose heap has one address' in err
    assert re.search('endpoints +no +.*links OpenSHMEM', sluice('check', path).stdout)
