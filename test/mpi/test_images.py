# SPDX-License-Identifier: BSD-3-Clause
"""MPI programs whose ranks share an address space (sluice run --endpoints).

Run alone: ./dev check mpi -k test_images. Any other test: pytest test/mpi/... --endpoints 2
"""
import json
import os
import re
import subprocess

import pytest

from support.behaviours import behaviours
from support.build import compile_once
from support.mpi import EARLY
from support.paths import PROGRAMS, ROOT, SLUICE, SOURCES

PROGRAM = 'endpoints.c'
TURNS = 'turns.c'


SWITCH = 'SLUICE_ENDPOINTS_SWITCH'
# of the whole suite: ranks of one address space, the process IDs of ranks, and ranks that take turns
DISAGREE = 'no_short_call_succeeds_after_one_that_ranks_disagree_about'
EXIT = 'ranks_exit_with_status_5'
PASSED_ON = 'the_launcher_passes_a_signal_on'
TOLD_TO_END = 'the_launcher_is_told_to_end'
SPECIAL = ['processes', 'reads_stop_where_nothing_is_mapped', DISAGREE, EXIT, PASSED_ON, TOLD_TO_END]


def check(mpi, ranks, share, names, with_sluice, program=PROGRAM, timeout=60, outer=(), **env):
    done = mpi.launch(ranks, mpi.build(program), *names, sluice=with_sluice, timeout=timeout, outer=outer,
                      env={'SLUICE_ENDPOINTS': str(share), **env})
    assert [name for name in names if f'ok {name}\n' not in done.out] == [], done.explain()
    assert not done.leftovers, done.leftovers
    return done


# all collectives by Sluice, returning early where the scheduler permits it
EARLY_AND_TAKEN = {'SLUICE_COLL_THRESHOLD': '1', 'coll:allreduce': 'on', 'SLUICE_REGION_ADOPT_AFTER': '1',
                   'region_adopt_min': '4K', **EARLY}


def check_random_program(mpi, ranks, share, switch, seed, steps, with_sluice, env):
    """Output and status are those of processes without Sluice.

    Open MPI may kill ranks, before they have printed, once one has ended with a status.
    """
    ends = []
    for is_shared in False, with_sluice:
        done = mpi.launch(ranks, mpi.build('turns_random.c'), str(seed), str(steps), sluice=is_shared,
                          timeout=300, env={'SLUICE_ENDPOINTS': str(share), SWITCH: switch, **env}
                          if is_shared else {})
        assert not done.timed_out and not done.leftovers, done.explain()
        ends.append((done.status, dict(re.findall(r'^rank (\d+): (.*)', done.out, re.M))))
        assert len(ends[-1][1]) == ranks or done.status > 0, done.explain()
    (plain, right), (status, lines) = ends
    assert status == plain, done.explain()
    assert all(right.get(rank, line) == line for rank, line in lines.items()), done.explain()


@pytest.mark.parametrize('switch', ['kernel', 'user'])
@pytest.mark.parametrize('name, ranks, share', [('mpich', 4, 4), ('openmpi', 3, 3), ('mpich', 4, 2)])
def test_random_programs(name, ranks, share, switch, get_mpi, with_sluice):
    """For an hour: ./dev check stress -k programs_for_an_hour"""
    for seed, env in (0, {}), (1, EARLY_AND_TAKEN):
        check_random_program(get_mpi(name), ranks, share, switch, seed, 200, with_sluice, env)


@pytest.mark.parametrize('switch', ['kernel', 'user'])
@pytest.mark.parametrize('name, ranks, share', [
    ('mpich', 2, 2), ('mpich', 4, 2), ('openmpi', 2, 2), ('debian-mpich', 3, 3), ('debian-openmpi', 3, 2),
    ('impi', 2, 2), ('mpich', 16, 16), ('openmpi', 16, 16)])
def test_messages_and_windows(name, ranks, share, switch, get_mpi, with_sluice):
    names = [behaviour for behaviour, _ in behaviours(PROGRAM) if behaviour not in SPECIAL]
    if name == 'debian-mpich': # MPICH 4.0.2 loses the put of 3 plain processes, too
        names.remove('windows')
    assert check(get_mpi(name), ranks, share, names, with_sluice, **{SWITCH: switch}).status == 0


@pytest.mark.parametrize('name', ['mpich', 'openmpi'])
def test_ranks_of_a_carrier_have_one_parent(name, get_mpi, with_sluice):
    if not with_sluice:
        pytest.skip('without Sluice each rank is the child of its launcher')
    done = check(get_mpi(name), 4, 2, ['processes'], with_sluice)
    parents = [line.split()[-1] for line in done.out.splitlines() if 'parent' in line]
    assert sorted(parents.count(parent) for parent in set(parents)) == [2, 2], done.explain()


@pytest.mark.parametrize('switch', ['kernel', 'user'])
@pytest.mark.parametrize('name', ['mpich', 'debian-mpich', 'impi'])
def test_programs_that_end_without_finalize_keep_their_status(name, switch, get_mpi, with_sluice):
    """Hydra kills a process that ends its connection before it ends."""
    mpi = get_mpi(name)
    done = mpi.launch(2, mpi.build(PROGRAM), EXIT, sluice=with_sluice,
                      env={'SLUICE_ENDPOINTS': '2', SWITCH: switch})
    assert done.status == 5 and not done.leftovers, done.explain()


@pytest.mark.parametrize('switch', ['kernel', 'user'])
@pytest.mark.parametrize('name', ['mpich', 'openmpi'])
def test_signals_of_the_launcher(name, switch, get_mpi, with_sluice):
    mpi = get_mpi(name)
    for behaviour in PASSED_ON, TOLD_TO_END:
        done = mpi.launch(2, mpi.build(PROGRAM), behaviour, sluice=with_sluice,
                          outer=['sh', '-c', 'LAUNCHER=$$ exec "$@"', 'sh'],
                          env={'SLUICE_ENDPOINTS': '2', SWITCH: switch})
        is_right = f'ok {behaviour}\n' in done.out and done.status == 0
        assert is_right == (behaviour == PASSED_ON) and bool(done.status) != is_right, done.explain()
        assert done.seconds < 15 and not done.leftovers, done.explain()


@pytest.mark.parametrize('ranks, on_one_cpu', [(2, True), (2, False), (4, False)])
@pytest.mark.parametrize('switch', ['kernel', 'user'])
@pytest.mark.parametrize('name', ['mpich', 'openmpi'])
def test_ranks_that_keep_the_processor(name, switch, ranks, on_one_cpu, get_mpi, with_sluice):
    """Others go on within 10 ms; on a machine with other work at the third try."""
    outer = ['taskset', '-c', str(min(os.sched_getaffinity(0)))] if on_one_cpu else []
    mpi = get_mpi(name)
    for _ in range(3):
        done = mpi.launch(ranks, mpi.build(TURNS), sluice=with_sluice, outer=outer,
                          env={'SLUICE_ENDPOINTS': str(ranks), SWITCH: switch})
        missing = [behaviour for behaviour, _ in behaviours(TURNS) if f'ok {behaviour}\n' not in done.out]
        assert done.status == 0 and not missing and not done.leftovers, done.explain()
        longest_us = int(re.search(r'note others_go_on\w+: rank 0: (\d+) us', done.out).group(1))
        if longest_us <= 10000:
            return
    assert longest_us <= 10000


@pytest.mark.parametrize('name', ['mpich', 'openmpi'])
def test_programs_that_can_share_beside_one_that_cannot(name, get_mpi, with_sluice, tmp_path):
    """Rank 0's reason is told once in a job; that of others stands in their log."""
    if not with_sluice:
        pytest.skip('without Sluice each rank has its own address space')
    mpi = get_mpi(name)
    fixed = mpi.build(PROGRAM, ['-no-pie', '-fno-pie'], 'endpoints-fixed')
    script = tmp_path / 'some'
    script.write_text('#!/bin/sh\nsome=$1 fixed=$2 tool=$3 run=$4 program=$5; shift 5\n'
                      'case " $some " in *" ${PMI_RANK:-$OMPI_COMM_WORLD_RANK} "*) program=$fixed; esac\n'
                      'exec "$tool" "$run" "$program" "$@"\n')
    script.chmod(0o755)
    for some, lines in ('1', 0), ('0 1 2', 1):
        done = mpi.launch(3, mpi.build(PROGRAM), 'messages', 'own_globals', before=[script, some, fixed],
                          env={'SLUICE_ENDPOINTS': '3', SWITCH: 'user'})
        assert done.status == 0 and done.out.count('ok ') == 2, done.explain()
        told = [line for line in done.err.splitlines() if 'rank 0 stays a process' in line]
        assert len(told) == lines and all('not position-independent' in line for line in told), done.explain()


@pytest.mark.parametrize('name', ['mpich', 'openmpi'])
def test_collectives_with_sluice(name, get_mpi, with_sluice):
    env = {'SLUICE_COLL_THRESHOLD': '1', 'coll:allreduce': 'on', 'SLUICE_REGION_ADOPT_AFTER': '1',
           'region_adopt_min': '4K'}
    names = [behaviour for behaviour, _ in behaviours('moves.c')][:6]
    assert check(get_mpi(name), 2, 2, names, with_sluice, 'moves.c', **env).status == 0


@pytest.mark.parametrize('name', ['mpich', 'openmpi'])
def test_messages_are_copied_directly(name, get_mpi, with_sluice, tmp_path):
    if not with_sluice:
        pytest.skip('without Sluice each rank has its own address space')
    mpi = get_mpi(name)
    # no adoption, so that only images and copies of short messages (1.6 MB of them) count
    done = mpi.launch(2, mpi.build('messages.c'), 'messages_of_all_sizes',
                      env={'SLUICE_ENDPOINTS': '2', SWITCH: 'kernel', 'SLUICE_REGION_ADOPT_AFTER': '1000000',
                           'SLUICE_STATS': str(tmp_path / 'stats')})
    assert done.status == 0, done.explain()
    for rank in range(2):
        counters = json.loads((tmp_path / f'stats.{rank}.json').read_text())
        assert counters['bytes_messages'] > 200 << 20


@pytest.fixture(scope='module')
def reads():
    return str(compile_once(PROGRAMS / 'libmpi_reads.so', 'cc', ['-shared', '-fPIC'],
                            [SOURCES / 'lib/reads.c']))


@pytest.mark.parametrize('switch', ['kernel', 'user'])
@pytest.mark.parametrize('name', ['mpich', 'openmpi', 'debian-mpich', 'debian-openmpi'])
def test_ranks_that_wait_give_their_processor_away(name, switch, reads, get_mpi, with_sluice, tmp_path):
    """A rank on the worker reads its sibling by a copy that stops at what is not mapped."""
    if not with_sluice:
        pytest.skip('without Sluice each rank has its own address space')
    check(get_mpi(name), 2, 2, SPECIAL[1:2], True, **{SWITCH: switch}, HARNESS_READS=reads,
          SLUICE_STATS=str(tmp_path / 'stats'))
    for rank in range(2):
        counters = json.loads((tmp_path / f'stats.{rank}.json').read_text())
        if switch == 'kernel':
            assert counters['switches'] == counters['trips'] == 0
        else: # of 100 reads; a trip sends a rank home for 64 barriers at most
            assert counters['switches'] > 1000 and counters['messages'] > 50, counters


@pytest.mark.parametrize('name', ['mpich', 'openmpi'])
def test_collectives_of_ranks_that_switch(name, get_mpi, with_sluice):
    env = {'SLUICE_COLL_THRESHOLD': '1', 'coll:allreduce': 'on', SWITCH: 'user'}
    names = [behaviour for behaviour, _ in behaviours('moves.c')][:6]
    for ranks, share in (2, 2), (4, 4), (4, 2):
        assert check(get_mpi(name), ranks, share, names, with_sluice, 'moves.c', **env).status == 0


@pytest.mark.parametrize('switch', ['kernel', 'user'])
@pytest.mark.parametrize('name', ['mpich', 'openmpi'])
def test_a_wrapper_script_around_the_program(name, switch, get_mpi, with_sluice, tmp_path):
    """The example of sluice/endpoints.h: neighbours of one address space read by pointers."""
    mpi = get_mpi(name)
    program = mpi.build(ROOT / 'examples/endpoints.c', [f'-I{ROOT}/include'], 'example-endpoints')
    script = tmp_path / 'wrapper'
    script.write_text(f'#!/bin/sh\nMINE=1 {program} "$@"\n')
    script.chmod(0o755)
    how, here = ('pointer', '1 other rank') if with_sluice else ('message', '0 other ranks')
    for command, ranks in ([program], 2), ([script], 2), (['env', 'MINE=1', program], 4):
        done = mpi.launch(ranks, *map(str, command), sluice=with_sluice,
                          env={'SLUICE_ENDPOINTS': '2', SWITCH: switch})
        assert done.status == 0 and not done.leftovers, done.explain()
        for rank in range(ranks):
            right = (rank + 1) % ranks
            line = re.search(rf'rank {rank}: sum (\d+) of rank {right} by (\w+); (.*) here', done.out)
            assert line and line[1] == str(1000 * (right + 1)) and line[3] == here, done.explain()
            assert line[2] == how or ranks > 2, done.explain() # which ranks share is the launcher's choice


@pytest.mark.parametrize('name', ['mpich', 'openmpi'])
def test_a_trace_shows_who_shares_and_who_takes_turns(name, get_mpi, with_sluice, tmp_path):
    if not with_sluice:
        pytest.skip('without Sluice nothing is traced')
    mpi = get_mpi(name)
    for how, env, before in (('user', {SWITCH: 'user'}, ()), ('kernel', {SWITCH: 'kernel'}, ()),
                             ('no', {}, ('sh', '-c', 'ulimit -d 100000000; exec "$@"', 'sh'))):
        (tmp_path / how).mkdir()
        mpi.launch(2, mpi.build('moves.c'), 'bcast', before=before,
                   env={'SLUICE_ENDPOINTS': '2', 'SLUICE_TRACE': str(tmp_path / how), **env})
        out = subprocess.run([SLUICE, 'trace', 'report', tmp_path / how], capture_output=True,
                             text=True).stdout
        state = 'stays a process: its data segment is limited (ulimit -d)' if how == 'no' else \
            'shares its address space: ranks '
        assert out.count(state) == 2, out
        assert (' switches, ' in out) == (how == 'user'), out
        chrome = (tmp_path / how / 'trace.json').read_text()
        assert ('turns with other ranks' in chrome) == (how == 'user')


@pytest.mark.parametrize('name, label', [('mpich', '-l'), ('openmpi', '--tag-output')])
def test_the_launcher_labels_the_output_of_each_rank(name, label, get_mpi, with_sluice):
    mpi = get_mpi(name)
    program = mpi.build(ROOT / 'examples/endpoints.c', [f'-I{ROOT}/include'], 'example-endpoints')
    for wrapper in [], ['sh', '-c', '"$@"; exit $?', 'sh']:
        done = mpi.launch(4, *wrapper, str(program), sluice=with_sluice, launcher=[label],
                          env={'SLUICE_ENDPOINTS': '2'})
        labels = re.findall(r'^\[(?:\S*,)?(\d+)\](?:<stdout>:)? ?rank (\d+): sum', done.out, re.M)
        assert sorted(labels) == [(str(rank), str(rank)) for rank in range(4)], done.explain()


SHORT = ['short_ones_that_block', 'barriers_hold_every_rank']


@pytest.mark.parametrize('name, ranks, share, is_served', [
    ('mpich', 2, 2, True), ('mpich', 5, 5, True), ('openmpi', 4, 2, True), ('impi', 2, 2, True),
    ('mpich', 2, 'off', False)])
def test_short_collectives_of_ranks_that_take_turns(name, ranks, share, is_served, get_mpi, with_sluice,
                                                    tmp_path):
    env = {SWITCH: 'user', 'CHECK_CALLS': '1000', 'SLUICE_STATS': str(tmp_path / 'stats')}
    done = check(get_mpi(name), ranks, share, SHORT, with_sluice, 'requests_short.c', **env)
    assert done.status == 0, done.explain()
    if with_sluice:
        counts = [json.loads((tmp_path / f'stats.{rank}.json').read_text()) for rank in range(ranks)]
        assert all((c.get('barrier_admitted', 0) > 300 and c.get('reduce_admitted', 0) > 50) == is_served
                   for c in counts), counts


def test_48_ranks_map_each_others_arenas(get_mpi, with_sluice, tmp_path):
    """Without a limit, 2304 mappings of 64 GiB would need more address space than there is."""
    done = check(get_mpi('mpich'), 48, 48, ['many_barriers'], with_sluice, TURNS, CHECK_BARRIERS='400',
                 SLUICE_STATS=str(tmp_path / 'stats'), **{SWITCH: 'user'})
    assert done.status == 0, done.explain()
    if with_sluice:
        counters = json.loads((tmp_path / 'stats.47.json').read_text())
        assert counters['barrier_admitted'] > 100, counters


@pytest.mark.parametrize('name', ['mpich', 'openmpi'])
def test_ranks_that_disagree_about_a_short_collective(name, get_mpi, with_sluice):
    if not with_sluice:
        pytest.skip('plain MPIs wait for ever')
    assert check(get_mpi(name), 3, 3, [DISAGREE], with_sluice, **{SWITCH: 'user'}).status == 0
