# SPDX-License-Identifier: BSD-3-Clause
"""sluice trace and sluice report: calls of messages are counted, and waiting is told from copying.

Run alone: ./dev check tools -k trace_messages
"""
import json
import re
import shutil
import subprocess

import pytest

from cli import PROGRAMS, sluice
from support import mpi as mpis
from support.mpi import need
from support.paths import SLUICE

LINE = re.compile(r' +(\d+) +(\S+ ?[KMG]?i?B?) +([\d.]+ [mun]?s) +(-|[\d.]+ [mun]?s) +(-|\S+ [KMG]?i?B) +'
                  r'(-|\d+ %)  (MPI_\w+)  (\S+)$')
UNITS = {'B': 1, 'KiB': 1 << 10, 'MiB': 1 << 20, 'GiB': 1 << 30, 's': 1, 'ms': 1e-3, 'us': 1e-6, 'ns': 1e-9}


def number(text):
    if text == '-':
        return 0
    value, unit = text.split()
    return float(value) * UNITS[unit]


def messages(folder):
    """The table of messages: a list of (function, call site, calls, bytes, in calls, copying, copied)."""
    table = (folder / 'summary.txt').read_text().partition('\nMessages, and waiting for requests\n')[2]
    found = [LINE.match(line) for line in table.splitlines()[1:] if ' MPI_' in line]
    assert all(found), table
    return [(m[7], m[8], int(m[1]), number(m[2].strip()), *map(number, (m[3], m[4], m[5]))) for m in found]


def sums(folder):
    total = {}
    for name, _, calls, size, *_ in messages(folder):
        old = total.get(name, (0, 0))
        total[name] = (old[0] + calls, old[1] + size)
    return total


def counted(out):
    total = {}
    for name, calls, size in re.findall(r'^(MPI_\w+) (\d+) (\d+)$', out, re.M):
        old = total.get(name, (0, 0))
        total[name] = (old[0] + int(calls), old[1] + int(size))
    return total


def trace(mpi, folder, *words, program='traced_messages.c'):
    done = mpi.launch(2, SLUICE, 'trace', '-o', folder, *words, mpi.build(PROGRAMS / program), sluice=False,
                      timeout=100)
    assert done.status == 0 and not done.leftovers, done.explain()
    return done


def is_near(a, b, share=0.01):
    return abs(a - b) <= share * b # the table rounds


@pytest.mark.parametrize('goal', [False, True])
@pytest.mark.parametrize('name', mpis.ALL)
def test_calls_and_bytes_are_the_programs_own(name, goal, tmp_path):
    """The receive that the program's error handler leaves by longjmp() counts as well."""
    done = trace(need(name), tmp_path / 't', *(['--goal', tmp_path / 'run.goal'] if goal else []))
    found, want = sums(tmp_path / 't'), counted(done.out)
    assert found.keys() == want.keys() and len(want) == 10
    for name, (calls, size) in want.items():
        assert found[name][0] == calls and is_near(found[name][1], size), (name, found[name], calls, size)


@pytest.mark.parametrize('goal', [False, True])
def test_call_sites_are_the_programs(mpi, goal, tmp_path):
    """With --goal those of collectives had all been in libsluice-record.so."""
    trace(mpi, tmp_path / 't', *(['--goal', tmp_path / 'run.goal'] if goal else []))
    sites = [site for _, site, *_ in messages(tmp_path / 't')]
    assert len(sites) == 17 and all(re.match(r'traced_messages(\.c:\d+|\+0x)', s) for s in sites), sites
    assert re.search(r'MPI_Bcast called by collective \(traced_messages\S+\), in 2 processes',
                     (tmp_path / 't/summary.txt').read_text())


PYTHON = """from mpi4py import MPI
comm = MPI.COMM_WORLD
data = bytearray(100)
for i in range(7):
    if comm.rank:
        comm.Recv(data, 0)
    else:
        comm.Send(data, 1)
"""


def test_call_sites_of_python_are_its_lines(mpi, tmp_path):
    if subprocess.run([mpi.python, '-c', 'import mpi4py'], capture_output=True, env=mpi.env()).returncode:
        pytest.skip('mpi4py is not here')
    (tmp_path / 'app.py').write_text(PYTHON)
    done = mpi.launch(2, SLUICE, 'trace', '-o', tmp_path / 't', mpi.python, tmp_path / 'app.py', sluice=False)
    assert done.status == 0, done.explain()
    found = {(name.removesuffix('_c'), site): calls for name, site, calls, *_ in messages(tmp_path / 't')}
    assert found == {('MPI_Recv', 'app.py:6'): 7, ('MPI_Send', 'app.py:8'): 7}


@pytest.mark.parametrize('source', ['recorded.f90', 'recorded_f08.f90'])
@pytest.mark.parametrize('name', ['debian-mpich', 'debian-openmpi'])
def test_call_sites_of_fortran_are_the_programs(name, source, tmp_path):
    mpi = mpis.ALL[name]
    if mpi.missing() or not shutil.which('gfortran') or not shutil.which(mpi.compilers['fortran']):
        pytest.skip(mpi.missing() or 'gfortran is not here; ./dev setup installs it')
    done = mpi.launch(2, SLUICE, 'trace', '-o', tmp_path / 't', mpi.build(PROGRAMS / source, ['-g']),
                      sluice=False, timeout=100)
    assert done.status == 0, done.explain()
    rows = messages(tmp_path / 't')
    assert rows and all(re.match(rf'{source[:-4]}(\.f90:\d+|\+0x)', r[1]) for r in rows), rows


@pytest.mark.parametrize('name', ['mpich', 'openmpi', 'debian-mpich', 'debian-openmpi'])
def test_waiting_is_told_from_copying(name, tmp_path):
    done = trace(need(name), tmp_path / 't')
    rows = messages(tmp_path / 't')
    late = next(r for r in rows if r[0] == 'MPI_Sendrecv' and r[2] == 10)
    assert late[4] > 0.2 and late[5] == 0, late
    large = [r for r in rows if r[5]]
    assert large and all(0 < r[5] <= r[4] for r in large), rows
    # each long message is read once, by a rank that receives it or in a later call
    received = counted(done.out)['MPI_Recv'][1] + 3 * 2 * 10 * (1 << 20)
    assert 0.9 * received < sum(r[6] for r in large) <= 1.01 * received, rows


def test_the_report_says_what_messages_take(tmp_path):
    trace(need('mpich'), tmp_path / 't')
    told = json.loads(sluice('report', '--json', tmp_path / 't').stdout)['messages']
    rows = messages(tmp_path / 't')
    assert told['calls'] == sum(r[2] for r in rows) and is_near(sum(r[3] for r in rows), told['bytes'])
    # each time has two digits at least
    assert is_near(sum(r[4] for r in rows), told['ns'] / 1e9, 0.05)
    assert is_near(sum(r[5] for r in rows), told['copying_ns'] / 1e9, 0.05)
    assert 0 <= told['mapped'] <= told['copied']
    text = sluice('report', tmp_path / 't').stdout
    assert re.search(r'^Messages, and waiting for requests, take \d+\.\d %: \d+\.\d % copying', text, re.M)
    assert re.search(r'^- messages \(most time in MPI_\w+ called by \w+ \(traced_mess\S+\)\) are \d+ % of '
                     r'the run: little of it is copying', text, re.M), text


def test_a_program_without_messages_has_no_table(tmp_path):
    mpi = need('mpich')
    done = mpi.launch(2, SLUICE, 'trace', '-o', tmp_path / 't', mpi.build(PROGRAMS / 'traced.c'), 'count',
                      sluice=False, timeout=100)
    assert done.status == 0, done.explain()
    assert 'Messages' not in (tmp_path / 't/summary.txt').read_text()
    assert 'Messages' not in sluice('report', tmp_path / 't').stdout
