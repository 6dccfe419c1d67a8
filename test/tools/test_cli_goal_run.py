# SPDX-License-Identifier: BSD-3-Clause
"""sluice goal run: its ranks are processes that it starts. Run alone: ./dev check -k cli_goal_run"""
import json
import os
import pathlib
import resource
import signal
import subprocess
import time

import pytest

from cli import ROOT, SLUICE, compile_c, limited, plain_env, sluice

# deadlock does not end; halo and workers receive from any rank, so what they leave is not one thing
EXAMPLES = sorted(p for p in (ROOT / 'examples/goal').glob('*.goal') if p.stem not in ('deadlock', 'halo',
                                                                                       'workers'))
PAIR = '''num_ranks 2
rank 0 { a: send 100b to 1 tag 3 from user0; b: recv 5000b from 1 tag 4 into user0+100 }
rank 1 { a: recv 100b from 0 tag 3 into user1; b: send 5000b to 0 tag 4 from user0; b requires a }
'''


def run(text, *options, **more):
    return sluice('goal', 'run', '-', *options, input=text, **more)


@pytest.mark.parametrize('example', EXAMPLES, ids=lambda p: p.stem)
def test_the_examples_run_with_the_right_data(example):
    done = sluice('goal', 'run', example, '--verify')
    assert done.returncode == 0 and done.stderr == '', done.stderr
    assert all('data verified' in line for line in done.stdout.splitlines())


def test_times_operations_and_json():
    done = run(PAIR, '--verify', '--times', '5', '--ops', '--json')
    assert done.returncode == 0 and done.stderr == ''
    told = json.loads(done.stdout)
    assert (told['ranks'], told['times'], told['verified']) == (2, 5, True)
    for result in told['results']:
        assert result['runs'] == 5 and result['error'] == ''
        assert result['least_us'] <= result['low_us'] <= result['median_us'] <= result['high_us']
        assert all(op['begin_ns'] <= op['end_ns'] for op in result['ops'])
    assert [op['text'] for op in told['results'][1]['ops']] == ['recv 100b from 0 tag 3 into user1+0',
                                                                'send 5000b to 0 tag 4 from user0+0']


NODE = '''node cpus 2
node start 1000
node L 100
node o 20
node S 4K
node 8 140 140 1 1
node 4K 1140 1140 1 1
node 8K 2140 4140 1 1
'''


def test_the_prediction_stands_beside_the_times(tmp_path):
    (tmp_path / 'node').write_text(NODE)
    done = run(PAIR, '--times', '5', '--params', tmp_path / 'node', '--json')
    assert done.returncode == 0 and done.stderr == '', done.stderr
    told = json.loads(done.stdout)
    # two messages, one after the other; the second, of 5000 bytes, is copied by rank 0
    second = 1140 + (5000 - 4096) / 4096 * 1000
    first = 140 + (100 - 8) / 4088 * 1000
    assert told['all']['predicted_us'] == pytest.approx((1000 + first + second) / 1000, abs=.002)
    assert 'predicted 2.523' in run(PAIR, '--params', tmp_path / 'node').stdout


@pytest.mark.parametrize('text, message', [
    ('L 5\n', 'has no parameters of a node; see: sluice goal sim --measure --save'),
    (NODE + 'node 4K 1 1 1 1\n', "node:9: 'node 4K 1 1 1 1' is no parameter"),
    (NODE.replace('cpus 2', 'cpus 1'), "node:1: 'node cpus 1' is no parameter"),
    (NODE.replace('cpus 2', 'cpus 2147483648'), "node:1: 'node cpus 2147483648' is no parameter"),
    (NODE.replace('node cpus 2\n', ''), "lines 'node BYTES ...' need a line 'node cpus N'")])
def test_a_wrong_file_of_parameters_is_told_before_the_run(text, message, tmp_path):
    (tmp_path / 'node').write_text(text)
    done = run(PAIR, '--params', tmp_path / 'node')
    assert done.returncode == 1 and message in done.stderr and done.stdout == '', done


def test_wrong_data_is_found_with_its_place(tmp_path):
    """A memcpy that spoils one byte of each block of 4093."""
    spoil = compile_c(tmp_path / 'spoil.so', '''
#include <stddef.h>
void *memcpy(void *to, const void *from, size_t n)
{
	for (size_t i = 0; i < n; i++)
		((volatile char *)to)[i] = ((const char *)from)[i];
	if (n == 4093)
		((char *)to)[17] ^= 1;
	return to;
}
''', '-shared', '-fPIC', '-fno-builtin', '-fno-tree-loop-distribute-patterns')
    text = 'num_ranks 2\nrank 0 { calc 1 }\nrank 1 { copy 8b from user0 into user0+4085 }\n'
    assert run(text, '--verify').returncode == 0
    done = run(text, '--verify', env={'LD_PRELOAD': spoil})
    assert done.returncode == 1
    assert done.stderr == 'sluice: goal run: rank 1: wrong data at byte 17 of buffer 0, in run 1\n'


@pytest.mark.parametrize('text, options, says', [
    (PAIR, ('-n', '3'), 'the program is one of 2 ranks, not of 3'),
    ('num_ranks 300\n' + ''.join(f'rank {r} {{ }}\n' for r in range(300)), (),
     '300 ranks are too many to run on one machine; see: sluice goal sim'),
    ('num_ranks 1\nrank 0 { recv 8b from 0 }\n', ('--verify',),
     'the program does not end; see: sluice goal check'),
    ('num_ranks 1\nrank 0 { stamp into user0 }\n', ('--verify',), 'its data cannot be verified'),
    ('num_ranks 1\nrank 0 { nop; put 8b to 0 }\n', (), "rank 0: 'put 8b to 0 tag 0' is one-sided"),
    ('num_ranks 1\nrank 0 { copy 2000000000b from user0 into user1 }\n', (), 'more than 1 GiB of memory'),
])
def test_what_cannot_be_run_is_refused_in_one_line(text, options, says):
    done = run(text, *options)
    assert done.returncode == 1 and done.stdout == ''
    assert says in done.stderr and done.stderr.count('\n') == 1


@pytest.mark.parametrize('flags, env', [(['--timeout', '200'], {}), ([], {'SLUICE_GOAL_TIMEOUT': 200})],
                         ids=['flag', 'variable'])
def test_a_deadlock_ends_with_the_operations_that_are_stuck(flags, env):
    done = run('''num_ranks 2
rank 0 { a: calc 1; b: recv 8b from 1 tag 3; c: send 8b to 1 tag 4; b requires a; c requires b }
rank 1 { a: calc 1; b: recv 8b from 0 tag 4; c: send 8b to 0 tag 3; b requires a; c requires b }
''', *flags, env=env)
    assert done.returncode == 1 and 'no progress for 200 ms' in done.stderr
    assert 'rank 0: Connection timed out' in done.stderr and 'rank 1: Connection timed out' in done.stderr
    stuck = {line.split('waits: ')[1] for line in done.stderr.splitlines() if 'waits: ' in line}
    assert done.stdout == 'rank 0: no run has ended\nrank 1: no run has ended\n'
    # whoever gives up first says so to the other
    assert stuck and stuck <= {'rank 0 op 1: recv 8b from 1 tag 3: no message',
                               'rank 1 op 1: recv 8b from 0 tag 4: no message'}


def test_profile_has_the_times_of_every_operation(tmp_path):
    done = run(PAIR, '--times', '2', '--profile', tmp_path / 'p')
    assert done.returncode == 0, done.stderr
    files = sorted(tmp_path.glob('p.*.json'))
    assert [f.name.split('.')[1] for f in files] == ['0', '1']
    events = json.loads(files[0].read_text())['traceEvents']
    assert [e['name'] for e in events if e['ph'] == 'X'] == ['run', 'send', 'recv'] * 2


def test_a_rank_that_has_ended_its_part_is_not_waited_for():
    done = run('num_ranks 2\nrank 0 { recv 8b from 1 tag 3 }\nrank 1 { calc 1 }')
    assert done.returncode == 1
    assert 'rank 1 has left this group of 2; operation 0 of rank 0 depends on it' in done.stderr
    assert 'rank 0: no run has ended\n' in done.stdout and 'rank 1: 1 run, ' in done.stdout


def children(pid):
    return [int(word) for word in pathlib.Path(f'/proc/{pid}/task/{pid}/children').read_text().split()]


def test_a_killed_rank_ends_the_others(tmp_path):
    text = tmp_path / 'long.goal'
    text.write_text('num_ranks 3\nrank 0 { recv 8b from 1 }\n'
                    'rank 1 { a: calc 1000000000000; b: send 8b to 0; c: send 8b to 2; b requires a; c '
                    'requires a }\n'
                    'rank 2 { recv 8b from 1 }\n')
    tool = subprocess.Popen([SLUICE, 'goal', 'run', text], stdout=subprocess.PIPE, stderr=subprocess.PIPE,
                            text=True,
                            env=plain_env())
    try:
        deadline = time.monotonic() + 50
        while len(children(tool.pid)) < 3:
            assert time.monotonic() < deadline and tool.poll() is None
            time.sleep(0.01)
        os.kill(children(tool.pid)[1], signal.SIGKILL)
        _, err = tool.communicate(timeout=50)
    finally:
        tool.kill()
    assert tool.returncode == 1 and 'rank 1 was killed by signal 9' in err


def test_posted_receives_are_found_without_search(tmp_path):
    """Each message is for the receive that was posted last. A search would need 20 s; without one it is
    .2 s. On one CPU, as a rank that waits uses another one while its partner does not get any."""
    n = 80000
    text = tmp_path / 'posted.goal'
    text.write_text('num_ranks 2\nrank 0 {\n' + ''.join(f'send 8b to 1 tag {i}\n' for i in range(n)) +
                    '}\nrank 1 {\n' + ''.join(f'recv 8b from 0 tag {n - 1 - i}\n' for i in range(n)) + '}\n')
    cpu = min(os.sched_getaffinity(0))
    before = resource.getrusage(resource.RUSAGE_CHILDREN)
    done = sluice('goal', 'run', text, '--verify', preexec_fn=lambda: os.sched_setaffinity(0, [cpu]))
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    assert done.returncode == 0 and done.stdout.count('data verified') == 2, done.stderr
    assert after.ru_utime - before.ru_utime < 5


LOCAL = 'num_ranks 2\n' + ''.join(f'rank {r} {{\n' + 'calc 1\n' * 50000 + '}\n' for r in range(2))


def test_a_limit_of_address_space_leaves_room_for_the_ranks():
    done = run(LOCAL, preexec_fn=limited(400000))
    assert (done.returncode, done.stderr) == (0, '')


def test_a_limit_below_the_memory_of_all_ranks_is_told():
    """Each rank maps its own arena and not that of the other."""
    text = 'num_ranks 2\n' + ''.join(f'rank {r} {{\n' + 'calc 1\n' * 1000000 + '}\n' for r in range(2))
    done = run(text, preexec_fn=limited(500000))
    assert done.returncode == 1
    says = done.stderr.splitlines()
    assert says and all('ulimit -v allows 500000 KiB' in line for line in says), says


@pytest.mark.parametrize('kilobytes, says', [(60000, 'ulimit -v'), (200000, 'ulimit -v allows 200000 KiB')])
def test_a_lack_of_address_space_is_the_only_cause_that_is_told(kilobytes, says):
    """Two ranks' arenas get half of the limit: 60 MB are more than one of them."""
    text = 'num_ranks 2\nrank 0 { nop }\nrank 1 { copy 60000000b from user0 into user1 }\n'
    done = run(text, preexec_fn=limited(kilobytes))
    assert done.returncode == 1 and 'signal' not in done.stderr
    assert done.stderr and all(says in line for line in done.stderr.splitlines()), done.stderr
