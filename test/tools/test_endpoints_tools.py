# SPDX-License-Identifier: BSD-3-Clause
"""Tools that look at ranks of one address space from outside: sluice info --pid, gdb, perf. No MPI: this
program is the launcher.

Run alone: pytest test/tools/test_endpoints_tools.py
"""
import os
import re
import shutil
import signal
import subprocess

import pytest

from cli import ROOT, SLUICE, compile_c, sluice
from test_endpoints import children, finish, is_running, start


@pytest.fixture(scope='module')
def program(tmp_path_factory):
    path = tmp_path_factory.mktemp('tools') / 'self'
    return compile_c(path, 'endpoints_self.c', '-g', '-O0', '-rdynamic', '-pthread', f'-I{ROOT}/include')


@pytest.fixture(params=['kernel', 'user'])
def working(request, program):
    """Two ranks of one address space that call a function now and then, and their process IDs."""
    started = start([program, 'work', '2'], 2, 2, rank_env=[{'SLUICE_ENDPOINTS_SWITCH': request.param}] * 2)
    pids = [int(child.stdout.readline()) for child in started]
    yield started, pids
    for child in started:
        child.terminate()
    assert [end[0] for end in finish(started)] == [-signal.SIGTERM] * 2


def carrier_of(started):
    return next(pid for child in started for pid in children(child.pid))


def info(*args):
    done = sluice('info', *args)
    return done.returncode, done.stdout, done.stderr


def test_info_lists_the_ranks_of_an_address_space(working, program):
    started, pids = working
    rows = [['rank', 'process', 'program']] + [[str(r), str(pids[r]), str(program)] for r in range(2)]
    for pid in (*pids, carrier_of(started)):
        status, out, err = info('--pid', pid)
        assert (status, sorted(line.split() for line in out.splitlines()), err) == (0, sorted(rows), '')


def test_info_says_which_ranks_have_ended(program):
    started = start([program, 'work', '2'], 2, 2)
    pids = [int(child.stdout.readline()) for child in started]
    started[0].kill()
    started[0].wait()
    ended = []
    while not ended and is_running(pids[1]):
        ended = [line.split() for line in info('--pid', pids[1])[1].splitlines() if 'ended' in line]
    assert ended == [['0', 'ended', str(program)]]
    started[1].kill()
    finish(started)


def test_info_refuses_other_processes(working):
    started, _ = working
    other = subprocess.Popen(['sleep', '50'])
    try:
        for pid, why in ((other.pid, 'is no rank'), (started[1].pid, 'no ranks share|is no rank'),
                         (4194304, 'No such')):
            status, out, err = info('--pid', pid)
            assert status == 1 and not out and re.search(why, err), err
    finally:
        other.kill()
        other.wait()
    for wrong in (['--pid', 'x'], ['--pid'], ['--gdb'], ['--pid', '1', '--json']):
        assert info(*wrong)[0] == 2


def symbols(pid, tmp_path):
    status, out, err = info('--pid', pid, '--gdb')
    assert (status, err) == (0, '')
    path = tmp_path / f'symbols.{pid}'
    path.write_text(out)
    return path


def gdb(*args):
    if not shutil.which('gdb'):
        pytest.skip('no gdb')
    line = ['gdb', '-nx', '-batch', '-iex', 'set debuginfod enabled off', *map(str, args)]
    done = subprocess.run(line, capture_output=True, text=True, timeout=120, env=dict(os.environ, HOME='/'))
    if 'ptrace: Operation not permitted' in done.stderr:
        pytest.skip('ptrace is not permitted')
    return done.stdout + done.stderr


@pytest.mark.parametrize('rank', [0, 1])
def test_gdb_stops_a_rank_at_a_breakpoint(rank, working, tmp_path):
    started, pids = working
    said = gdb('-p', pids[rank], '-x', symbols(pids[rank], tmp_path), '-ex', 'break step', '-ex', 'continue',
               '-ex', 'backtrace', '-ex', 'print rank', '-ex', 'delete', '-ex', 'detach')
    assert re.search(r'^#0 .*step \(n=\d+\)', said, re.M), said
    assert re.search(r'^#1 .*work \(\)', said, re.M) and re.search(r'^#2 .*main \(', said, re.M), said
    assert f'$1 = {rank}\n' in said
    assert all(child.poll() is None for child in started) # the others and this one go on
    said = gdb('-p', pids[rank], '-x', tmp_path / f'symbols.{pids[rank]}', '-ex', 'print steps', '-ex',
               'detach')
    assert re.search(r'\$1 = \d+', said), said


@pytest.mark.parametrize('tool', ['gdb', 'strace'])
def test_a_program_that_a_debugger_starts_is_a_process_of_its_own(tool, program):
    """With --endpoints these are wrappers whose programs may share."""
    line = {'gdb': ['gdb', '-nx', '-batch', '-iex', 'set debuginfod enabled off', '-ex', 'break print_names',
                    '-ex', 'run', '-ex', 'backtrace', '-ex', 'kill', '--args', program, 'names'],
            'strace': ['strace', '-e', 'trace=write', program, 'names']}[tool]
    if not shutil.which(tool):
        pytest.skip(f'no {tool}')
    (_, out, err), = finish(start(line, 1, 1))
    if 'ptrace' in err and 'Operation not permitted' in err:
        pytest.skip('ptrace is not permitted')
    assert re.search({'gdb': r'^#1 .*main \(', 'strace': r'^write\(1, '}[tool], out + err, re.M), out + err


def test_the_lines_for_the_parent_name_the_files_of_all_ranks(working, program):
    started, pids = working
    _, all_lines, _ = info('--pid', carrier_of(started), '--gdb')
    added = re.findall(r'^add-symbol-file (\S+) -o 0x[0-9a-f]+$', all_lines, re.M)
    assert added.count(str(program)) == 2 and sum('libc.so' in path for path in added) == 2
    own = [set(re.findall('^add.*', info('--pid', pid, '--gdb')[1], re.M)) for pid in pids]
    assert not own[0] & own[1] and own[0] | own[1] == set(re.findall('^add.*', all_lines, re.M))


def test_a_core_dump_shows_the_stack_of_its_rank(working, tmp_path):
    _, pids = working
    commands = symbols(pids[1], tmp_path)
    said = gdb('-p', pids[1], '-ex', f'generate-core-file {tmp_path}/core', '-ex', 'detach')
    assert (tmp_path / 'core').exists(), said
    assert (tmp_path / 'core').stat().st_size < 4 << 30
    said = gdb(SLUICE, tmp_path / 'core', '-x', commands, '-ex', 'print rank', '-ex', 'print steps > 0')
    assert '$1 = 1\n' in said and '$2 = 1\n' in said, said


def test_perf_names_the_functions_of_a_rank(program, tmp_path):
    if not shutil.which('perf'):
        pytest.skip('no perf')
    started = start([program, 'spin', '2'], 2, 2)
    try:
        pids = [int(child.stdout.readline()) for child in started]
        data = tmp_path / 'perf.data'
        done = subprocess.run(['perf', 'record', '-q', '-e', 'cpu-clock', '-o', data, '-p', str(pids[1]),
                               '--', 'sleep', '1'], capture_output=True, text=True, timeout=60)
        if done.returncode:
            pytest.skip(f'perf: {done.stderr.strip()[:80]}')
        said = subprocess.run(['perf', 'report', '--stdio', '-i', data], capture_output=True, text=True,
                              timeout=60).stdout
        assert re.search(r'\d+\.\d+%.*\bself\b.*\[\.\] spin\b', said), said
    finally:
        for child in started:
            child.kill()
        finish(started)
