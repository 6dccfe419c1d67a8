# SPDX-License-Identifier: BSD-3-Clause
"""sluice trace: its counts are the program's, whatever happens to the program."""
import json
import os
import re
import shutil
import signal
import subprocess
import time

import pytest

from cli import PROGRAMS, compile_c, fake_mpi, plain_env
from support import job
from support.mpi import need
from support.paths import SLUICE

OUTPUTS = ('summary.txt', 'timeline.html', 'trace.json')


@pytest.fixture
def mpich():
    return need('mpich')


def trace(mpi, folder, *words, mode='count', ranks=2, env=None, **more):
    return mpi.launch(ranks, SLUICE, 'trace', '-o', folder, *words, mpi.build(PROGRAMS / 'traced.c'), mode,
                      sluice=False, env=env, timeout=100, **more)


def wait_for_report(folder, seconds=20):
    """Waits for the report of the last watcher; a killed launcher does not wait for it."""
    deadline = time.monotonic() + seconds
    while not (folder / OUTPUTS[-1]).exists() or not (folder / OUTPUTS[1]).exists():
        assert time.monotonic() < deadline, sorted(p.name for p in folder.iterdir())
        time.sleep(0.05)


def meta(folder):
    text = (folder / 'timeline.html').read_text()
    return json.loads(re.search(r'<script id="meta" type="application/json">(.*?)</script>', text,
                                re.S).group(1))


def events(folder):
    return [e for e in json.loads((folder / 'trace.json').read_text())['traceEvents'] if e['ph'] == 'X']


def counted(out):
    """Returns the counts that the ranks print: {function: [calls, bytes, large]}"""
    sums = {}
    for name, *numbers in re.findall(r'(\w+) (\d+) (\d+) (\d+)$', out, re.M):
        sums[name] = [a + int(b) for a, b in zip(sums.get(name, [0, 0, 0]), numbers)]
    assert len(sums) == 4, out
    return sums


def traced(folder):
    return {p['function']: [p['calls'], p['bytes'], p['admitted']] for p in meta(folder)['places']
            if p['calls']}


def our_lines(result):
    return [line for line in result.err.splitlines() if line.startswith('sluice')]


# ---- what is counted ---------------------------------------------------------------------------------

@pytest.mark.parametrize('early', ['off', 'on'])
def test_calls_bytes_and_taken_are_the_programs_own_counts(mpi, early, tmp_path):
    # on: EARLY=auto would ask for larger calls where ranks share CPUs
    done = trace(mpi, tmp_path / 't', '--set', f'EARLY={early}', '--set',
                 'COLL=bcast:on,gather:on', ranks=3)
    assert done.status == 0 and not done.leftovers, done.explain()
    assert len(our_lines(done)) == 1 and 'timeline.html' in our_lines(done)[0], done.explain()
    assert traced(tmp_path / 't') == counted(done.out)
    places = {p['function']: p for p in meta(tmp_path / 't')['places'] if p['calls']}
    assert not any(p['early'] for p in places.values()) if early == 'off' else places['large_bcast']['early']


def test_calls_that_sluice_does_not_serve_are_counted_too(mpich, tmp_path):
    done = trace(mpich, tmp_path / 't', rank_env=[{'node_name': name} for name in 'ab'])
    assert done.status == 0, done.explain()
    assert traced(tmp_path / 't') == {name: [calls, size, 0] for name,
                                      (calls, size, _) in counted(done.out).items()}


def test_what_receivers_got_was_moved_once_by_someone(mpich, tmp_path):
    done = trace(mpich, tmp_path / 't', '--set', 'EARLY=off', ranks=3)
    place = next(p for p in meta(tmp_path / 't')['places'] if p['function'] == 'large_bcast')
    per_rank = counted(done.out)['large_bcast'][1] // 3
    assert place['own'] + place['peers'] + place['channel'] == 2 * per_rank


def test_a_gathers_root_got_all_parts_its_own_too(mpich, tmp_path):
    done = trace(mpich, tmp_path / 't', '--set', 'EARLY=off', ranks=3)
    place = next(p for p in meta(tmp_path / 't')['places'] if p['function'] == 'any_gather')
    gathered = counted(done.out)['any_gather'][2] * (256 << 10)
    assert place['own'] + place['peers'] + place['channel'] == gathered


def test_what_the_worker_process_copies_is_in_the_trace(mpich, tmp_path):
    early = [f'--set={name}' for name in ('EARLY=on', 'EARLY_MIN=1', 'WORKER_KIND=process',
                                          'ENGINE_CPUS=0-1')]
    for attempt in range(20):  # the scheduler decides whether the worker or a waiting rank claims first
        folder = tmp_path / str(attempt)
        done = trace(mpich, folder, *early, env={'fault': 'worker_idle:all'})
        assert done.status == 0 and not done.leftovers, done.explain()
        assert traced(folder) == counted(done.out)
        place = next(p for p in meta(folder)['places'] if p['function'] == 'large_bcast')
        assert place['own'] + place['peers'] + place['channel'] == counted(done.out)['large_bcast'][1] // 2
        assert 'worker process' in [p['name'] for p in meta(folder)['processes']]
        its = [e for e in events(folder) if e['args'].get('why') == 'by the worker process']
        if its:
            break
    assert sum(e['args']['bytes'] for e in its) > 0
    assert 'ENDED WITHOUT' not in (folder / 'summary.txt').read_text()


def test_sums_stay_exact_when_records_make_room(mpich, tmp_path):
    done = trace(mpich, tmp_path / 't', '--limit', '1M', '--set', 'COLL_THRESHOLD=8')
    found = meta(tmp_path / 't')
    want = {name: numbers[:2] for name, numbers in counted(done.out).items()}
    assert {p['function']: [p['calls'], p['bytes']] for p in found['places'] if p['calls']} == want
    for path in (tmp_path / 't').glob('*.sluice'):
        assert path.stat().st_size <= 1 << 20


def test_each_recorded_call_says_where_and_why(mpich, tmp_path):
    trace(mpich, tmp_path / 't')
    calls = [e for e in events(tmp_path / 't') if e['name'].startswith('MPI_')]
    assert all(re.fullmatch(r'traced(\.c:\d+|\+0x[0-9a-f]+)', e['args']['where']) for e in calls)
    small = [e['args']['why'] for e in calls if e['args']['function'] == 'small_bcast']
    assert set(small) == {'by the host MPI: the message is smaller than SLUICE_COLL_THRESHOLD'}
    summary = (tmp_path / 't/summary.txt').read_text()
    assert 'called by large_bcast (traced' in summary and 'completed before it returned: ' in summary


def test_a_call_that_stays_says_what_kept_it_and_not_what_let_it_go(mpich, tmp_path):
    """SLUICE_EARLY=on is why a call returns early, and no reason why it does not."""
    trace(mpich, tmp_path / 't', '--set', 'EARLY=on', '--set', 'COLL=bcast:on,gather:on')
    said = re.findall(r'\d+ x (completed before it returned|returned early): (.*)',
                      (tmp_path / 't/summary.txt').read_text())
    assert ('returned early', 'SLUICE_EARLY is on') in said
    kept = {why for what, why in said if what.startswith('completed')}
    assert kept and not any('SLUICE_EARLY is on' in why for why in kept), said


def test_functions_of_cplusplus_are_named_as_the_source_names_them(mpich, tmp_path):
    program = mpich.build(PROGRAMS / 'traced_plus.cc', ['-O0'])
    done = mpich.launch(2, SLUICE, 'trace', '-o', tmp_path / 't', program, sluice=False)
    assert done.status == 0, done.explain()
    assert {p['function'] for p in meta(tmp_path / 't')['places'] if p['calls']} == {
        '(anonymous namespace)::hidden', 'ns::Box<int>::share', 'ns::Box<int>::operator()',
        'main::{lambda(int*)#1}::operator()'}


def test_a_program_without_symbols_is_named_by_its_addresses(mpich, tmp_path):
    program = tmp_path / 'stripped'
    subprocess.run(['strip', '-s', '-o', program, mpich.build(PROGRAMS / 'traced.c')], check=True)
    done = mpich.launch(2, SLUICE, 'trace', '-o', tmp_path / 't', program, 'count', sluice=False)
    assert done.status == 0, done.explain()
    summary = (tmp_path / 't/summary.txt').read_text()
    assert re.search(r'MPI_Bcast called at stripped\+0x[0-9a-f]+, in 2 processes', summary), summary


def test_forks_and_threads_of_the_program_change_nothing(mpich, tmp_path):
    for mode in ('fork', 'threads'):
        done = trace(mpich, tmp_path / mode, '--set', 'EARLY=on', mode=mode)
        assert done.status == 0, done.explain()
        assert traced(tmp_path / mode) == counted(done.out)
        assert len(list((tmp_path / mode).glob('*.sluice'))) == 2


PYTHON = """import sys, threading
from mpi4py import MPI
buf = bytearray(1 << 20)
end = threading.Event()
if sys.argv[1] == 'threads':
    threading.Thread(target=end.wait).start()
for i in range(5):
    MPI.COMM_WORLD.Bcast(buf, root=0)
MPI.COMM_WORLD.Allreduce(MPI.IN_PLACE, buf)
end.set()
"""


@pytest.mark.parametrize('mode, places', [('alone', ['app.py:8', 'app.py:9']), ('threads', ['.so+0x'] * 2)])
def test_a_call_from_python_is_at_its_line_unless_there_are_threads(mpi, mode, places, tmp_path):
    (tmp_path / 'app.py').write_text(PYTHON)
    if subprocess.run([mpi.python, '-c', 'import mpi4py'], capture_output=True, env=mpi.env()).returncode:
        pytest.skip('mpi4py is not here')
    done = mpi.launch(2, SLUICE, 'trace', '-o', tmp_path / 't', mpi.python, tmp_path / 'app.py', mode,
                      sluice=False)
    assert done.status == 0, done.explain()
    found = {p['where']: p['calls'] for p in meta(tmp_path / 't')['places'] if p['calls']}
    assert sorted(found.values()) == [2, 10]
    for place, where in zip(places, sorted(found)):
        assert where.endswith(place) if mode == 'alone' else place in where or ':' in where, found


def test_adoption_is_shown_with_its_bytes_and_time(mpich, tmp_path):
    done = trace(mpich, tmp_path / 't', '--set', 'REGION_ADOPT_AFTER=1', '--set', 'EARLY=off')
    assert done.status == 0, done.explain()
    place = next(p for p in meta(tmp_path / 't')['places'] if p['function'] == 'large_bcast')
    assert place['adopted'] >= 2 << 20 and place['adopt_ns'] > 0
    assert re.search(r'adoption: [0-9.]+ MiB became memory that ranks share, which took [0-9.]+ [mu]?s',
                     (tmp_path / 't/summary.txt').read_text())
    named = [e for e in events(tmp_path / 't') if e['name'] == 'memory is adopted']
    assert sum(e['args']['bytes'] for e in named) >= place['adopted']


# ---- programs that do not end well --------------------------------------------------------------------

@pytest.mark.parametrize('mode', ['abort', 'kill', 'exit'])
def test_a_rank_that_dies_leaves_what_it_had_written(mpi, mode, tmp_path):
    done = trace(mpi, tmp_path / 't', mode=mode)
    assert done.status != 0
    wait_for_report(tmp_path / 't')
    processes = {p['name']: p for p in meta(tmp_path / 't')['processes']}
    assert not processes['rank 1']['ended'] and processes['rank 1']['records'] > 100
    assert re.search(r'^  rank 1 .*ENDED WITHOUT MPI_Finalize', (tmp_path / 't/summary.txt').read_text(),
                     re.M)
    large = [e for e in events(tmp_path / 't') if e['pid'] == 1 and e['args'].get('function') == 'large_bcast'
             and e['name'] == 'MPI_Bcast' and e['cat'] != 'moving after return']
    assert len(large) == 16


def test_ctrl_c_keeps_what_was_recorded(mpich, tmp_path):
    line = [mpich.mpiexec, '-n', '2', SLUICE, 'trace', '-o', tmp_path / 't',
            mpich.build(PROGRAMS / 'traced.c'), 'hang']
    child = subprocess.Popen([str(w) for w in line], env=mpich.env(), stdout=subprocess.PIPE,
                             stderr=subprocess.PIPE, text=True, start_new_session=True)
    said = ''
    while said.count('hangs') < 2: # of both ranks, whose lines the launcher may mix
        line = child.stdout.readline()
        assert line, said
        said += line
    os.killpg(child.pid, signal.SIGINT)
    child.communicate(timeout=30)
    assert child.returncode != 0
    wait_for_report(tmp_path / 't')
    place = next(p for p in meta(tmp_path / 't')['places'] if p['function'] == 'large_bcast')
    assert place['calls'] == 32


def test_ranks_that_end_at_different_times_make_one_report(mpich, tmp_path):
    done = trace(mpich, tmp_path / 't', mode='late')
    assert done.status == 0 and len(our_lines(done)) == 1, done.explain()
    assert all(p['ended'] for p in meta(tmp_path / 't')['processes'])


def test_a_report_can_be_made_again(mpich, tmp_path):
    trace(mpich, tmp_path / 't')
    before = {name: (tmp_path / 't' / name).read_bytes() for name in OUTPUTS}
    for name in OUTPUTS:
        (tmp_path / 't' / name).unlink()
    again = subprocess.run([SLUICE, 'trace', 'report', tmp_path / 't'], capture_output=True, text=True)
    assert again.returncode == 0 and again.stdout.encode() == before['summary.txt']
    assert {name: (tmp_path / 't' / name).read_bytes() for name in OUTPUTS} == before


def test_a_profile_of_goal_schedules_is_shown_with_its_process(mpich, tmp_path):
    trace(mpich, tmp_path / 't')
    # as SLUICE_GOAL_PROFILE writes it: the process, and its rank in the group, here another one
    pids = {rank: int(next((tmp_path / 't').glob(f'rank-{rank}.*.sluice')).name.split('.')[1])
            for rank in (0, 1)}
    for pid in (pids[1], 4000000):
        operation = {'name': 'send', 'cat': 'goal', 'ph': 'X', 'pid': pid, 'tid': 0, 'ts': 5, 'dur': 2,
                     'args': {'op': 0, 'bytes': 64}}
        name = {'name': 'thread_name', 'ph': 'M', 'pid': pid, 'tid': 0, 'args': {'name': 'rank 0'}}
        (tmp_path / 't' / f'goal.0.{pid}.json').write_text(json.dumps({'traceEvents': [name, operation]}))
    done = subprocess.run([SLUICE, 'trace', 'report', tmp_path / 't'], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    everything = json.loads((tmp_path / 't' / 'trace.json').read_text())['traceEvents']
    processes = {e['pid']: e['args']['name'] for e in everything if e['name'] == 'process_name'}
    assert sorted(processes[e['pid']] for e in everything if e['name'] == 'send') == ['process 4000000',
                                                                                      'rank 1']


# ---- disks and folders -------------------------------------------------------------------------------------

@pytest.fixture
def small_disk(tmp_path):
    folder = tmp_path / 'disk'
    folder.mkdir()
    made = subprocess.run(['mount', '-t', 'tmpfs', '-o', 'size=448k', 'tmpfs', folder], capture_output=True)
    if made.returncode:
        pytest.skip('only root can make a small disk')
    yield folder
    subprocess.run(['umount', '-l', folder], check=True)


def test_a_full_disk_ends_the_trace_and_not_the_program(mpich, small_disk):
    done = trace(mpich, small_disk / 't', '--set', 'COLL_THRESHOLD=8')
    assert done.status == 0 and len(counted(done.out)) == 4, done.explain()
    lines = our_lines(done)
    assert any('no space is left on the disk: the trace of this rank ends here' in line or
               'No space left on device; nothing is traced' in line for line in lines), lines
    assert any(re.search(r'cannot write .*/(summary.txt|timeline.html|trace.json): No space left', line)
               for line in lines), lines


def test_a_disk_that_fills_up_later_is_told_in_the_report(mpich, tmp_path):
    done = trace(mpich, tmp_path / 't', '--set', 'COLL_THRESHOLD=8', env={'fault': 'trace_full:3'})
    assert done.status == 0, done.explain()
    assert 'no space is left on the disk' in done.err
    assert 'writing ended: No space left on device' in (tmp_path / 't/summary.txt').read_text()


def alone(*words, env=None, cwd=None):
    return subprocess.run([str(w) for w in (SLUICE, 'trace', *words)], env=plain_env(**(env or {})), cwd=cwd,
                          capture_output=True, text=True, timeout=60)


def refused(result, code, *words):
    assert (result.returncode, result.stdout) == (code, ''), result
    assert len(result.stderr.splitlines()) == 1 and result.stderr.startswith('sluice: trace: '), result.stderr
    for word in words:
        assert word in result.stderr


def test_a_folder_that_cannot_be_written_is_one_line_and_nothing_runs(tmp_path):
    (tmp_path / 'file').write_text('')
    refused(alone('-o', tmp_path / 'file/t', 'echo', 'ran'), 1, 'Not a directory')
    refused(alone('-o', '/proc/t', 'echo', 'ran'), 1, '/proc/t')
    refused(alone('-o', tmp_path / 'no/such', 'echo', 'ran'), 1, 'No such file or directory')
    other = alone('-o', '/proc/t', 'echo', 'ran', env={'PMI_RANK': '1'})
    assert (other.returncode, other.stdout, other.stderr) == (1, '', '')


@pytest.mark.skipif(os.getuid() != 0 or not shutil.which('setpriv'),
                    reason='needs root to become another user')
def test_no_permission_is_told(tmp_path):
    tmp_path.chmod(0o755)
    line = ['setpriv', '--reuid=65534', '--clear-groups', SLUICE, 'trace', '-o', tmp_path / 't', 'echo',
            'ran']
    done = subprocess.run(line, env=plain_env(), capture_output=True, text=True)
    if 'Permission denied' in done.stderr and 'setpriv' in done.stderr:
        pytest.skip('another user cannot execute what is built here')
    refused(done, 1, 'Permission denied')


def test_the_folder_of_another_run_is_refused(tmp_path):
    assert alone('-o', tmp_path / 't', 'true').returncode == 0
    refused(alone('-o', tmp_path / 't', 'echo', 'ran'), 1, 'another run', '-o')


def test_two_programs_at_once_in_one_folder_keep_apart(mpich, tmp_path):
    line = [mpich.mpiexec, '-n', '2', SLUICE, 'trace', mpich.build(PROGRAMS / 'traced.c')]
    jobs = [subprocess.Popen([str(w) for w in line], env=mpich.env(), cwd=tmp_path, stdout=subprocess.PIPE,
                             stderr=subprocess.PIPE, text=True) for _ in range(2)]
    for child in jobs:
        out, err = child.communicate(timeout=100)
        folder = re.search(r'events in (\S+):', err).group(1)
        assert child.returncode == 0 and traced(tmp_path / folder) == counted(out)
    assert len(list(tmp_path.glob('sluice-trace.*'))) == 2


# ---- programs that are none --------------------------------------------------------------------------------

def test_a_program_that_does_not_exist_is_127_and_leaves_no_folder(tmp_path):
    refused(alone('-o', tmp_path / 't', './no-such-app'), 127, 'cannot execute ./no-such-app')
    assert not (tmp_path / 't').exists()


def test_a_program_without_mpi_is_told(tmp_path):
    done = alone('-o', tmp_path / 't', 'sh', '-c', 'exit 5')
    assert done.returncode == 5
    assert done.stderr.splitlines() == [
        f'sluice: trace: {tmp_path}/t holds no trace: no process started MPI under Sluice there']


def test_a_program_whose_mpi_is_not_found_is_127(tmp_path):
    library = fake_mpi(tmp_path / 'mpi')
    app = compile_c(tmp_path / 'app', 'int PMPI_Bcast(void);\nint main(void) { return PMPI_Bcast(); }\n',
                    library)
    library.unlink()
    done = alone('-o', tmp_path / 't', app)
    assert done.returncode == 127 and 'libmpi' in done.stderr and 'holds no trace' in done.stderr


@pytest.mark.parametrize('words, code, said', [
    ([], 2, 'no program; write: mpiexec -n 4 sluice trace ./app'),
    (['-o'], 2, 'no program'),
    (['-o', './app'], 2, 'no program: ./app is the value of -o'),
    (['--endpoints', './app'], 2, 'no program: ./app is the value of --endpoints'),
    (['report'], 2, 'takes the folder'),
    (['report', 'a', 'b'], 2, "not 'b'"),
    (['report', '--goal'], 2, '--goal takes a file'),
    (['report', '/no/such'], 1, 'No such file or directory'),
])
def test_misuse_is_one_line(words, code, said):
    refused(alone(*words), code, said)


def test_sluice_off_runs_the_program_and_says_that_nothing_is_traced(tmp_path):
    done = alone('-o', tmp_path / 't', 'echo', 'ran', env={'SLUICE': 'off'})
    assert (done.returncode, done.stdout) == (0, 'ran\n') and 'nothing is traced' in done.stderr


# ---- help ----------------------------------------------------------------------------------------
# --------------

def test_help_fits_a_screen():
    done = alone('--help')
    lines = done.stdout.splitlines()
    assert done.returncode == 0 and len(lines) <= 24 and max(map(len, lines)) <= 80
    assert lines[0].startswith('usage: sluice trace')


def test_the_examples_of_the_help_work(mpich, tmp_path):
    block = re.search(r'^Examples:\n((?:  .*\n)+)', alone('--help').stdout, re.M).group(1)
    lines = [line.strip() for line in block.splitlines()]
    shutil.copy(mpich.build(PROGRAMS / 'traced.c'), tmp_path / 'app')
    (tmp_path / 'app.py').write_text('from mpi4py import MPI\nMPI.COMM_WORLD.Bcast(bytearray(100000))\n')
    env = {**mpich.env(), 'PATH': f'{SLUICE.parent}:{mpich.env()["PATH"]}'}
    assert len(lines) == 3
    for line in lines:
        done = job.run(['sh', '-c', line.replace('-n 4', '-n 2')], env, 100, cwd=tmp_path)
        assert done.status == 0, done.explain()
    for folder in ('t1', 't2'):
        assert all((tmp_path / folder / name).exists() for name in OUTPUTS)


# ---- files that are damaged
# ---------------------------------------------------------------------------------------

def test_damaged_files_are_told_and_the_rest_is_reported(mpich, tmp_path):
    trace(mpich, tmp_path / 't', ranks=3)
    whole, cut, other = sorted((tmp_path / 't').glob('rank-*.sluice'))
    os.truncate(cut, 140000)
    other.write_bytes(b'SluiceT\n' + b'\xff' * 200000)
    (tmp_path / 't/empty.sluice').write_bytes(b'')
    done = subprocess.run([SLUICE, 'trace', 'report', tmp_path / 't'], capture_output=True, text=True)
    assert done.returncode == 0
    said = done.stderr.splitlines()
    assert len(said) == 3 and any('another version' in s for s in said) and any('too short' in s
                                                                                for s in said)
    assert [p['name'] for p in meta(tmp_path / 't')['processes']] == ['rank 0', 'rank 1']
    assert whole.name in [p.name for p in (tmp_path / 't').iterdir()]


def test_random_damage_never_ends_the_report(mpich, tmp_path):
    import random
    trace(mpich, tmp_path / 't')
    victim = next((tmp_path / 't').glob('rank-1.*.sluice'))
    good = victim.read_bytes()[:500000]
    for seed in range(12):
        dice = random.Random(seed)
        bad = bytearray(good)
        for _ in range(400):
            bad[dice.randrange(40, len(bad))] = dice.choice([0, 1, 0x7f, 0xff, dice.randrange(256)])
        victim.write_bytes(bad)
        done = subprocess.run([SLUICE, 'trace', 'report', tmp_path / 't'], capture_output=True, timeout=60)
        assert done.returncode == 0, (seed, done.stderr)
        json.loads((tmp_path / 't/trace.json').read_text())
