# SPDX-License-Identifier: BSD-3-Clause
"""sluice trace --goal: the program that it writes has the run's messages, and ends."""
import json
import re
import resource
import shutil
import struct
import subprocess
import time

import pytest

from cli import PROGRAMS, sluice
from support.mpi import need
from support.paths import SLUICE

RANKS = 4
WRITTEN = re.compile(r'(\d+) ranks, (\d+) messages, (\d+) bytes; (\d+) calls of collectives: '
                     r'(\d+) messages, (\d+) bytes')


def record(mpi, folder, *words, ranks=RANKS):
    """Runs a program, and writes its messages as GOAL. Returns: the run, the file, what it holds."""
    done = mpi.launch(ranks, SLUICE, 'trace', '-o', folder / 't', '--goal', folder / 'by_watcher.goal',
                      *words, sluice=False, timeout=100)
    assert done.status == 0, done.explain()
    file = folder / 'run.goal'
    written = sluice('trace', 'goal', '-o', file, folder / 't')
    assert written.returncode == 0, written.stderr
    return done, file, [int(n) for n in WRITTEN.search(written.stderr).groups()]


def check(file):
    done = sluice('goal', 'check', '--json', file)
    report = json.loads(done.stdout)[0]
    assert report['ok'], report['problems']
    assert not report['receives_from_any']
    return report['messages'], report['bytes']


def counted(done):
    """Messages and bytes that a program of recorded.c has counted."""
    ranks = re.findall(r'rank \d+ sent (\d+) (\d+)', done.out)
    assert len(ranks) == RANKS
    return [sum(int(c[i]) for c in ranks) for i in (0, 1)]


def test_a_folder_that_does_not_exist_is_named_as_such(tmp_path):
    done = sluice('trace', 'goal', tmp_path / 'absent')
    assert done.returncode == 1
    assert done.stderr == f'sluice: trace: cannot read {tmp_path}/absent: No such file or directory\n'


def test_messages_are_those_that_the_program_sent(mpi, tmp_path):
    done, file, written = record(mpi, tmp_path, mpi.build(PROGRAMS / 'recorded.c'), 'ring', 'stencil', 'wild')
    sums = counted(done)
    assert written[:4] == [RANKS, *sums, RANKS]
    assert check(file) == (sums[0] + written[4], sums[1] + written[5])
    simulated = sluice('goal', 'sim', file)
    assert simulated.returncode == 0, simulated.stderr
    by_watcher = tmp_path / 'by_watcher.goal'
    deadline = time.monotonic() + 20
    while not by_watcher.exists() or by_watcher.read_text() != file.read_text():
        assert time.monotonic() < deadline, 'the last rank has not written it'
        time.sleep(0.05)


@pytest.mark.parametrize('name', ['impi', 'abi'])
def test_other_mpis_are_recorded(name, tmp_path):
    mpi = need(name)
    # with persistent requests of MPI_PROC_NULL, as in 'stencil', Intel MPI 2021.18 fails by itself
    modes = ['ring', 'wild', *(['stencil'] if name != 'impi' else [])]
    done, file, written = record(mpi, tmp_path, mpi.build(PROGRAMS / 'recorded.c'), *modes)
    assert written[:4] == [RANKS, *counted(done), RANKS]
    check(file)


EVERY_MPI = pytest.mark.parametrize('name', ['mpich', 'openmpi', 'impi', 'abi', 'debian-mpich',
                                             'debian-openmpi'])


@EVERY_MPI
def test_what_mpi_4_added_is_recorded(name, tmp_path):
    """MPI_Isendrecv, persistent collectives that ranks start in different orders, partitioned messages."""
    mpi = need(name)
    done, file, written = record(mpi, tmp_path, mpi.build(PROGRAMS / 'recorded.c'), 'exchange', 'persistent',
                                 'partitioned')
    sums = counted(done)
    if name == 'debian-openmpi' and not sums[0]:
        pytest.skip('this MPI has nothing of MPI 4')
    assert written[:4] == [RANKS, *sums, RANKS + 2 * 3 * RANKS]
    assert check(file) == (sums[0] + written[4], sums[1] + written[5])
    ran = sluice('goal', 'run', file, '--verify', '--replay', '--timeout', '20000')
    assert ran.returncode == 0, ran.stderr


@EVERY_MPI
def test_one_sided_operations_become_messages(name, tmp_path):
    mpi = need(name)
    done, file, written = record(mpi, tmp_path, mpi.build(PROGRAMS / 'recorded.c'), 'onesided')
    sums = counted(done)
    assert written[:4] == [RANKS, *sums, RANKS + 4 * RANKS]
    assert check(file) == (sums[0] + written[4], sums[1] + written[5])
    ran = sluice('goal', 'run', file, '--verify', '--replay', '--timeout', '20000')
    assert ran.returncode == 0, ran.stderr
    for ranks in RANKS, 4 * RANKS:
        assert sluice('trace', 'goal', '--ranks', ranks, '-o', file, tmp_path / 't').returncode == 0
        assert check(file)[0] >= ranks // RANKS * sums[0]


@EVERY_MPI
def test_receives_that_were_too_short_are_in_the_program(name, tmp_path):
    mpi = need(name)
    done, file, written = record(mpi, tmp_path, mpi.build(PROGRAMS / 'recorded.c'), 'cut')
    assert written[:3] == [RANKS, *counted(done)]
    problems = json.loads(sluice('goal', 'check', '--json', file).stdout)[0]['problems']
    # of the blocking one Open MPI tells the size of the message, MPICH 0
    assert len(problems) in (3 * RANKS // 2, 4 * RANKS // 2), problems
    assert all('gets a message of another size' in p['message'] for p in problems), problems
    simulated = sluice('goal', 'sim', file)
    assert simulated.returncode == 0, simulated.stderr


def test_collectives_become_schedules(mpi, tmp_path):
    _, file, written = record(mpi, tmp_path, mpi.build(PROGRAMS / 'recorded.c'), 'collectives')
    assert written[1:4] == [0, 0, RANKS * 26]
    assert check(file) == (written[4], written[5])
    ran = sluice('goal', 'run', file, '--verify', '--replay', '--timeout', '20000')
    assert ran.returncode == 0, ran.stderr
    told = re.findall(r'^  traced \d+\.\d+ us: the replay takes \d+\.\d+ of it$', ran.stdout, re.M)
    assert len(told) == RANKS
    file.write_text(re.sub('traced', 'took', file.read_text()))
    ran = sluice('goal', 'run', file, '--replay')
    assert ran.returncode == 1 and 'sluice trace --goal' in ran.stderr


def test_a_collective_is_replaced(tmp_path):
    mpi = need('mpich')
    _, file, written = record(mpi, tmp_path, mpi.build(PROGRAMS / 'recorded.c'), 'collectives')
    mine = tmp_path / 'mine.goal'
    assert sluice('goal', 'gen', 'linear-bcast', '-n', RANKS, '-s', '800', '--root', RANKS - 1, '-o',
                  mine).returncode == 0
    texts = set()
    for choice in 'allreduce=ring-allreduce', f'bcast={mine}':
        done = sluice('trace', 'goal', '--use', choice, '-o', file, tmp_path / 't')
        assert done.returncode == 0, done.stderr
        check(file)
        texts.add(file.read_text())
    assert len(texts) == 2
    for wrong in 'allreduce=linear-bcast', 'nothing=ring-bcast', 'bcast':
        done = sluice('trace', 'goal', '--use', wrong, tmp_path / 't')
        assert done.returncode == 2 and done.stderr


def test_a_schedule_of_a_collective_that_is_not_there_is_told(tmp_path):
    done = sluice('trace', 'goal', '--use', f'bcast={tmp_path}/mine', tmp_path)
    assert done.returncode == 1
    assert done.stderr == f'sluice: trace: {tmp_path}/mine: No such file or directory\n'


def test_mpi4py_is_recorded(mpi, tmp_path):
    if subprocess.run([mpi.python, '-c', 'import mpi4py'], capture_output=True, env=mpi.env()).returncode:
        pytest.skip('mpi4py is not here')
    (tmp_path / 'app.py').write_text(
        'from mpi4py import MPI\n'
        'comm = MPI.COMM_WORLD\n'
        'r = comm.rank\n'
        'b = bytearray(1000)\n'
        'for i in range(3):\n'
        '    comm.Sendrecv(bytes(1000), 1 - r, recvbuf=b, source=1 - r)\n'
        '    comm.send({"a": i}, 1) if r == 0 else comm.recv()\n'
        '    comm.Allreduce([bytearray(8), MPI.DOUBLE], [bytearray(8), MPI.DOUBLE])\n')
    _, file, written = record(mpi, tmp_path, mpi.python, tmp_path / 'app.py', ranks=2)
    assert written[:2] == [2, 9] and written[2] > 6000 and written[3] == 6
    check(file)
    assert ' app.py:8\n' in (tmp_path / 't/summary.txt').read_text()  # and no function of mpi4py


def test_mpi4py_with_windows_and_persistent_requests_is_recorded(mpi, tmp_path):
    if subprocess.run([mpi.python, '-c', 'import mpi4py'], capture_output=True, env=mpi.env()).returncode:
        pytest.skip('mpi4py is not here')
    (tmp_path / 'app.py').write_text(
        'from mpi4py import MPI\n'
        'comm = MPI.COMM_WORLD\n'
        'peer = 1 - comm.rank\n'
        'a, b = bytearray(1000), bytearray(1000)\n'
        'window = MPI.Win.Create(b, comm=comm)\n'
        'window.Fence()\n'
        'window.Put(a, peer)\n'
        'window.Fence()\n'
        'window.Lock(peer)\n'
        'window.Get(a, peer)\n'
        'window.Unlock(peer)\n'
        'window.Free()\n'
        'comm.Isendrecv(a, peer, 1, b, peer, 1).Wait()\n'
        'x, y = bytearray(8), bytearray(8)\n'
        'total = comm.Allreduce_init([x, MPI.DOUBLE], [y, MPI.DOUBLE])\n'
        'parts = [comm.Psend_init(a, 4, peer), comm.Precv_init(b, 4, peer, 0)]\n'
        'for i in range(3):\n'
        '    total.Start()\n'
        '    MPI.Prequest.Startall(parts)\n'
        '    parts[0].Pready_range(0, 3)\n'
        '    MPI.Request.Waitall([total, *parts])\n')
    _, file, written = record(mpi, tmp_path, mpi.python, tmp_path / 'app.py', ranks=2)
    # Put; what Get asks for, and gets; an exchange; partitions
    assert written[:4] == [2, 2 * (1 + 2 + 1 + 3), 2 * (1000 + 1000 + 1000 + 3000), 2 * (2 + 3)]
    check(file)


@pytest.mark.parametrize('source', ['recorded.f90', 'recorded_f08.f90'])
@pytest.mark.parametrize('name', ['debian-mpich', 'debian-openmpi'])
def test_fortran_is_recorded(name, source, tmp_path):
    mpi = need(name)
    if not shutil.which('gfortran') or not shutil.which(mpi.compilers['fortran']):
        pytest.skip('gfortran is not here; ./dev setup installs it')
    _, file, written = record(mpi, tmp_path, mpi.build(PROGRAMS / source))
    # and a put of 4 bytes between two fences
    assert written[:4] == [RANKS, RANKS * 11, RANKS * (10 * 400 + 4), RANKS * 12]
    check(file)


# ---- message files of our own ------------------------------------------------------------------------

def header(rank=0, ranks=1, version=2):
    return b'SluiceM\n' + struct.pack('<IIii40x', version, 40, rank, ranks)


def entry(type_, id_=0, computed=0, comm=0, peer=-1, tag=0, count=0, size=0, thread=0):
    return struct.pack('<BBHIQIiiIQ', type_, 0, thread, id_, computed, comm, peer, tag, count, size)


def collective(type_, which, **more):
    data = bytearray(entry(type_, **more))
    data[1] = which
    return bytes(data)


COMM, SEND, ISEND, RECV, IRECV, DONE, END, READY, ONE_SIDED, FLUSHED = 1, 2, 3, 4, 5, 7, 10, 11, 12, 13
PARTITIONED = 1 << 30


def test_threads_are_cpus_and_computing_is_calc(tmp_path):
    (tmp_path / 'rank-0.1.messages').write_bytes(
        header() + entry(COMM, count=1) + struct.pack('<i', 0) + entry(ISEND, computed=500, peer=0, tag=3,
                                                                       size=8)
        + entry(RECV, computed=70, peer=0, tag=3, size=8, thread=1) + entry(END, size=1000))
    done = sluice('trace', 'goal', tmp_path)
    assert done.returncode == 0, done.stderr
    assert 'l1: calc 500\n' in done.stdout and 'send 8b to 0 tag 3\n' in done.stdout
    assert 'calc 70 cpu 1' in done.stdout and 'recv 8b from 0 tag 3 cpu 1' in done.stdout
    assert 'traced 1000 ns' in done.stdout


def test_a_partitioned_send_begins_when_every_thread_has_made_its_part_ready(tmp_path):
    (tmp_path / 'rank-0.1.messages').write_bytes(
        header() + entry(COMM, count=1) + struct.pack('<i', 0)
        + entry(READY, id_=1, computed=500) + entry(READY, id_=1, computed=70, thread=1)
        + entry(ISEND, id_=1, peer=0, tag=3, size=8, count=PARTITIONED + 1, thread=1)
        + entry(DONE, id_=1, computed=5) + entry(END, size=1000))
    done = sluice('trace', 'goal', tmp_path)
    assert done.returncode == 0, done.stderr
    own = (1 << 20) + 1
    assert 'l1: calc 500\nl2: calc 70 cpu 1\n' in done.stdout
    assert (f'l3: send 8b to 0 tag {own} cpu 1\nl3 requires l2\nl3 requires l1\nl4'
            in done.stdout)


def part(peer, size):
    return struct.pack('<iIQ', peer, 1, size)


def test_targets_of_one_sided_operations_receive_and_answer(tmp_path):
    """Each of 4 ranks puts 100 bytes to the next and gets 7 from it; a pair has a window of its own."""
    for r in range(4):
        to = (r + 1) % 4
        (tmp_path / f'rank-{r}.1.messages').write_bytes(
            header(r, 4) + entry(COMM, count=4) + struct.pack('<4i', 0, 1, 2, 3)
            + (entry(COMM, id_=1, count=2) + struct.pack('<2i', 0, 1) if r < 2 else b'')
            + entry(ONE_SIDED, peer=to, tag=1, size=100)
            + entry(ONE_SIDED, id_=1, peer=to, tag=1, count=1) + part(to, 7)
            + (entry(ONE_SIDED, comm=1, peer=1 - r, tag=1, size=30) if r < 2 else b'')
            + entry(DONE, id_=1) + entry(FLUSHED, peer=-1, count=1) + entry(END, computed=60, size=1000))
    for ranks in 4, 8, 64:
        file = tmp_path / f'{ranks}.goal'
        done = sluice('trace', 'goal', '--ranks', ranks, '-o', file, tmp_path)
        assert done.returncode == 0, done.stderr
        assert f'{ranks * 2 + ranks // 2} one-sided operations' in done.stderr
        text = file.read_text()
        assert check(file) == (ranks * 3 + ranks // 2, ranks * 107 + ranks // 2 * 30)
        assert [int(n) for n in re.findall(r'send 100b to (\d+)', text)] == [(r + 1) % ranks
                                                                             for r in range(ranks)]
        assert [int(n) for n in re.findall(r'recv 100b from (\d+) tag \d+ cpu 1', text)] == [
            (r - 1) % ranks for r in range(ranks)]
        assert sluice('goal', 'sim', file).returncode == 0
        ends = re.findall(r'^l\d+: calc 60\n((?:l\d+ .*\n)+)', text, re.M)
        assert len(ends) == ranks and all(e.count(' requires ') >= 2 for e in ends)


def test_one_sided_operations_beside_as_many_threads_as_there_are_cpus(tmp_path):
    for r in range(2):
        (tmp_path / f'rank-{r}.1.messages').write_bytes(
            header(r, 2) + entry(COMM, count=2) + struct.pack('<2i', 0, 1)
            + entry(ONE_SIDED, peer=1 - r, tag=1, size=5, thread=65535) + entry(END, size=1000))
    done = sluice('trace', 'goal', '-o', tmp_path / 'run.goal', tmp_path)
    assert done.returncode == 0 and check(tmp_path / 'run.goal') == (2, 10)


def test_a_ring_and_a_sum_are_extrapolated(tmp_path):
    """Three ranks: each sends to the next, all sum, two have a barrier in a communicator of their own."""
    coll, allreduce, barrier = 6, 3, 0
    for r in range(3):
        pair = r < 2
        (tmp_path / f'rank-{r}.1.messages').write_bytes(
            header(r, 3) + entry(COMM, count=3) + struct.pack('<3i', 0, 1, 2)
            + (entry(COMM, id_=1, count=2) + struct.pack('<2i', 0, 1) if pair else b'')
            + entry(ISEND, computed=10 * (r + 1), peer=(r + 1) % 3, tag=3, size=8)
            + entry(RECV, peer=(r + 2) % 3, tag=3, size=8)
            + collective(coll, allreduce, peer=0, size=64)
            + (collective(coll, barrier, peer=0, comm=1) if pair else b'') + entry(END, size=1000))
    for ranks in 3, 6, 48:
        file = tmp_path / f'{ranks}.goal'
        done = sluice('trace', 'goal', '--ranks', ranks, '-o', file, tmp_path)
        assert done.returncode == 0, done.stderr
        sums = json.loads(sluice('goal', 'sim', 'doubling-allreduce', '-n', ranks, '-s', 64, '--json').stdout)
        assert check(file)[0] == ranks + ranks // 3 * 2 + sums['messages']
        text = file.read_text()
        assert [int(n) for n in re.findall(r'send 8b to (\d+) tag', text)] == [(r + 1) % ranks
                                                                               for r in range(ranks)]
        assert text.count('calc 20\n') == ranks // 3
        # 6 ranks: 0 and 1, 3 and 4
        assert set(re.findall(r'send 0b to (\d+)', text)) == {str(r) for r in range(ranks) if r % 3 < 2}
    done = sluice('trace', 'goal', '--ranks', 7, tmp_path)
    assert done.returncode == 1 and '7 ranks cannot be extrapolated from the 3 of' in done.stderr
    done = sluice('trace', 'goal', '--ranks', 'x', tmp_path)
    assert done.returncode == 2 and "--ranks takes a number of ranks, not 'x'" in done.stderr


def test_recorded_programs_are_extrapolated(tmp_path):
    mpi = need('mpich')
    record(mpi, tmp_path, mpi.build(PROGRAMS / 'recorded.c'), 'ring', 'stencil', 'collectives')
    for ranks in 2 * RANKS, 16 * RANKS:
        file = tmp_path / f'{ranks}.goal'
        assert sluice('trace', 'goal', '--ranks', ranks, '-o', file, tmp_path / 't').returncode == 0
        check(file)
        assert sluice('goal', 'sim', file).returncode == 0


@pytest.mark.parametrize('records', [
    header(version=1), header(ranks=2), header(rank=7), header()[:30], b'',
    header() + entry(SEND, peer=0), header() + entry(99),
    header() + entry(COMM, count=1) + struct.pack('<i', 5),
    header() + entry(COMM, count=1) + struct.pack('<i', 0) + entry(SEND, peer=3),
    header() + entry(COMM, count=1) + struct.pack('<i', 0) + entry(SEND, comm=9, peer=0),
    header() + entry(COMM, count=1) + struct.pack('<i', 0) + entry(ONE_SIDED, peer=3),
    header() + entry(COMM, count=1) + struct.pack('<i', 0) + entry(ONE_SIDED, comm=9, peer=0),
    header() + entry(COMM, count=1) + struct.pack('<i', 0) + entry(ONE_SIDED, peer=0, count=2)
    + bytes(32),
    header() + entry(COMM, count=1) + struct.pack('<i', 0) + entry(ONE_SIDED, peer=-1),
])
def test_a_damaged_file_is_refused(records, tmp_path):
    (tmp_path / 'rank-0.1.messages').write_bytes(records)
    done = sluice('trace', 'goal', tmp_path)
    assert done.returncode == 1 and 'sluice: trace:' in done.stderr


@pytest.mark.parametrize('where, why', [('none/run.goal', 'No such file'), ('.', 'Is a directory')])
def test_a_file_that_cannot_be_written_is_refused_before_the_program_starts(where, why, tmp_path):
    done = sluice('trace', '-o', tmp_path / 't', '--goal', tmp_path / where, '--', 'touch', tmp_path / 'ran')
    assert done.returncode == 1 and why in done.stderr and len(done.stderr.splitlines()) == 1
    assert not (tmp_path / 'ran').exists() and not (tmp_path / 't').exists()


def test_there_may_be_more_ranks_than_descriptors_by_default(tmp_path):
    ranks, hard = 100, resource.getrlimit(resource.RLIMIT_NOFILE)[1]
    for r in range(ranks):
        (tmp_path / f'rank-{r}.1.messages').write_bytes(
            header(r, ranks) + entry(COMM, count=ranks) + struct.pack(f'<{ranks}i', *range(ranks)) +
            entry(END, size=1000))
    done = sluice('trace', 'goal', '-o', tmp_path / 'run.goal', tmp_path,
                  preexec_fn=lambda: resource.setrlimit(resource.RLIMIT_NOFILE, (64, hard)))
    assert done.returncode == 0 and f'{ranks} ranks' in done.stderr, done


def test_a_folder_without_messages_is_reported(tmp_path):
    done = sluice('trace', 'goal', tmp_path)
    assert done.returncode == 1 and '--goal' in done.stderr


def test_a_file_of_the_program_under_the_number_of_a_trace_file_is_left_alone(mpi, tmp_path):
    done = mpi.launch(2, SLUICE, 'trace', '-o', tmp_path / 't', '--goal', tmp_path / 'x.goal',
                      mpi.build(PROGRAMS / 'traced_closed.c'), tmp_path, sluice=False, timeout=100)
    assert done.status == 0, done.explain()
    assert sorted(done.out.splitlines()) == ['rank 0: 2 files', 'rank 1: 2 files']
    assert done.err.count('the trace of this rank ends here') == 2
    assert done.err.count('the message file of this rank ends') == 2
