# SPDX-License-Identifier: BSD-3-Clause
"""sluice report and sluice trace report on runs whose times are known: several machines, several threads,
ranks that were killed, files without room, many calls.

Run alone: ./dev check tools -k report_files
"""
import json
import resource
import subprocess

import pytest

from support.paths import SLUICE
from trace_file import ALONE, SLOWER, TIMED, UNPAID, records, totals, write_process

BY_HOST, ADMITTED = 0, 2
SECOND = 10**9


def report(*words):
    done = subprocess.run([SLUICE, 'report', '--json', *words], capture_output=True, timeout=100)
    assert (done.returncode, done.stderr) == (0, b'')
    return json.loads(done.stdout.decode())


def some(count, begin, each, outcome=BY_HOST, *more):
    """Calls one after the other."""
    return [(begin + i * each, begin + (i + 1) * each, 1 << 20, outcome, *more) for i in range(count)]


@pytest.mark.parametrize('later', [False, True])
def test_machines_whose_clocks_differ_ran_at_the_same_time(later, tmp_path):
    """CLOCK_MONOTONIC is the time since a machine was started."""
    days = [200 * 86400 * SECOND, 3 * 86400 * SECOND]
    for rank, begin in enumerate(reversed(days) if later else days):
        write_process(tmp_path, rank, some(100, begin, SECOND // 50), host=b'node%d' % rank, begin=begin,
                      end=begin + 4 * SECOND)
    told = report(tmp_path)
    assert told['wall_ns'] == told['threads_ns'] // 2 == 4 * SECOND
    assert told['groups'][0]['permille'] == 500
    done = subprocess.run([SLUICE, 'trace', 'report', tmp_path], capture_output=True, text=True)
    assert done.stdout.splitlines()[0].endswith(', 2 processes, 4.00 s')
    spans = [e for e in json.loads((tmp_path / 'trace.json').read_text())['traceEvents'] if e['ph'] == 'X']
    assert len(spans) == 200 and max(e['ts'] + e['dur'] for e in spans) == 2e6


def test_shares_of_several_threads_are_of_the_time_of_all_of_them(tmp_path):
    begin = 100 * SECOND
    calls = [(t, some(90, begin + SECOND // 2, SECOND // 10)) for t in range(2000, 2004)]
    write_process(tmp_path, 0, [], begin=begin, end=begin + 10 * SECOND,
                  more=[part for t, own in calls for part in records(0, t, own, begin + SECOND // 2)])
    told = report(tmp_path)
    assert told['collectives_ns'] == told['threads_ns'] == 4 * 9 * SECOND
    assert told['groups'][0]['permille'] == 1000


def test_a_thread_that_calls_mpi_for_a_moment_does_not_count_long(tmp_path):
    begin = 100 * SECOND
    write_process(tmp_path, 0, some(10, begin, SECOND // 2), begin=begin, end=begin + 10 * SECOND,
                  more=[*records(0, 2000, some(1, begin + SECOND, SECOND), begin + SECOND)])
    told = report(tmp_path)
    assert told['threads_ns'] == 10 * SECOND and told['groups'][0]['permille'] == 600


def test_a_sample_of_short_calls_is_not_longer_than_its_thread(tmp_path):
    """One of the timed calls has lost its CPU for a second, and stands for 64."""
    write_process(tmp_path, 0, some(10, 10, SECOND // 10), more=[
        totals(1000, 10, calls=6410, small_calls=6400, sampled=98, sampled_ticks=SECOND, ticks=SECOND)])
    told = report(tmp_path)
    short = next(g for g in told['groups'] if g['is_short'])
    assert told['collectives_ns'] <= told['threads_ns'] < 10 * SECOND
    assert short['ns'] == pytest.approx(9 * SECOND, rel=0.01) and short['calls'] == 6400


def test_calls_without_a_record_count_too(tmp_path):
    write_process(tmp_path, 0, some(20, 10, SECOND // 100, ADMITTED), more=[
        totals(1000, 10, calls=1000, size=1000 << 20, ticks=5 * SECOND, admitted=510)])
    told = report(tmp_path)
    (group,) = told['groups']
    assert (told['calls'], told['admitted'], told['lost']) == (1000, 510, 980)
    assert group['bytes'] == 1000 << 20 and told['collectives_ns'] == group['ns'] == 5 * SECOND
    assert group['permille'] == 500 and group['waiting_ns'] <= group['ns']
    done = subprocess.run([SLUICE, 'report', tmp_path], capture_output=True, text=True)
    assert 'no room for the records of 980 calls' in done.stdout


def test_calls_of_the_hosts_run_only_are_no_line(tmp_path):
    for name, calls in ('with', some(10, 10, 1000, ADMITTED)), ('without', [
            *some(10, 10, 3000), *((b, e, 1 << 12, BY_HOST) for b, e, *_ in some(10, SECOND, 10))]):
        (tmp_path / name).mkdir()
        write_process(tmp_path / name, 0, calls)
    (group,) = report('--host', tmp_path / 'without', tmp_path / 'with')['groups']
    assert (group['calls'], group['host_call_ns'], group['gained_ns']) == (10, 3000, 20000)


def test_calls_of_one_rank_alone_are_not_what_the_host_mpi_takes(tmp_path):
    """They only copy, so that Sluice would seem slow."""
    alone = some(9, 3 * SECOND, SECOND // 100, BY_HOST, 2, ALONE)
    unknown = some(30, 3 * SECOND, SECOND // 100, BY_HOST, 2)
    for name, calls in (('with', some(10, 10, SECOND // 10, ADMITTED) + alone),
                        ('without', some(10, 10, SECOND // 5) + unknown)):
        (tmp_path / name).mkdir()
        write_process(tmp_path / name, 0, calls)
    (group,) = (told := report(tmp_path / 'with'))['groups']
    assert (group['calls'], group['admitted'], group['host_call_ns']) == (19, 10, 0)
    assert 'gained_ns' not in group and not told['advice']
    (group,) = report('--host', tmp_path / 'without', tmp_path / 'with')['groups']
    assert (group['host_call_ns'], group['gained_ns']) == (SECOND // 5, SECOND)


def test_nobody_is_late_on_a_communicator_of_one_rank(tmp_path):
    for rank, each in enumerate((SECOND // 100, SECOND // 10)):
        write_process(tmp_path, rank, some(10, 10, each, BY_HOST, 2, ALONE))
    (group,) = report(tmp_path)['groups']
    assert (group['ns'], group['waiting_ns']) == (11 * SECOND // 10, 0)


@pytest.mark.parametrize('each, told', [
    ((1, 20, 30), 'at pencil.py:4 and 1 more place'), ((25, 20, 30), 'at pencil.py:4 and 2 more places'),
    ((1, 30, 2), 'at pencil.py:3')])
def test_the_place_named_is_that_of_most_of_the_lines_time(each, told, tmp_path):
    """Time in messages of other sizes does not count."""
    calls, begin = [(10, 5 * SECOND, 1 << 12, ADMITTED, 2)], 5 * SECOND
    for line, ms in enumerate(each, 2):
        calls += some(10, begin, ms * 6 * SECOND // 1000, BY_HOST, line)
        begin = calls[-1][1]
    write_process(tmp_path, 0, calls)
    texts = [a['text'] for a in report(tmp_path)['advice']]
    text = next((t for t in texts if t.startswith('MPI_Bcast of 1 MiB ')), None)
    assert text and f' ({told}) are ' in text, texts


@pytest.mark.parametrize('reason, option', [(UNPAID, 'SLUICE_DECIDE=table'), (TIMED, 'SLUICE_DECIDE=table'),
                                            (SLOWER, None)])
def test_advice_about_decisions_has_a_value_or_names_no_option(reason, option, tmp_path):
    write_process(tmp_path, 0, some(10, 10, SECOND // 10, BY_HOST, 2, reason))
    (advice,) = report(tmp_path)['advice']
    assert advice['set'] == option
    assert advice['text'].count('SLUICE_') == (1 if option else 0), advice
    assert option is None or advice['text'].endswith(f'; try {option}'), advice


def test_a_killed_rank_lived_until_its_last_record(tmp_path):
    for rank in range(2):
        write_process(tmp_path, rank, some(50, 10, SECOND // 10), ended=False)
    told = report(tmp_path)
    assert (told['wall_ns'], told['unfinished']) == (5 * SECOND, 2)
    done = subprocess.run([SLUICE, 'trace', 'report', tmp_path], capture_output=True, text=True)
    assert done.stdout.splitlines()[0].endswith(', 2 processes, 5.00 s')
    assert '2 ranks ended without MPI_Finalize' in subprocess.run(
        [SLUICE, 'report', tmp_path], capture_output=True, text=True).stdout


def test_many_calls_take_a_time_that_grows_with_them(tmp_path):
    """Repeated calls have no number of their own, so that nothing may search among all of them for one."""
    write_process(tmp_path, 0, [])
    with open(next(tmp_path.glob('*.sluice')), 'r+b') as file:
        head = bytearray(file.read())
        chunks = list(records(0, 1000, some(1000, 10, 1000), 10))
        head[20:24] = head[16:20] = (len(chunks) * 500).to_bytes(4, 'little')
        file.seek(0)
        file.write(head)
        for _ in range(500):
            file.write(chunks[0])
    done = subprocess.run([SLUICE, 'report', '--json', tmp_path], capture_output=True, timeout=600,
                          preexec_fn=lambda: resource.setrlimit(resource.RLIMIT_CPU, (20, 20)))
    assert done.returncode == 0, done
    assert json.loads(done.stdout)['calls'] == 500000


@pytest.mark.parametrize('name, told', [
    (b'\xed\xa0\x80', '???'), (b'\xe0\x80\x80', '???'), (b'\xf4\x90\x80\x80', '????'),
    (b'\xf0\x80\x80\x80', '????'),
    (b'\xff', '?'), (b'a "b" \\ \n', 'a "b" \\ \n'), ('Grüße €😀'.encode(), 'Grüße €😀')])
def test_json_is_json_whatever_the_programs_name(name, told, tmp_path):
    write_process(tmp_path, 0, some(10, 10, 1000), program=b'/home/' + name)
    assert report(tmp_path)['program'] == '/home/' + told


def test_a_name_without_an_end_is_refused(tmp_path):
    write_process(tmp_path, 0, some(10, 10, 1000), program=b'x' * 256)
    done = subprocess.run([SLUICE, 'report', tmp_path], capture_output=True, text=True)
    assert done.returncode == 1 and 'its names have no end' in done.stderr
