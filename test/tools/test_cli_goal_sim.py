# SPDX-License-Identifier: BSD-3-Clause
"""sluice goal gen and sim: patterns, files, parameters, what is printed, what is refused."""
import json
import re
import signal
import subprocess
import time

import pytest

from cli import PREFIX, SLUICE, limited, plain_env, sluice


def goal(*args, **more):
    return sluice('goal', *args, **more)


def sim(*args):
    """The JSON of a simulation that must succeed."""
    r = goal('sim', *args, '--json')
    assert r.returncode == 0 and r.stderr == '', r.stderr
    return json.loads(r.stdout)


def patterns():
    return [line.split()[0] for line in goal('gen', '--list').stdout.splitlines()]


def dissemination(ranks):
    """As schedule generators write it for LogGOPSim."""
    lines = [f'num_ranks {ranks}']
    for r in range(ranks):
        lines.append(f'\nrank {r} {{')
        label, distance, last = 0, 1, None
        while distance < ranks:
            label += 1
            lines.append(f'l{label}: send 1b to {(r + distance) % ranks} tag 0')
            if last:
                lines.append(f'l{label} requires {last}')
            label += 1
            lines.append(f'l{label}: recv 1b from {(r - distance) % ranks} tag 0')
            last = f'l{label}'
            distance *= 2
        lines.append('}')
    return '\n'.join(lines) + '\n'


@pytest.fixture
def text(tmp_path):
    def write(content, name='test.goal'):
        path = tmp_path / name
        path.write_text(content)
        return path
    return write


# ---- gen ---------------------------------------------------------------------------------------------------

def test_every_pattern_is_listed_with_a_sentence_and_can_be_made_read_and_simulated(tmp_path):
    names = patterns()
    assert len(names) > 20 and 'ring-allreduce' in names
    for name in names:
        out = tmp_path / f'{name}.goal'
        assert goal('gen', name, '-n', '6', '-s', '48', '-o', out).returncode == 0
        assert out.read_text().startswith('num_ranks 6\n')
        assert sim(out)['end_ps'] == sim(name, '-n', '6', '-s', '48')['end_ps']


def test_a_program_and_a_text_of_a_pattern_are_the_same(tmp_path):
    args = 'halving-allreduce', '-n', '11', '-s', '1000', '--type', 'f32', '--op', 'max'
    assert goal('gen', *args, '--program', '-o', tmp_path / 'p').returncode == 0
    as_text = goal('gen', *args).stdout
    assert goal('print', tmp_path / 'p').stdout == as_text


@pytest.mark.parametrize('args, says', [
    (('no-such', '-n', '4'), 'no pattern'),
    (('bruk-alltoall', '-n', '4'), "did you mean 'bruck-alltoall'"),
    (('ping-pong',), 'no number of ranks'),
    (('ping-pong', '-n', '1'), 'two ranks'),
    (('binomial-bcast', '-n', '4', '--root', '4'), 'root'),
    (('binomial-reduce', '-n', '4', '--op', 'sub'), 'order'),
    (('binomial-reduce', '-n', '4', '--op', 'sum'), "--op cannot be 'sum'"),
    (('binomial-reduce', '-n', '4', '--type', 'f32', '-s', '6'), 'whole number'),
    (('stencil-2d', '-n', '6', '--dims', '2x2'), 'product'),
    (('stencil-2d', '-n', '6', '--dims', '2'), '--dims'),
    (('ping-pong', '-n', '0'), '-n'),
    (('ping-pong', '-n', '2', '--program'), '-o'),
    (('ping-pong', 'ping-pong', '-n', '2'), 'one pattern'),
])
def test_gen_refuses_what_cannot_be(args, says):
    r = goal('gen', *args)
    assert r.returncode == 2 and r.stdout == '' and says in r.stderr


def test_gen_says_that_it_cannot_write():
    r = goal('gen', 'ping-pong', '-n', '2', '-o', '/no/such/folder/x')
    assert r.returncode == 1 and 'cannot write' in r.stderr


# ---- sim: results ------------------------------------------------------------------------------------------

def test_published_results_of_loggopsim(text):
    ends = sim(text(dissemination(16)))['rank_end_ps']
    assert ends == [22000_000] * 16
    assert sim('binomial-bcast', '-n', '16', '-s', '1')['end_ps'] == 22000_000
    assert sim('binomial-reduce', '-n', '8', '-s', '1024')['end_ps'] == 34914_000


def test_output_for_people_has_times_and_the_path():
    out = goal('sim', 'ping-pong', '-n', '2', '-s', '101', '-L', '1000', '-o', '10', '-g', '5', '-G',
               '0.5').stdout
    assert 'L=1000 o=10 g=5 G=0.5' in out
    assert 'rank 0  2140' in out
    assert 'latency (L)   2000  93.5 %' in out
    assert re.search(r'0 \.\. 10 +rank 0 +send 101b to 1 tag 0\n', out)
    assert re.search(r'1010 \.\. 1070 +rank 1 +receives from 0: send 101b', out)


def test_labels_and_lines_of_a_text_are_in_the_path(text):
    path = text('num_ranks 1\nrank 0 {\nprepare: calc 70\nfinish: calc 5\nfinish requires prepare\n}\n')
    out = goal('sim', path).stdout
    assert 'prepare (line 3): calc 70' in out and 'finish (line 4): calc 5' in out
    steps = sim(path)['critical_path']['steps_last_first']
    assert [s['label'] for s in steps] == ['finish', 'prepare']
    assert [s['line'] for s in steps] == [4, 3]


def test_many_ranks_are_summarised():
    out = goal('sim', 'binomial-bcast', '-n', '1000', '-s', '8').stdout
    assert 'half of the ranks' in out and '####' in out and 'rank 17 ' not in out
    assert len(re.findall(r'^  rank \d+ ', goal('sim', 'binomial-bcast', '-n', '1000', '--times').stdout,
                          re.M)) == 1000
    assert 'rank_end_ps' not in sim('linear-bcast', '-n', '5000')


def test_the_path_can_be_cut_short_or_left_out():
    long = 'ring-allreduce', '-n', '30', '-s', '4K'
    assert ' more (--path)' in goal('sim', *long).stdout
    assert ' more (--path)' not in goal('sim', *long, '--path', '100000').stdout
    assert 'critical path' not in goal('sim', *long, '--path', '0').stdout
    assert 'before the recorded part' in goal('sim', *long, '--path-memory', '1K').stdout
    assert 'not recorded' in goal('sim', *long, '--path-memory', '0').stdout


def test_thousands_of_ranks():
    j = sim('dissemination-allreduce', '-n', '20000', '-s', '8', '--op', 'max', '--path-memory', '0')
    assert j['messages'] == 300_000 and j['different_schedules'] <= 2
    assert j['end_ps'] == 15 * (2500 + 2 * 1500 + 7 * 6) * 1000


# ---- sim: parameters ---------------------------------------------------------------------------------------

def test_presets_files_and_options_give_parameters_in_order(tmp_path):
    assert sim('ping-pong', '-n', '2', '--preset', 'infiniband')['parameters']['G_ns'] == '0.04'
    j = sim('ping-pong', '-n', '2', '-L', '7', '-S', '1K', '--save', tmp_path / 'params')
    assert j['parameters']['L_ps'] == 7000 and j['parameters']['S_bytes'] == 1024
    j = sim('ping-pong', '-n', '2', '--params', tmp_path / 'params', '-o', '3')
    assert j['parameters'] | {'from': ''} == {'from': '', 'L_ps': 7000, 'o_ps': 3000, 'g_ps': 1000000,
                                              'G_ns': '6',
                                              'O_ns': '0', 'C_ns': '0', 'S_bytes': 1024, 'above': []}


def test_a_wrong_line_of_parameters_is_told(tmp_path):
    (tmp_path / 'params').write_text('L 5\nlatency 7\n')
    r = goal('sim', 'ping-pong', '-n', '2', '--params', tmp_path / 'params')
    assert r.returncode == 1 and 'params:2' in r.stderr


def test_messages_inside_this_node_are_measured_with_their_spread(tmp_path):
    r = goal('sim', '--measure', '--json', '--save', tmp_path / 'params')
    assert r.returncode == 0, r.stderr
    j = json.loads(r.stdout)
    assert j['cpus'] >= 1 and len(j['rows']) == 18 and 1 <= j['rounds'] <= 11
    for row in j['rows']:
        for name in 'alone_ns', 'together_ns', 'copy_ns', 'add_ns':
            assert 0 <= row[name]['low'] <= row[name]['median'] <= row[name]['high'] < 1e9
    # how much is the machine's matter, and of what else it does
    assert j['rows'][-1]['alone_ns']['median'] > j['rows'][0]['alone_ns']['median']
    assert sim('ping-pong', '-n', '2', '--params', tmp_path / 'params')['end_ps'] > 0


def test_a_small_schedule_needs_little_address_space(tmp_path):
    far = 'cpu 20000 nic 20000'
    (tmp_path / 'a.goal').write_text(f'num_ranks 2\nrank 0 {{\nsend 8b to 1 tag 1 {far}\ncalc 100 {far}\n}}\n'
                                     f'rank 1 {{\nrecv 8b from 0 tag 1 {far}\n}}\n')
    r = goal('sim', tmp_path / 'a.goal', preexec_fn=limited(30000))
    assert r.returncode == 0 and 'critical path: 5542 ns, 2 steps' in r.stdout, r.stderr


def test_a_lack_of_address_space_is_told_with_its_limit():
    r = goal('sim', 'linear-alltoall', '-n', '1000', preexec_fn=limited(100000))
    assert r.returncode == 1 and 'ulimit -v allows 100000 KiB' in r.stderr, r.stderr


def test_ranks_of_a_node_and_nodes_are_two_levels(tmp_path):
    (tmp_path / 'node').write_text('node cpus 2\nnode L 100\nnode o 20\nnode S 4096\nnode 8 140 140 1 1\n')
    inside, far = 140, 1500 + 2500 + 1500 + 7 * 6
    for ranks, end in ('2', inside), ('1', far):
        j = sim('binomial-bcast', '-n', '2', '--params', tmp_path / 'node', '--node-ranks', ranks)
        assert j['end_ps'] == 1000 * end
    # the root sends to the other node first, and o later to its neighbour
    j = sim('binomial-bcast', '-n', '4', '--params', tmp_path / 'node', '--node-ranks', '2')
    assert j['end_ps'] == 1000 * (far + inside)


def test_the_model_of_atlahs(tmp_path):
    (tmp_path / 'a.goal').write_text('num_ranks 2\nrank 0 { send 100b to 1 tag 0 }\n'
                                     'rank 1 { recv 100b from 0 tag 0 }\n')
    assert sim(tmp_path / 'a.goal', '--model', 'atlahs')['rank_end_ps'] == [1500000, 7094000]
    assert sim(tmp_path / 'a.goal')['rank_end_ps'] == [1500000, 6094000]


@pytest.mark.parametrize('options, message', [
    (['--model', 'atlas'], "--model cannot be 'atlas'"),
    (['--node-ranks', '2'], '--node-ranks needs --measure or the --params of a node'),
    (['--node-ranks', '0'], "--node-ranks cannot be '0'")])
def test_models_that_are_not_there(options, message):
    r = goal('sim', 'ping-pong', '-n', '2', *options)
    assert r.returncode == 2 and message in r.stderr


# ---- sim: trouble ------------------------------------------------------------------------------------------

DEADLOCK = '''num_ranks 2
rank 0 {
a: recv 8b from 1 tag 3
b: send 8b to 1 tag 3
b requires a
}
rank 1 {
c: recv 8b from 0 tag 3
d: send 8b to 0 tag 3
d requires c
}
'''


def test_a_deadlock_is_told_by_its_operations(text):
    path = text(DEADLOCK)
    r = goal('sim', path)
    assert r.returncode == 1
    assert 'deadlock: 4 of 4 operations have not ended' in r.stderr
    assert 'rank 0: a (line 3): recv 8b from 1 tag 3: no message came' in r.stderr
    j = json.loads(goal('sim', path, '--json').stdout)
    assert not j['complete'] and [s['label'] for s in j['stuck']] == ['a', 'c']


def test_a_message_that_nobody_receives_fails(text):
    r = goal('sim', text('num_ranks 2\nrank 0 {\ns: send 8b to 1 tag 0\n}\nrank 1 {\n}\n'))
    assert r.returncode == 1 and 'never received' in r.stderr and 'deadlock' not in r.stderr


def test_many_stuck_operations_are_counted(text):
    lines = '\n'.join(f'l{i}: recv 1b from 1 tag {i}' for i in range(50))
    path = text(f'num_ranks 2\nrank 0 {{\n{lines}\n}}\nrank 1 {{\n}}\n')
    r = goal('sim', path)
    assert r.stderr.count('no message came') == 20 and 'and 30 more' in r.stderr
    j = json.loads(goal('sim', path, '--json').stdout)
    assert len(j['stuck']) == 20 and j['stuck_more'] == 30


@pytest.mark.parametrize('args, says', [
    ((), 'no FILE or PATTERN'),
    (('ring-allreduce',), 'no number of ranks'),
    (('ring-alreduce', '-n', '4'), "did you mean 'ring-allreduce'"),
    (('ping-pong', '-n', '2', '-L', 'fast'), "-L cannot be 'fast'"),
    (('ping-pong', '-n', '2', '-G', '-1'), "-G cannot be '-1'"),
    (('ping-pong', '-n', '2', '--preset', 'best'), 'no preset best'),
    (('ping-pong', '-n', '2', '--timeline-ranks', '5-3'), '--timeline-ranks'),
    (('ping-pong', 'ring-bcast', '-n', '2'), 'one file or pattern'),
])
def test_sim_refuses_what_cannot_be(args, says):
    r = goal('sim', *args)
    assert r.returncode == 2 and r.stdout == '' and says in r.stderr


def test_options_of_patterns_are_not_for_files(text):
    r = goal('sim', text(dissemination(2)), '-n', '4')
    assert r.returncode == 2 and 'options of patterns' in r.stderr


def test_the_largest_numbers_of_cpus_and_nics(text):
    assert sim(text('num_ranks 1\nrank 0 {\nl1: calc 5 cpu 65535\n}\n'))['end_ps'] == 5000
    path = text('num_ranks 2\nrank 0 { send 8b to 1 cpu 65535 nic 65535; calc 1 }\n'
                'rank 1 { recv 8b from 0 }\n')
    assert sim(path)['rank_end_ps'] == [1500_000, 5542_000]


def test_a_mistake_in_a_text_is_told_with_its_line(text):
    r = goal('sim', text('num_ranks 1\nrank 0 {\nl1: clac 5\n}\n'))
    assert r.returncode == 1 and 'test.goal:3:' in r.stderr


def test_an_interrupt_prints_what_is_known():
    p = subprocess.Popen([str(SLUICE), 'goal', 'sim', 'ring-allreduce', '-n', '3000', '-s', '24K',
                          '--path-memory', '0'],
                         env=plain_env(), text=True, stdout=subprocess.PIPE, stderr=subprocess.PIPE)
    time.sleep(1.5)
    p.send_signal(signal.SIGINT)
    out, err = p.communicate(timeout=50)
    assert p.returncode == 1 and 'interrupted' in err


# ---- timelines ---------------------------------------------------------------------------------------------

def test_a_timeline_has_spans_and_arrows_of_the_ranks_asked_for(tmp_path):
    out = tmp_path / 'timeline.json'
    j = sim('dissemination-allreduce', '-n', '64', '-s', '8', '-C', '1', '--timeline', out,
            '--timeline-ranks', '0-15')
    events = json.loads(out.read_text())['traceEvents']
    spans = [e for e in events if e['ph'] == 'X']
    assert {e['pid'] for e in spans} == set(range(16))
    assert len(spans) == 16 * 6 * 3
    assert max(e['ts'] + e['dur'] for e in spans) == pytest.approx(j['end_ps'] / 1e6)
    starts = {e['id'] for e in events if e['ph'] == 's'}
    ends = {e['id'] for e in events if e['ph'] == 'f'}
    assert starts == ends and len(starts) == 15 + 14 + 12 + 8
    assert sum(e['ph'] == 'M' for e in events) == 16


def test_a_timeline_that_cannot_be_written_is_told():
    r = goal('sim', 'ping-pong', '-n', '2', '--timeline', '/no/such/folder/x')
    assert r.returncode == 1 and 'cannot write' in r.stderr


@pytest.mark.parametrize('verb', ['gen', 'sim'])
def test_every_option_is_in_the_manual(verb):
    text = (PREFIX / 'share/man/man1/sluice-goal-sim.1').read_text().replace('\\-', '-')
    usage = goal(verb, '--help').stdout
    for flag in set(re.findall(r'(?<![\w-])--?[A-Za-z][a-z-]*', usage)):
        assert flag in text, flag


# ---- one-sided operations
# ------------------------------------------------------------------------------------

def ends(text, **options):
    return [end / 1000 for end in sim(text, *(f'--{k}={v}' for k, v in options.items()))['rank_end_ps']]


def test_cards_pass_on_without_their_cpu(text):
    """L + M + D from card to card, as LogGOPSim2 counts: M = 100, D = 3 ns; o = 1500, L = 2500, G = 6."""
    relay = text('''num_ranks 3
rank 0 { put 11b to 1 tag 4 }
rank 1 { a: append 11b to priority_list allowed 0 ct 0 use_once tag 4
         b: tput 11b to 2 when 0 reaches 1 ct 1 tag 5; b requires a; c: calc 70000; c requires b }
rank 2 { a: append 11b to priority_list allowed any ct 7 tag any
         b: test 7 for 1; c: calc 10; b requires a; c requires b }
''')
    hop = 2500 + 60 + 100 + 3
    assert ends(relay) == [1500, 73000, 1500 + 3 + hop + 3 + hop + 10]


def test_a_get_comes_back(text):
    fetch = text('''num_ranks 2
rank 0 { append 8b to priority_list allowed 1 ct 0 }
rank 1 { a: get 101b from 0 ct 3; b: test 3 for 1; b requires a }
''')
    request, answer = 2500 + 4 * 6 + 100, 2500 + 600 + 100 + 3
    assert ends(fetch) == [1500, 1500 + 3 + request + answer]


def test_what_nobody_has_allowed_is_lost_and_what_an_overflow_list_took_is_found(text):
    late = '''num_ranks 2
rank 0 { put 1b to 1 tag 4 }
rank 1 { OVERFLOW
         a: calc 9000; b: append 1b to priority_list allowed 0 ct 0 use_once tag 4; b requires a
         c: test 0 for 1; c requires b }
'''
    lost = goal('sim', text(late.replace('OVERFLOW', '')))
    assert lost.returncode == 1 and '1 of 4 operations' in lost.stderr
    assert 'c (line 5): test: its counter did not reach its value' in lost.stderr
    assert '1 puts and gets arrived without a matching entry' in lost.stdout
    found = late.replace('OVERFLOW', 'append 1b to overflow_list allowed any ct 1 tag any')
    assert ends(text(found)) == [1500, 1500 + 9000 + 1500 + 1500]


# ---- noise and matching ------------------------------------------------------------------------------------

@pytest.fixture
def noise(text):
    """25 us of each millisecond, as in doc/goal-simulator.md."""
    lines = [f'{i * 1000000 + 1000}\t25000' for i in range(100)]
    return text('# from Netgauge\n' + '\n'.join(lines) + '\n100000000 0\n', 'noise')


def test_noise_is_the_same_with_the_same_seed_and_worse_when_ranks_have_their_own(noise):
    pattern = 'dissemination-allreduce', '-n', '512'
    quiet, own = sim(*pattern), sim(*pattern, '--noise', noise)
    assert own == sim(*pattern, '--noise', noise, '--seed', '1')
    assert own['rank_end_ps'] != sim(*pattern, '--noise', noise, '--seed', '2')['rank_end_ps']
    together = sim(*pattern, '--noise', noise, '--noise-cosched')
    assert quiet['end_ps'] <= together['end_ps'] < own['end_ps']
    assert quiet['noise_ps'] == 0 and own['noise_ps'] >= 25_000_000
    path = own['critical_path']
    assert path['noise_ps'] > 0
    parts = 'L', 'o', 'O', 'g', 'G', 'local', 'noise', 'waiting', 'before'
    assert path['total_ps'] == sum(path[f'{k}_ps'] for k in parts)
    said = goal('sim', *pattern, '--noise', noise).stdout
    assert f'OS noise of {noise}, each rank its own, seed 1:' in said
    assert 'OS noise ' in said.split('critical path')[1]


@pytest.mark.parametrize('content, says', [
    ('5 1\n4 1\n', 'noise:2: it begins before the line above'),
    ('5\n', 'noise:1: a line has two numbers'),
    ('5 1 1\n', 'noise:1: a line has two numbers'),
    ('# nothing\n', 'no detours'),
    ('0 5\n5 5\n', 'no time between its detours'),
    ('-1 5\n', 'a line has two numbers'),
    ('1 1e99\n', 'a line has two numbers'),
])
def test_wrong_noise_is_refused_with_its_line(text, content, says):
    program = text('num_ranks 1\nrank 0 { calc 5 }\n')
    for source in ('ping-pong', '-n', '2'), (program,):
        r = goal('sim', *source, '--noise', text(content, 'noise'))
        assert r.returncode == 1 and r.stderr.count('\n') == 1 and says in r.stderr and not r.stdout


def test_noise_may_have_long_comments_and_must_be_a_file(text, tmp_path):
    path = text('# ' + 'x ' * 5000 + '\n\n1 2\n', 'noise')
    assert sim('ping-pong', '-n', '2', '--noise', path)['noise_ps'] > 0
    r = goal('sim', 'ping-pong', '-n', '2', '--noise', tmp_path)
    assert r.returncode == 1 and 'Is a directory' in r.stderr


@pytest.mark.parametrize('args, says', [
    (('--noise-cosched',), 'needs --noise'),
    (('--seed', 'x'), "--seed cannot be 'x'"),
    (('--matching', 'm', '--model', 'atlahs'), '--matching counts in the model loggopsim only'),
])
def test_misuse_of_noise_and_matching_is_refused(args, says):
    r = goal('sim', 'ping-pong', '-n', '2', *args)
    assert r.returncode == 2 and says in r.stderr


def test_matching_is_written_by_rank_and_summed(text, tmp_path):
    receives = ''.join(f'recv 8b from 0 tag {tag}\n' for tag in range(5))
    path = text('num_ranks 2\nrank 0 {\nsend 8b to 1 tag 4\nsend 8b to 1 tag 9\n}\nrank 1 {\n' + receives +
                'a: calc 99999 cpu 1\nb: recv 8b from 0 tag 9\nb requires a\n}\n')
    out = tmp_path / 'table'
    r = goal('sim', path, '--matching', out)
    assert r.returncode == 1
    head, *rows = [line.split('\t') for line in out.read_text().splitlines()]
    first, second = (dict(zip(head, map(int, row))) for row in rows)
    assert first['rank'] == 0 and not any(first[k] for k in head[1:])
    assert second == {'rank': 1,
                      'posted_hits': 1, 'posted_misses': 1, 'posted_compared': 9, 'posted_compared_most': 5,
                      'posted_most': 5,
                      'unexpected_hits': 1, 'unexpected_misses': 5, 'unexpected_compared': 1,
                      'unexpected_compared_most': 1, 'unexpected_most': 1}
    assert re.search(r'posted receives +2 +1 +4.5, at most 5 +5\n', r.stdout)
    assert '\n\n\n' not in r.stdout
    assert '\n\n\n' not in goal('sim', path, '--matching', out, '--path', '0').stdout
    got = json.loads(goal('sim', path, '--matching', out, '--json').stdout)
    assert got['matching']['unexpected'] == {'hits': 1, 'misses': 5, 'compared': 1, 'compared_most': 1,
                                             'most': 1}
    assert got['unexpected'] == 1 and got['unexpected_ps'] > 0
    r = goal('sim', path, '--matching', tmp_path / 'no' / 'table')
    assert r.returncode == 1 and 'cannot write' in r.stderr


def test_longer_messages_have_parameters_of_their_own(tmp_path):
    above = '--above', '4K o 100', '--above', '4K L 700', '--above', '1M G 1', '-o', '1500'
    short = 'ping-pong', '-n', '2', '-s', '4K'
    assert sim(*short, *above)['end_ps'] == sim(*short)['end_ps']
    for size, like in ('5K', ('-o', '100', '-L', '700')), ('2M', ('-o', '100', '-L', '700', '-G', '1')):
        got = sim('ping-pong', '-n', '2', '-s', size, *above, '--save', tmp_path / 'params')
        assert got['end_ps'] == sim('ping-pong', '-n', '2', '-s', size, *like)['end_ps']
        again = sim('ping-pong', '-n', '2', '-s', size, '--params', tmp_path / 'params')
        assert again['end_ps'] == got['end_ps'] and again['parameters']['above'] == got['parameters']['above']
    assert got['parameters']['above'] == [{'bytes': 4096, 'L_ps': 700000, 'o_ps': 100000},
                                          {'bytes': 1048576, 'G_ns': '1'}]
    assert 'above 4K bytes: L=700 o=100 ns\n' in goal('sim', 'ping-pong', '-n', '2', *above).stdout


@pytest.mark.parametrize('value', ['4K o', '4K S 5', 'x o 5', '4K o -1', '4K o 1 1', '4K oo 1', ''])
def test_wrong_classes_of_lengths_are_refused(value):
    r = goal('sim', 'ping-pong', '-n', '2', '--above', value)
    assert r.returncode == 2 and f"--above cannot be '{value}'" in r.stderr
