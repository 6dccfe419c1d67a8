# SPDX-License-Identifier: BSD-3-Clause
"""sluice report: its sums are those of the trace, and its advice names the option to set.

Run alone: ./dev check tools -k cli_report
"""
import json
import os
import pathlib
import re

import pytest

from cli import PROGRAMS, sluice
from support.mpi import need
from support.paths import SLUICE


def trace(mpi, folder, program, *words, args=()):
    done = mpi.launch(2, SLUICE, 'trace', '-o', folder, *words, mpi.build(PROGRAMS / program), *args,
                      sluice=False, timeout=100)
    assert done.status == 0 and not done.leftovers, done.explain()
    return folder


def report(*words):
    done = sluice('report', '--json', *words)
    assert (done.returncode, done.stderr) == (0, '')
    return json.loads(done.stdout)


def places(folder):
    text = (folder / 'timeline.html').read_text()
    meta = re.search(r'<script id="meta" type="application/json">(.*?)</script>', text, re.S).group(1)
    return [p for p in json.loads(meta)['places'] if p['calls']]


@pytest.fixture(scope='module')
def host_run(tmp_path_factory):
    return trace(need('mpich'), tmp_path_factory.mktemp('host'), 'traced.c', '--set', 'COLL=all:off')


@pytest.mark.parametrize('name', ['mpich', 'openmpi'])
def test_the_sums_are_those_of_the_trace(name, tmp_path):
    folder = trace(need(name), tmp_path / 't', 'traced.c')
    told, traced = report(folder), places(folder)
    assert told['ranks'] == 2 and told['wall_ns'] > 0
    assert 0 < told['cpu_ns'] < 100e9
    assert told['calls'] == sum(p['calls'] for p in traced)
    assert told['admitted'] == sum(p['admitted'] for p in traced)
    assert sum(g['bytes'] for g in told['groups']) == sum(p['bytes'] for p in traced)
    assert sum(g['ns'] for g in told['groups']) == told['collectives_ns']
    assert all(0 <= g['waiting_ns'] <= g['ns'] and g['admitted'] <= g['calls'] for g in told['groups'])
    assert [g['ns'] for g in told['groups']] == sorted((g['ns'] for g in told['groups']), reverse=True)
    assert {g['function'] for g in told['groups']} == {p['name'] for p in traced}


@pytest.mark.parametrize('name', ['mpich', 'openmpi'])
def test_waiting_for_a_late_rank_is_told_from_work(name, tmp_path):
    folder = trace(need(name), tmp_path / 't', 'traced_late.c')
    (group,), (place,) = report(folder)['groups'], places(folder)
    assert group['calls'] == 40 and group['ns'] > 70e6
    assert 0.8 * group['ns'] < group['waiting_ns'] <= group['ns']
    assert place['late_ns'] == group['waiting_ns']
    line = next(line for line in (folder / 'summary.txt').read_text().splitlines() if 'Allreduce' in line)
    assert re.search(r'\d ms +\d+\.\d ms ', line), line


def test_a_run_of_the_host_mpi_gives_the_times_to_compare_with(host_run, tmp_path):
    folder = trace(need('mpich'), tmp_path / 't', 'traced.c', '--set', 'COLL=all:on')
    alone = {(g['function'], g['is_short']): g for g in report(host_run)['groups']}
    assert not any(g['admitted'] for g in alone.values())
    assert all(g['host_call_ns'] for g in alone.values() if g['calls'] >= 10)
    both = [g for g in report('--host', host_run, folder)['groups'] if g['bytes'] >= 60 << 20]
    assert both and all(g['sluice_call_ns'] and g['host_call_ns'] and 'gained_ns' in g for g in both)
    for g in both:
        assert g['gained_ns'] == (g['host_call_ns'] - g['sluice_call_ns']) * g['admitted']


def test_advice_names_the_option_that_admits_the_calls(tmp_path):
    folder = trace(need('mpich'), tmp_path / 't', 'traced_vectors.c', args=['8000000'])
    told = report(folder)
    of_vectors = [a for a in told['advice'] if re.match(r'MPI_(Alltoall[vw]|Gatherv|Scatterv) of', a['text'])]
    assert of_vectors, told
    for advice in of_vectors:
        assert advice['permille'] >= 50
        assert advice['set'] in (None, 'SLUICE_COLL=vector:on') and ' % of the run: ' in advice['text']
        assert re.search(r' \(by \w+ \(traced_vectors', advice['text'])


def test_one_screen(host_run):
    done = sluice('report', host_run)
    assert (done.returncode, done.stderr) == (0, '')
    text = done.stdout.splitlines()
    assert len(text) <= 24 and '\nWhat to change:\n- ' in done.stdout
    assert re.match(r'traced: 2 ranks, [0-9.]+ m?s, [0-9.]+ m?s of CPU time\. Collectives take '
                    r'\d+\.\d % of the time: \d+\.\d % until the last rank has called, the rest moving, '
                    r'computing and sleeping\.$', text[0])
    assert re.match(r'Sluice executed 0 of \d+ calls', text[1])


def test_calls_that_go_past_sluice_are_not_called_none(tmp_path):
    """A program that looks MPI_Bcast up by dlsym is not seen; the report must not leave it at 0 %."""
    folder = trace(need('mpich'), tmp_path / 't', 'traced_past.c')
    assert report(folder)['calls'] == 0
    for text in (sluice('report', folder).stdout, (folder / 'summary.txt').read_text()):
        assert 'looks MPI\'s functions up by dlsym' in text, text


@pytest.mark.skipif(not pathlib.Path('/proc/self/schedstat').exists(), reason='this kernel does not tell')
def test_ranks_that_share_a_cpu_are_told(tmp_path):
    mpi, cpu = need('mpich'), str(min(os.sched_getaffinity(0)))
    done = mpi.launch(2, 'taskset', '-c', cpu, SLUICE, 'trace', '-o', tmp_path / 't',
                      mpi.build(PROGRAMS / 'traced_late.c'), 'compute', sluice=False, timeout=100)
    assert done.status == 0, done.explain()
    told = report(tmp_path / 't')
    assert told['cpu_wait_ns'] > 20 * 4e6 / 2, told  # while the other rank computed
    assert re.match(r'for \d+ % of the time the ranks were ready to run and had no CPU: ',
                    told['advice'][0]['text'])
    assert ' waiting for a CPU' in (tmp_path / 't/summary.txt').read_text()


def set_cpu_wait(folder, program, us):
    """Writes how long each rank had no CPU into its trace (program to cpu_wait_us in src/trace/format.h)."""
    for path in folder.glob('rank-*.sluice'):
        data = bytearray(path.read_bytes())
        at = data.index(bytes(program)) + 256 + 64 + 32 + 8
        data[at:at + 8] = us.to_bytes(8, 'little')
        path.write_bytes(data)


def test_ranks_that_may_be_late_for_want_of_a_cpu_are_not_called_uneven(tmp_path):
    mpi = need('mpich')
    folder, program = trace(mpi, tmp_path / 't', 'traced_late.c'), mpi.build(PROGRAMS / 'traced_late.c')
    for us, text in ((0, 'a more even distribution of work would help'), (10**8, 'may have had no CPU')):
        set_cpu_wait(folder, program, us)
        told = report(folder)
        assert told['cpu_wait_ns'] == 2000 * us
        (advice,) = (a['text'] for a in told['advice'] if a['text'].startswith('MPI_Allreduce '))
        assert text in advice, advice


def test_what_is_no_trace_is_told(tmp_path):
    done = sluice('report', tmp_path)
    assert done.returncode == 1 and 'holds no trace' in done.stderr
    assert sluice('report', tmp_path / 'none').returncode == 1
    for words in ([], ['--jsn', tmp_path], [tmp_path, tmp_path], [tmp_path, '--host']):
        done = sluice('report', *words)
        assert done.returncode == 2 and len(done.stderr.splitlines()) == 1
    assert f'sluice report {tmp_path} --host {tmp_path}' in sluice('report', tmp_path, tmp_path).stderr
