# SPDX-License-Identifier: BSD-3-Clause
"""Programs for LogGOPSim and ATLAHS: sluice goal print and compile --loggopsim.
Run alone: ./dev check -k loggopsim"""
import json
import struct
import subprocess

import pytest

from cli import SLUICE, sluice

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
    for verb in 'compile', 'print':
        done = sluice('goal', verb, '--loggopsim', '-', *(options or ['-o', tmp_path / 'x']),
                      input=f'num_ranks 1\nrank 0 {{ {text} }}\n')
        assert done.returncode == 1 and message in done.stderr, done.stderr
        assert len(done.stderr.splitlines()) == 1, done.stderr


def test_ranks_cannot_share_a_schedule(tmp_path):
    """A file of 50 KB would become a program of gigabytes."""
    ranks, calc = 1000, struct.pack('<IBIQIBBIIII', 0, 3, 0, 5, 0, 0, 0, 0, 0, 0, 0)
    schedule = struct.pack('<III', 1000, 1, 0) + 1000 * calc
    begin = 6 + 16 * ranks
    place = struct.pack('<QQ', begin, begin + len(schedule))
    (tmp_path / 'shared').write_bytes(struct.pack('<QIBB', 4223, ranks, 0, 0) + ranks * place + schedule)
    r = sluice('goal', 'check', tmp_path / 'shared')
    assert r.returncode == 1 and r.stderr.endswith(': binary file of LogGOPSim: rank 1: damaged\n'), r.stderr
