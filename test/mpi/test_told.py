# SPDX-License-Identifier: BSD-3-Clause
"""Messages for users: one line a job, in their words.

Run alone: ./dev check mpi -k told
"""
import re
import time

import pytest

from support.build import compile_once
from support.paths import PROGRAMS, SOURCES

PROGRAM = 'told.c'
ON = {'coll:bcast': 'on', 'coll:allreduce': 'on'} # whatever decides by itself


def lines(done):
    """The messages of Sluice."""
    return [line for line in done.err.splitlines() if line.startswith('sluice: ')]


@pytest.mark.parametrize('launcher, program, library', [
    ('debian-mpich', 'debian-openmpi', r'Open MPI v[45]\.'), ('debian-openmpi', 'debian-mpich', r'MPICH 4\.'),
    ('mpich', 'debian-openmpi', r'Open MPI v[45]\.')])
def test_told_that_mpiexec_belongs_to_another_mpi(launcher, program, library, get_mpi):
    path = get_mpi(program).build(PROGRAM)
    done = get_mpi(launcher).launch(3, path, 'bcast', env=get_mpi(program).own_env)
    assert done.out.count('ok told 0 of 1') == 3, done.explain()
    assert len(lines(done)) == 1, done.explain()
    assert re.match('sluice: these are 3 programs of one rank each: mpiexec belongs to another MPI than the '
                    f'program, which uses {library}', lines(done)[0]), done.explain()


def test_told_why_mpi_init_ends_the_program(get_mpi):
    path = get_mpi('mpich').build(PROGRAM)
    done = get_mpi('openmpi').launch(3, path, 'bcast', env=get_mpi('mpich').own_env)
    assert done.status and 'ok told' not in done.out, done.explain()
    assert len(lines(done)) == 1, done.explain()
    assert 'MPI_Init has ended the program: it uses MPICH 5' in lines(done)[0], done.explain()


@pytest.mark.parametrize('name', ['mpich', 'openmpi', 'debian-mpich', 'debian-openmpi'])
def test_told_nothing_about_a_job_of_one_rank(name, get_mpi):
    mpi = get_mpi(name)
    done = mpi.launch(1, mpi.build(PROGRAM), 'bcast')
    assert done.status == 0 and not lines(done), done.explain()


@pytest.mark.parametrize('name', ['mpich', 'debian-openmpi'])
def test_told_by_a_sanitizer_as_without_sluice(name, get_mpi):
    mpi = get_mpi(name)
    program = mpi.build(PROGRAM, ['-fsanitize=address'], name='told-asan')
    env = {'ASAN_OPTIONS': 'detect_leaks=0', 'SLUICE_COLL_THRESHOLD': '4K', 'SLUICE_REGION_ADOPT_AFTER': '1',
           'HWLOC_COMPONENTS': '-opencl'}  # drivers that a sanitizer ends, with and without Sluice: Mesa's
    done = mpi.launch(2, program, 'bcast', env=env)
    assert done.status == 0 and done.out.count('ok told') == 2, done.explain()
    done = mpi.launch(2, program, 'bcast', 'overflow', env=env)
    assert done.status and 'heap-buffer-overflow' in done.err, done.explain()


@pytest.mark.parametrize('name', ['mpich', 'openmpi'])
def test_told_once_that_device_memory_is_left_alone(name, get_mpi):
    mpi = get_mpi(name)
    library = compile_once(PROGRAMS / 'libcuda.so', 'cc', ['-shared', '-fPIC'],
                           [SOURCES / 'lib/area.c'])
    done = mpi.launch(2, mpi.build(PROGRAM), 'device', library, env=ON)
    assert done.status == 0 and done.out.count('ok told') == 2, done.explain()
    assert len(lines(done)) == 1 and re.search('device memory .* left alone', lines(done)[0]), done.explain()


# ---- ranks that disagree ------------------------------------------------------------------------------

CALL = r'MPI_(\w+) \(([^)]*)\)'
IN = rf'sluice: rank \d: exec: rank (\d) of 3 is in {CALL} while rank (\d) is in {CALL}: the ranks of a '


@pytest.mark.parametrize('how, calls', [
    ('kind', {0: ('Bcast', '1M, root 0'), 1: ('Allreduce', '512K')}),
    ('bytes', {0: ('Bcast', '1M, root 0'), 1: ('Bcast', '1152K, root 0')}),
    ('root', {0: ('Bcast', '1M, root 0'), 1: ('Bcast', '1M, root 1')}),
    ('request', {0: ('Ibcast', '1M, root 0'), 1: ('Iallreduce', '512K')})])
@pytest.mark.parametrize('name', ['mpich', 'openmpi'])
def test_told_which_ranks_are_in_which_calls(name, how, calls, get_mpi):
    mpi = get_mpi(name)
    done = mpi.launch(3, mpi.build(PROGRAM), 'differs', how,
                      env={**ON, 'coll:nonblocking': 'on', 'SLUICE_EARLY': 'off'})
    assert done.out.count('gets an error') >= 2, done.explain()
    assert len(lines(done)) == 1, done.explain()
    found = re.match(IN, lines(done)[0])
    assert found, done.explain()
    one, other = found.groups()[:3], found.groups()[3:]
    assert {one[0], other[0]} & {'1'}, done.explain()
    for rank, kind, rest in (one, other):
        want = calls[1 if rank == '1' else 0]
        assert kind == want[0], done.explain()
        assert re.fullmatch(want[1] + r'(, told\+0x[0-9a-f]+)?', rest), done.explain()


def test_told_which_part_has_two_sizes(get_mpi):
    mpi = get_mpi('mpich')
    done = mpi.launch(2, mpi.build(PROGRAM), 'differs', 'parts',
                      env={'coll:vector': 'on', 'SLUICE_EARLY': 'off'})
    assert done.out.count('gets an error') == 2 and len(lines(done)) == 1, done.explain()
    assert re.search(r'rank \d of 2 in MPI_Alltoallv \(.*\) (sends|receives) \d+ bytes, and rank \d '
                     r'(sends|receives) \d+: what one rank sends must be', lines(done)[0]), done.explain()


# ---- SLUICE_STATS=- -----------------------------------------------------------------------------------

def table(done):
    """The counters: {name: (sum, least, most)}"""
    rows = re.findall(r'^  (\w+) +(\d+) +(\d+) +(\d+)  \w', done.err, re.M)
    return {name: tuple(map(int, numbers)) for name, *numbers in rows}


@pytest.mark.parametrize('name', ['mpich', 'openmpi', 'debian-openmpi'])
def test_told_one_table_of_counters_without_zeros(name, get_mpi):
    mpi = get_mpi(name)
    done = mpi.launch(3, mpi.build(PROGRAM), 'bcast', env={**ON, 'SLUICE_STATS': '-'})
    assert done.status == 0 and len(lines(done)) == 1, done.explain()
    assert lines(done)[0].startswith('sluice: counters of 3 ranks on '), done.explain()
    assert table(done)['bcast_admitted'] == (24, 8, 8), done.explain()
    assert all(least <= most <= total and total for total, least, most in table(done).values())


@pytest.mark.parametrize('how', ['abort', 'kill', 'exit'])
@pytest.mark.parametrize('name', ['mpich', 'openmpi'])
def test_told_counters_when_a_rank_ends_early(name, how, get_mpi, tmp_path):
    mpi = get_mpi(name)
    done = mpi.launch(2, mpi.build(PROGRAM), 'ends', how,
                      env={**ON, 'SLUICE_STATS': '-', 'TMPDIR': str(tmp_path)})
    assert done.status and not done.leftovers, done.explain()
    counted = [line for line in lines(done) if 'counters' in line]
    assert len(counted) <= 1, done.explain() # a killed launcher does not wait for the table
    for _ in range(200):
        if not list(tmp_path.glob('sluice-stats*')):
            break
        time.sleep(0.1)
    assert not list(tmp_path.glob('sluice-stats*'))


def test_told_counters_by_each_rank_where_no_folder_can_be_made(get_mpi):
    mpi = get_mpi('mpich')
    done = mpi.launch(2, mpi.build(PROGRAM), 'bcast', env={'SLUICE_STATS': '-', 'TMPDIR': '/proc'})
    assert sorted(lines(done)) == [f'sluice: rank {rank}: counters' for rank in range(2)], done.explain()
    assert not re.search(r'^  \w+ +0 ', done.err, re.M)


def test_told_no_counters_of_programs_that_start_no_mpi_under_sluice(get_mpi):
    """The programs may call MPI_Finalize all the same, as under valgrind, which Sluice is not loaded into."""
    done = get_mpi('mpich').launch(2, '/bin/sh', '-c', 'sleep 0.5', env={'SLUICE_STATS': '-'})
    assert done.status == 0, done.explain()
    assert lines(done) == ['sluice: run: no counters: no process has reached MPI_Finalize under Sluice']
