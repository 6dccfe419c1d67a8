# SPDX-License-Identifier: BSD-3-Clause
"""sluice trace goal on the traces of liballprof: the program has the run's messages, and ends."""
import json
import re

import pytest

from cli import sluice
from liballprof import BYTE, DOUBLE, Trace, collectives, requests
from test_cli_trace_goal import WRITTEN, check

KINDS = pytest.mark.parametrize('kind', ['mpich', 'openmpi', 'fortran'])


def convert(folder, *options):
    """Returns: the program, what the tool told of it, all that it said."""
    file = folder / 'run.goal'
    done = sluice('trace', 'goal', *options, '-o', file, folder)
    assert done.returncode == 0, done.stderr
    return file, [int(n) for n in WRITTEN.search(done.stderr).groups()], done.stderr


def traces(folder, ranks, body, **more):
    for r in range(ranks):
        trace = Trace(r, ranks, **more)
        body(trace)
        trace.write(folder)


@KINDS
def test_receives_are_of_the_messages_that_came(kind, tmp_path):
    traces(tmp_path, 2, requests, kind=kind)
    file, told, said = convert(tmp_path)
    # three exchanges, two of persistent requests, two of sendrecv
    assert told[:3] == [2, 2 * 7, 2 * (8 * (10 + 11 + 12) + 2 * 6 + 2 * 3)]
    assert check(file) == (told[1], told[2]) and 'missing' not in said
    assert sluice('goal', 'sim', file).returncode == 0
    ran = sluice('goal', 'run', file, '--verify', '--replay', '--timeout', '20000')
    assert ran.returncode == 0, ran.stderr
    text = file.read_text()
    assert text.count('calc 50000\n') == text.count('calc 7000\n') == 6
    assert text.count('// rank ') == 2 and 'traced' in text


def test_traces_of_the_first_version_are_read(tmp_path):
    """With the head of the traces in ATLAHS, and times with a fraction."""
    traces(tmp_path, 2, requests)
    for file in tmp_path.glob('*.txt'):
        calls = re.sub(r'^(MPI_\w+:\d+|.*:\d+)$', r'\1.000000', file.read_text().partition('\n\n')[2],
                       flags=re.M)
        calls = re.sub(r'^(MPI_\w+:\d+):', r'\1.000000:', calls, flags=re.M)
        file.write_text('# collprof 0.9 output file\n# Sat Mar 21 16:07:26 2009\n# host: node\n'
                        '# Init clockdiff: 0.000000\n\n' + calls)
    file, told, _ = convert(tmp_path)
    assert told[:2] == [2, 2 * 7] and check(file) == (told[1], told[2])


@KINDS
def test_collectives_become_schedules(kind, tmp_path):
    traces(tmp_path, 4, collectives, kind=kind)
    file, told, said = convert(tmp_path)
    assert told[:4] == [4, 0, 0, 4 * 17] and 'missing' not in said
    assert check(file) == (told[4], told[5])
    ran = sluice('goal', 'run', file, '--verify', '--timeout', '20000')
    assert ran.returncode == 0, ran.stderr
    other = file.read_text()
    file, _, _ = convert(tmp_path, '--use', 'allreduce=ring-allreduce')
    assert check(file) and file.read_text() != other
    for ranks in 8, 64:
        check(convert(tmp_path, '--ranks', ranks)[0])


def test_communicators_are_found_by_their_calls(tmp_path):
    """Two halves, the ranks in reverse order, a copy of one half, one that nothing tells of."""
    address = 140727072956164

    def body(t):
        color, rank = t.rank % 2, 1 - t.rank // 2
        half = t.comm(0x84000001, rank, 2)
        t.call('Comm_split', t.world, color, -t.rank, address)
        t.call('Allreduce', 1, 2, 4, DOUBLE, 3, half)
        t.call('Comm_dup', half, address + 4)
        copy = t.comm(0x84000002, rank, 2)
        t.message('Send' if rank else 'Recv', 9, BYTE, 1 - rank, 5, copy)
        t.call('Comm_free', address)
        t.call('Comm_split', t.world, t.rank // 2, t.rank, address)
        again = t.comm(0x84000001, t.rank % 2, 2)  # the same handle
        t.message('Recv' if t.rank % 2 else 'Send', 7, BYTE, 1 - t.rank % 2, 5, again)
        t.call('Barrier', t.comm(0x84000003, 0, 1))
        t.message('Send', 9, BYTE, 0, 5, t.comm(0x84000007, 2, 3))
    traces(tmp_path, 4, body)
    file, told, said = convert(tmp_path)
    assert told[:5] == [4, 4, 2 * 9 + 2 * 7, 8, 4] and '4 messages or collectives are missing' in said
    assert check(file) == (8, told[2] + told[5])
    sent = re.findall(r'^rank (\d)|send (\d+)b to (\d)', file.read_text(), re.M)
    assert {(m[1], m[2]) for m in sent if m[1]} == {('32', str(r)) for r in range(4)} | {
        ('9', '2'), ('9', '3'), ('7', '1'), ('7', '3')}


def test_any_source_stays_any_source(tmp_path):
    """The first message that was sent tells tag and bytes; a test may have completed anything."""
    for r in range(3):
        t = Trace(r, 3)
        if r:
            t.compute(100 // r)
            t.message('Send', 10 * r, BYTE, 0, r)
        else:
            t.message('Recv', 99, BYTE, t.any, -1)
            t.message('Irecv', 99, BYTE, t.any, -1, None, 140730830189952)
            t.message('Irecv', 99, BYTE, 1, 4, None, 140730830189956)
            t.call('Test', 140730830189952, 140730830189900, 1)
            t.call('Cancel', 140730830189956)
            t.call('Wait', 140730830189956, 1)
        t.write(tmp_path)
    file, told, said = convert(tmp_path)
    assert re.findall(r'recv (\d+)b from (-?\d+) tag (\d+)', file.read_text()) == [('20', '-1', '2'),
                                                                                 ('10', '-1', '1')]
    assert 'what 1 calls of MPI_Waitany, MPI_Test' in said and 'missing' not in said
    report = json.loads(sluice('goal', 'check', '--json', file).stdout)[0]
    assert report['ok'] and report['receives_from_any']


def test_a_rank_that_was_killed_is_read_to_its_last_line(tmp_path):
    def body(t):
        t.call('Comm_split', t.world, 0, t.rank, 140727072956164)
        t.message('Recv' if t.rank else 'Send', 8, BYTE, 1 - t.rank, 3)
        t.call('Barrier', t.comm(0x84000001, t.rank, 2))
    traces(tmp_path, 2, body)
    file = tmp_path / 'pmpi-trace-rank-00.txt'
    file.write_text(file.read_text().split('MPI_Comm_split')[0] + 'MPI_Send:10')
    _, told, said = convert(tmp_path)
    assert told[1] == 0 and 'rank 0 did not reach MPI_Finalize' in said
    assert '1 messages or collectives are missing' in said


@pytest.mark.parametrize('line, why', [
    ('MPI_Send:1:2:3', '8: no call'), ('hello', '8: no call'), ('MPI_Send', '8: no call'),
    ('MPI_Send:x:1:10:10,8,8:1:3:1140850688,0,2:9', '8: no call'),
    ('MPI_Send:5:1:-10:10,8,8:1:3:1140850688,0,2:9', '8: no call'),
    ('MPI_Send:5:1:10:10:1:3:1140850688,0,2:9', '8: no call'),
    ('MPI_Send:5:1:10:10,8,8:2:3:1140850688,0,2:9', '8: no call'),
    ('MPI_Send:5:1:10:10,8,8:1:-3:1140850688,0,2:9', '8: no call'),
    ('MPI_Send:5:1:10:10,9223372036854775807,8:1:3:1140850688,0,2:9', '8: no call'),
    ('MPI_Send:5:1:10:10,8,8:1:3:1140850688,0,3:9', '8: no call'),
    ('MPI_Send:5:1:10:10,8,8:1:3:1140850688,2,2:9', '8: no call'),
    ('MPI_Waitall:5:99999999999:140730830189952:1:9', '8: no call'),
    ('MPI_Bcast:5:1:10:10,8,8:2:1140850688,0,2:9', '8: no call'),
    ('MPI_Scatterv:5:1:2:4:5:6:10,8,8:7:8:10,8,8:0:1140850688,0,2:9', '8: no call'),
    ('MPI_Barrier:1e300:1140850688,0,2:9', '8: no call'),
])
def test_a_damaged_trace_is_refused(line, why, tmp_path):
    traces(tmp_path, 2, lambda t: t.rank or t.lines.insert(1, line))
    done = sluice('trace', 'goal', tmp_path)
    assert done.returncode == 1 and len(done.stderr.splitlines()) == 1
    assert f'pmpi-trace-rank-00.txt:{why} as liballprof writes it' in done.stderr


def test_files_that_are_no_run_are_refused(tmp_path):
    traces(tmp_path, 3, lambda t: None)
    (tmp_path / 'notes-7.txt').write_text('a text of the user\n')
    assert convert(tmp_path)[1][0] == 3
    (tmp_path / 'pmpi-trace-rank-1.txt').write_text((tmp_path / 'pmpi-trace-rank-01.txt').read_text())
    done = sluice('trace', 'goal', tmp_path)
    assert done.returncode == 1 and 'are both of rank 1' in done.stderr
    for name in 'pmpi-trace-rank-1.txt', 'pmpi-trace-rank-01.txt':
        (tmp_path / name).unlink()
    done = sluice('trace', 'goal', tmp_path)
    assert done.returncode == 1 and 'holds no trace of rank 1' in done.stderr
