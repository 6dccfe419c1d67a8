# SPDX-License-Identifier: BSD-3-Clause
"""The computing modules of sluice bench: sizes, intervals, results, verdicts, progress."""
import sys
import time

import pytest

from cli import ROOT

sys.path.insert(0, str(ROOT / 'tools/bench'))
import compare  # noqa: E402
import launch  # noqa: E402
import machine  # noqa: E402
import measured  # noqa: E402
import results  # noqa: E402
import scenarios  # noqa: E402
import stats  # noqa: E402
import units  # noqa: E402
from progress import Progress  # noqa: E402


@pytest.mark.parametrize('text, sizes', [
    ('1K,4K', [1024, 4096]), ('1..8', [1, 2, 4, 8]), ('1..64M*4 8K', [4 ** k for k in range(14)] + [8192]),
    ('', []), ('2M 3', [2 << 20, 3]),
])
def test_sizes_are_read(text, sizes):
    assert units.parse_sizes(text) == sizes


@pytest.mark.parametrize('text', ['0..8', '1..8*1', 'x', '4KB', '-4', '1..'])
def test_what_is_no_size_is_refused(text):
    with pytest.raises(ValueError):
        units.parse_sizes(text)


@pytest.mark.parametrize('n', [1, 1023, 1024, 65536, 3 << 20, 1 << 30])
def test_short_sizes_are_read_back(n):
    assert units.parse_bytes(units.short_bytes(n)) == n


@pytest.mark.parametrize('x, text', [(0, '0'), (12345.6, '12346'), (123.45, '123'), (1.2345, '1.23'),
                                     (0.1234, '0.123'), (None, '-')])
def test_numbers_have_three_digits_that_mean_something(x, text):
    assert units.number(x) == text


def test_the_interval_holds_the_median_and_narrows_with_more_values():
    few = [10.0, 11.0, 9.0, 10.5, 9.5]
    many = few * 20
    low, high = stats.interval(few, 1)
    assert 9.0 <= low <= 10.0 <= high <= 11.0
    low2, high2 = stats.interval(many, 1)
    assert low <= low2 <= 10.0 <= high2 <= high and high2 - low2 < high - low
    assert stats.interval(few, 1) == (low, high), 'the same seed, the same interval'
    assert stats.interval([3.0, 5.0], 1) == (3.0, 5.0)


@pytest.mark.parametrize('count, low, high, narrow', [
    (3, 0.96, 1.04, True), (3, 0.94, 1.06, False), (2, 1.0, 1.0, False), (9, 1.0, 1.0, True)])
def test_settled_is_half_of_the_interval_within_five_percent(count, low, high, narrow):
    assert stats.is_narrow(1.0, low, high, count) == narrow


def fill(better='less'):
    """Three rounds of plain and blocking; in the second, both take twice as long."""
    found = results.Results(1, ['plain', 'blocking', 'machine'])
    for number, slow in enumerate((1, 2, 1)):
        for side, base in (('plain', 30.0), ('blocking', 10.0)):
            values = measured.stat(base * slow * 0.9, base * slow, base * slow * 2, 100, dropped=1)
            found.add([measured.sample('bcast', 'a broadcast', 'use', 2, 1024, values, better=better)],
                      side, number)
    return found.all()[0]


def test_a_ratio_is_of_the_same_round():
    r = fill()
    assert r['ratios']['blocking'] == {'value': 3.0, 'low': 3.0, 'high': 3.0, 'pairs': 3}
    assert r['settled'] and r['key'] == 'bcast/use/2/1024'
    plain = r['sides']['plain']
    assert (plain['p0'], plain['p50'], plain['p99']) == (27.0, 30.0, 60.0)
    assert (plain['samples'], plain['dropped'], plain['launches']) == (300, 3, 3)


def test_where_more_is_better_the_ratio_turns_round_and_the_best_is_the_most():
    r = fill(better='more')
    assert r['ratios']['blocking']['value'] == pytest.approx(1 / 3)
    assert r['sides']['plain']['p0'] == 54.0


def test_a_side_without_a_pair_has_no_ratio():
    found = results.Results(1, ['plain', 'blocking'])
    one = [measured.sample('x', 'x', 'use', 2, 8, measured.stat(1, 1, 1, 1))]
    found.add(one, 'plain', 0)
    found.add(one, 'blocking', 1)
    assert found.all()[0]['ratios'] == {} and not found.all()[0]['settled']


OVERLAP = {'what': 'overlap-bcast', 'who': 'all', 'bytes': 1 << 20, 'ranks': 2, 'mismatches': 0}


def overlap_line(comm, comp, both, **more):
    parts = {'comm': comm, 'comp': comp, 'both': both, 'call': 1.0, 'use': 2.0}
    line = {k: {'us': v, 'p0_us': v / 2, 'p99_us': 2 * v, 'samples': 9, 'dropped': 1} for k,
            v in parts.items()}
    return {**OVERLAP, **line, **more}


class FakeJob:
    program, timed, shares_core = 'overlap_bench', '', False


def test_the_hidden_share_is_of_the_blocking_call():
    found = results.Results(1, ['plain', 'blocking', 'early'])
    for side, line in (('plain', overlap_line(200.0, 100.0, 310.0)),
                       ('blocking', overlap_line(100.0, 100.0, 200.0)),
                       ('early', overlap_line(120.0, 100.0, 110.0))):
        found.add(measured.samples([line], FakeJob)[0], side, 0)
    r = found.all()[0]
    assert [r['sides'][s]['overlap_percent'] for s in ('plain', 'blocking', 'early')] == \
        pytest.approx([-5.0, 0.0, 90.0])
    assert [p['name'] for p in r['sides']['early']['parts']] == ['call', 'comp', 'use']
    assert (r['sides']['early']['p0'], r['sides']['early']['p99']) == (55.0, 220.0)


def test_nothing_is_made_of_samples_that_were_all_dropped():
    line = overlap_line(1.0, 1.0, 2.0)
    line['both']['samples'] = 0
    assert measured.samples([line, {'what': 'run', 'mpi': ''}], FakeJob) == ([], ['overlap-bcast of 1 MB'])


def stat(p50, low, high):
    return {'p50': p50, 'low': low, 'high': high}


@pytest.mark.parametrize('a, b, better, word', [
    (stat(10, 9, 11), stat(20, 19, 21), 'less', 'worse'), (stat(20, 19, 21), stat(10, 9, 11), 'less',
                                                           'better'),
    (stat(10, 9, 11), stat(20, 19, 21), 'more', 'better'), (stat(10, 9, 12), stat(13, 11, 15), 'less',
                                                            'same'),
    (stat(100, 99.9, 100.1), stat(102, 101.9, 102.1), 'less', 'same'), (stat(0, 0, 0), stat(5, 5, 5),
                                                                        'less', 'same'),
])
def test_a_verdict_needs_intervals_apart_and_more_than_noise(a, b, better, word):
    assert compare.verdict({'better': better}, a, b) == word


def test_ranks_are_at_least_two_and_each_once():
    assert scenarios.ranks_of(2, None)(['2', 'half', 'all', 'twice']) == [2, 4]
    assert scenarios.ranks_of(16, None)(['2', 'half', 'all']) == [2, 8, 16]
    assert scenarios.ranks_of(16, [3])(['2', 'half', 'all']) == [3]
    assert scenarios.ranks_of(1000, None)(['half', 'all']) == [256]


def test_what_would_fill_the_memory_is_left_out():
    job = scenarios.Job({'program': 'collective_bench', 'what': 'bcast', 'sizes': '1M 64M', 'args': 'ms=1'},
                        scenarios.ranks_of(2, None))
    assert job.arguments(2, 2 << 30) == ['what=bcast', 'sizes=1M,64M', 'ms=1']
    assert job.arguments(64, 2 << 30) == ['what=bcast', 'sizes=1M', 'ms=1']


@pytest.mark.parametrize('quick', [False, True])
def test_every_scenario_can_be_read_and_says_what_it_is(quick):
    for path in sorted((ROOT / 'bench/scenarios').glob('*.ini')):
        s = scenarios.read(path, scenarios.ranks_of(4, None), quick)
        assert s.jobs and s.title and s.about.endswith('.') and s.warmup and 1 <= s.rounds <= s.most
        for job in s.jobs:
            assert job.program in measured.READERS and job.ranks


def test_disturbance_is_told_only_where_there_was_one():
    assert machine.disturbed({'others_percent': 1.0, 'steal_percent': 0.1}) is None
    assert machine.disturbed({'others_percent': None, 'steal_percent': None}) is None
    assert machine.disturbed({'others_percent': 60.0, 'steal_percent': 7.0}) == \
        'other programs used 60 % of the CPUs and the hypervisor took 7 %'


def test_the_time_left_is_what_launches_took_and_never_more_than_the_deadline():
    p = Progress({'a': 2, 'b': 4}, True)
    assert p.left_s() is None
    p.done('a', 3.0)
    assert p.left_s() == 1 * 3.0 + 4 * 3.0  # b is unknown yet: the mean of all
    p.done('b', 1.0)
    assert p.left_s() == 1 * 3.0 + 3 * 1.0
    p.deadline = time.monotonic() - 1
    assert p.left_s() == 0


@pytest.mark.parametrize('text, code, said', [
    ('noise\ncollective_bench-mpich: out of memory\nmore', 1, 'collective_bench-mpich: out of memory'),
    ('\nfirst line\nsecond', 1, 'first line'), ('', 7, 'exit code 7 without a message'),
    ('', -9, 'killed by signal 9'),
])
def test_the_reason_of_a_failure_is_the_line_that_says_most(text, code, said):
    assert launch.reason(text, code) == said


def test_output_that_is_not_json_is_a_failure():
    with pytest.raises(launch.Failed):
        launch.lines_of('{"what": 1}\n{oops')
    assert launch.lines_of('hello\n{"what": 1}\n') == [{'what': 1}]
