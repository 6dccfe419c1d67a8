# SPDX-License-Identifier: BSD-3-Clause
"""Programs for LogGOPSim and ATLAHS: sluice goal print and compile --loggopsim; and 10,000 mutants of all
that `sluice goal` reads. Run alone: ./dev check -k loggopsim; all mutants: --complete"""
import json
import random
import subprocess

import pytest

from cli import ROOT, SLUICE, plain_env, sluice

TEXT = '''num_ranks 3
rank 0 { a: calc 5 cpu 1; b: send 10b to 1 tag 3 nic 2 from user0; c: calc 7; b requires a; c irequires b }
rank 1 { recv 10b from -1 tag -1 into user1; s: stamp into user2; add i8 4b from user0, user1 into user0 }
rank 2 { nop }
'''
PLAIN = '''num_ranks 3

rank 0 {
l0: calc 5 cpu 1
l1: send 10b to 1 tag 3 nic 2
l2: calc 7
l1 requires l0
l2 irequires l1
}

rank 1 {
l0: recv 10b from 4294967295 tag 4294967295
l1: calc 0
l2: calc 0
}

rank 2 {
l0: calc 0
}
'''


def test_a_program_is_printed_for_txt2bin():
    done = sluice('goal', 'print', '--loggopsim', '-', input=TEXT)
    assert (done.returncode, done.stdout, done.stderr) == (0, PLAIN, '')


def test_the_binary_holds_what_the_text_says(tmp_path):
    assert sluice('goal', 'compile', '--loggopsim', '-', '-o', tmp_path / 'x.bin', input=TEXT).returncode == 0
    assert (tmp_path / 'x.bin').read_bytes()[:14] == bytes([127, 16, 0, 0, 0, 0, 0, 0, 3, 0, 0, 0, 1, 2])
    assert sluice('goal', 'print', tmp_path / 'x.bin').stdout == \
        sluice('goal', 'print', '-', input=PLAIN).stdout
    piped = subprocess.run([SLUICE, 'goal', 'compile', '--loggopsim', '-', '-o', '-'], input=TEXT.encode(),
                           capture_output=True)
    assert piped.stdout == (tmp_path / 'x.bin').read_bytes()


@pytest.mark.parametrize('pattern', ['ring-allreduce', 'bruck-alltoall', 'stencil-2d', 'binomial-scatter'])
def test_patterns_take_the_same_time(pattern, tmp_path):
    gen = [pattern, '-n', 6, '-s', 5000 if 'all' not in pattern else 6000]
    sluice('goal', 'gen', *gen, '-o', tmp_path / 'x.goal')
    done = sluice('goal', 'compile', '--loggopsim', tmp_path / 'x.goal', '-o', tmp_path / 'x.bin')
    assert done.returncode == 0, done.stderr
    ends = [json.loads(sluice('goal', 'sim', tmp_path / name, '--json').stdout)['rank_end_ps']
            for name in ('x.goal', 'x.bin')]
    assert ends[0] == ends[1]


@pytest.mark.parametrize('text, options, message', [
    ('put 8b to 0', [], "rank 0: 'put 8b to 0 tag 0': one-sided operations are not known there"),
    ('calc 5 cpu 256', [], "rank 0: 'calc 5 cpu 256': cpu and nic are at most 255 there"),
    ('calc 5', ['-o', '/nonexistent/x'], 'cannot write /nonexistent/x')])
def test_what_they_cannot_hold_is_told(text, options, message, tmp_path):
    done = sluice('goal', 'compile', '--loggopsim', '-', *(options or ['-o', tmp_path / 'x']),
                  input=f'num_ranks 1\nrank 0 {{ {text} }}\n')
    assert done.returncode == 1 and message in done.stderr and len(done.stderr.splitlines()) == 1, done.stderr


# ---- mutants -----------------------------------------------------------------------------------------------


def seeds(folder):
    """(file, commands that read it)"""
    text = folder / 'x.goal'
    sluice('goal', 'gen', 'ring-allreduce', '-n', 3, '-s', 96, '-o', text)
    for options, name in ([], 'x.prog'), (['--loggopsim'], 'x.bin'):
        sluice('goal', 'compile', *options, text, '-o', folder / name)
    params = folder / 'x.params'
    params.write_text('L 2500\no 1500\nnode cpus 2\nnode L 100\nnode o 20\nnode S 4K\n'
                      'node 8 140 140 1 1\n')
    verbs = [('check',), ('check', '--json'), ('sim', '--json'), ('print',)]
    yield from ((folder / name, [('goal', *verb, folder / 'm') for verb in verbs])
                for name in ('x.goal', 'x.prog', 'x.bin'))
    yield params, [('goal', 'sim', 'ping-pong', '-n', '2', '--params', folder / 'm')]
    for path in sorted((ROOT / 'examples/goal').glob('*.goal')):
        yield path, [('goal', 'check', '--json', folder / 'm')]


def mutant(r, data):
    bad = bytearray(data)
    for _ in range(r.choice([1, 1, 2, 5])):
        at = r.randrange(len(bad) + 1)
        kind = r.randrange(4)
        if kind == 0 and at < len(bad):
            bad[at] = r.randrange(256)
        elif kind == 1:
            bad[at:at] = r.choice([b'0', b'-', b' ', b'\n', b'{', b'99999999999', bad[at:at + 20]])
        elif kind == 2:
            del bad[at:at + r.choice([1, 4, 60])]
        elif at + 4 < len(bad):
            bad[at:at + 4] = r.choice([b'\xff\xff\xff\xff', b'\0\0\0\0', b'\0\0\0\x80'])
    return bytes(bad)


def run_mutants(folder, count):
    r, all_seeds, statuses = random.Random(7), list(seeds(folder)), {0: 0, 1: 0}
    for n in range(count):
        seed, commands = all_seeds[n % len(all_seeds)]
        (folder / 'm').write_bytes(mutant(r, seed.read_bytes()))
        command = r.choice(commands)
        done = subprocess.run([SLUICE, *command], capture_output=True, env=plain_env(), timeout=60)
        assert done.returncode in statuses, (n, seed, done)
        assert done.returncode == 0 or done.stderr or done.stdout, (n, seed, done)
        if '--json' in command and done.stdout:
            json.loads(done.stdout)
        statuses[done.returncode] += 1
    assert min(statuses.values()) > count // 20


def test_mutants_of_what_goal_reads_are_read_or_refused(tmp_path):
    run_mutants(tmp_path, 300)


@pytest.mark.complete
def test_ten_thousand_mutants(tmp_path):
    run_mutants(tmp_path, 10000)
