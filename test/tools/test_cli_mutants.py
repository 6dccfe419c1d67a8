# SPDX-License-Identifier: BSD-3-Clause
"""Mutants of what the tools read: programs as text, compiled and in LogGOPSim's binary, parameters, noise,
traces. No mutant crashes a command or holds it up, who refuses one says why, and what the commands say
about one agrees. Ten thousand of each: ./dev check tools --complete -k ten_thousand. Under ASan and UBSan:
compile it (ninja -C build/asan tools/sluice/sluice) and set MUTANTS_TOOL=build/asan/tools/sluice/sluice.
MUTANTS_SEED=N gives others, MUTANTS=N so many.
"""
import json
import os
import random
import re
import subprocess
import xml.etree.ElementTree as ElementTree

import pytest

import liballprof
from cli import PROGRAMS, ROOT, SLUICE, plain_env, sluice
from support.mpi import need
from test_cli_trace_goal import (COMM, DONE, END, FLUSHED, IRECV, ISEND, ONE_SIDED, PARTITIONED, READY, RECV,
                                 SEND, collective, entry, header, part)

TOOL = os.path.abspath(os.environ.get('MUTANTS_TOOL', SLUICE))
FEW = int(os.environ.get('MUTANTS', 60))
MANY = int(os.environ.get('MUTANTS', 10000))
ENV = {**plain_env(), 'ASAN_OPTIONS': 'detect_leaks=0:exitcode=99:allocator_may_return_null=1',
       'UBSAN_OPTIONS': 'print_stacktrace=1:halt_on_error=1:exitcode=99'}
PLACE = re.compile(r'(standard input|mutant[.\w]*)(:\d+(:\d+)?)?: .')

MIXED = '''num_ranks 3
rank 0 {
a: calc 500 cpu 1
b: send 10b to 1 tag 3 nic 2 from user0
c: calc 7
d: send 70000b to 2 tag 1 from user0
b requires a
c irequires b
d requires c
}
rank 1 {
a: recv 10b from 0 tag 3 into user1
b: send 8b to 2 tag 5 match 2 from user1
s: add i8 4b from user0, user1 into user0
b requires a
s requires b
}
rank 2 {
a: recv 8b from -1 tag -1 match 2 into user1
b: recv 70000b from 0 tag 1 into user0
n: nop
n requires a
b irequires a
}
'''
TEXTS = ['test/tools/goal/dialect.goal', 'test/tools/goal/extended.goal', 'test/tools/goal/onesided.goal',
         *(f'examples/goal/{name}.goal' for name in ('allreduce', 'halo', 'pingpong', 'workers'))]
NUMBERS = [b'0', b'1', b'2', b'3', b'8', b'7000', b'65536', b'4294967295', b'4294967296', b'-1', b'100000',
           b'18446744073709551615', b'99999999999999999999']


# ---- mutants -----------------------------------------------------------------------------------------------


def damaged(r, data):
    """Some bytes are others, are missing, or are too many."""
    bad = bytearray(data)
    for _ in range(r.choice([1, 1, 2, 5])):
        at = r.randrange(len(bad) + 1)
        kind = r.randrange(4)
        if kind == 0 and at < len(bad):
            bad[at] = r.choice([r.randrange(256), bad[at] ^ 1 << r.randrange(8)])
        elif kind == 1:
            bad[at:at] = r.choice([b'0', b'-', b' ', b'\n', b'{', b'99999999999', bad[at:at + 20]])
        elif kind == 2:
            del bad[at:at + r.choice([1, 4, 60])]
        elif at + 4 < len(bad):
            bad[at:at + 4] = r.choice([b'\xff\xff\xff\xff', b'\0\0\0\0', b'\0\0\0\x80', b'\1\0\0\0'])
    return bytes(bad)


def changed(r, text):
    """Numbers are others, lines are missing, twice there, or elsewhere: most of these can be read."""
    lines = text.split(b'\n')
    for _ in range(r.choice([1, 1, 2, 4])):
        at = r.randrange(len(lines))
        kind = r.randrange(5)
        if kind < 3:
            numbers = list(re.finditer(rb'-?\b\d+', lines[at]))
            if numbers:
                n = r.choice(numbers)
                lines[at] = lines[at][:n.start()] + r.choice(NUMBERS) + lines[at][n.end():]
        elif kind == 3:
            del lines[at]
        else:
            lines.insert(r.randrange(len(lines) + 1), lines[at])
        if not lines:
            break
    return b'\n'.join(lines)


# ---- commands ----------------------------------------------------------------------------------------------


class Refused(Exception):
    pass


class Trial:
    """Commands on one mutant. Any of them may refuse it, in words that name the file and why."""

    def __init__(self, folder, number):
        self.folder, self.number = folder, number

    def run(self, *args, allowed=(0, 1)):
        done = subprocess.run([TOOL, *(str(a) for a in args)], capture_output=True, env=ENV, timeout=60,
                              cwd=self.folder, text=True, errors='replace')
        self.expect(done.returncode in allowed and 'Sanitizer' not in done.stderr
                    and 'runtime error' not in done.stderr, done)
        return done

    def expect(self, holds, *seen):
        assert holds, (f'mutant {self.number}: {self.folder}', *seen)

    def same(self, what, *values):
        self.expect(all(v == values[0] for v in values), what, *values)

    def first_line(self, done):
        """The first complaint of a command that has refused the mutant."""
        text = done.stderr or done.stdout
        self.expect(PLACE.search(text), 'a refusal without file and reason', done)
        return text[PLACE.search(text).start():].split('\n')[0]


def simulate(trial, file, *options):
    done = trial.run('goal', 'sim', '--json', '--path', 0, *options, file)
    return done, json.loads(done.stdout) if done.stdout else None


def times(result):
    return {key: result[key] for key in ('complete', 'operations', 'operations_ended', 'messages',
                                         'message_bytes', 'lost', 'rank_end_ps')}


def expect_refused_by_all(trial, file, why):
    """Whoever reads it refuses it for the same reason."""
    for args in ('compile', file, '-o', 'never'), ('draw', file, '-o', 'never.svg'), ('sim', file), \
            ('merge', file), ('run', file):
        done = trial.run('goal', *args)
        trial.same(args, 1, done.returncode)
        trial.same(args, why, trial.first_line(done))
    trial.expect(not (trial.folder / 'never').exists(), 'a file of a program that was refused')


def judge_forms(trial, file):
    """Text, canonical text and compiled program are one program."""
    for name in 'mutant.text', 'mutant.prog', 'mutant.again':
        (trial.folder / name).unlink(missing_ok=True)
    trial.same('print', 0, trial.run('goal', 'print', file, '-o', 'mutant.text').returncode)
    trial.same('compile', 0, trial.run('goal', 'compile', file, '-o', 'mutant.prog').returncode)
    text = (trial.folder / 'mutant.text').read_text()
    for other in 'mutant.text', 'mutant.prog':
        trial.same('printed', text, trial.run('goal', 'print', other).stdout)
    trial.run('goal', 'compile', 'mutant.prog', '-o', 'mutant.again')
    trial.same('compiled', *((trial.folder / name).read_bytes() for name in ('mutant.prog', 'mutant.again')))


def judge_times(trial, file, report):
    """All forms take the same time, and end if `check` says so."""
    done, result = simulate(trial, file)
    if not result:
        trial.expect(done.returncode == 1 and done.stderr, done)
        return
    if 'days of simulated time' in done.stderr:
        return
    trial.same('complete', done.returncode == 0, result['complete'])
    trial.same('operations', report['operations'], result['operations'])
    for other in 'mutant.text', 'mutant.prog':
        trial.same(f'times of {other}', times(result), times(simulate(trial, other)[1]))
    if report['one_sided'] or report['receives_from_any']:
        return
    done, eager = simulate(trial, file, '-S', 1 << 62)
    if 'days of simulated time' in done.stderr:
        return
    if eager and report['ok']:
        trial.expect(eager['complete'] and not eager['lost'], 'check: no mistake', report, eager)
        trial.same('messages', (report['messages'], report['bytes']), (eager['messages'],
                                                                       eager['message_bytes']))
    never = [p for p in report['problems'] if re.search('for ever|deadlock|nobody receives', p['message'])]
    if eager and never:
        trial.expect(not eager['complete'] or eager['lost'], never, eager)


def judge_others(trial, r, file, report):
    """One of the other forms and verbs."""
    kind = r.randrange(4)
    if kind == 0:
        done = trial.run('goal', 'draw', 'mutant.prog', '-o', 'mutant.svg')
        trial.expect(done.returncode == 0 or done.stderr, done)
        if not done.returncode:
            ElementTree.parse(trial.folder / 'mutant.svg')
    elif kind == 1:
        done = trial.run('goal', 'merge', file, '-o', 'mutant.merged')
        trial.same('merge', 0, done.returncode)
        a, b = simulate(trial, file)[1], simulate(trial, 'mutant.merged')[1]
        if a and b:
            trial.same('merged', times(a), times(b))
    elif kind == 2:
        done = trial.run('goal', 'print', '--loggopsim', file, '-o', 'mutant.txt')
        trial.same('--loggopsim', done.returncode,
                   trial.run('goal', 'compile', '--loggopsim', file, '-o', 'mutant.bin').returncode)
        if done.returncode:
            trial.expect(len(done.stderr.splitlines()) == 1, done)
            return
        a, b, c = (simulate(trial, name)[1] for name in (file, 'mutant.txt', 'mutant.bin'))
        if a and b and c:
            trial.same('for LogGOPSim', *(times(x) for x in (a, b, c)))
    elif report['ok'] and not report['one_sided'] and is_small(trial, report):
        done = trial.run('goal', 'run', file, '--timeout', 20000)
        trial.expect(done.returncode == 0 or report['receives_from_any'] or 'GiB of memory' in done.stderr,
                     'check: no mistake', report, done)


def is_small(trial, report):
    """May its ranks be started here, and is their computing short?"""
    calcs = re.findall(r'calc (\d+)', (trial.folder / 'mutant.text').read_text())
    return report['ranks'] <= 4 and report['bytes'] < 1 << 20 and sum(map(int, calcs)) < 10**7


def judge(trial, r, file):
    """Returns: was it read?"""
    checked = trial.run('goal', 'check', '--json', file)
    report = json.loads(checked.stdout)[0]
    trial.same('check', checked.returncode, 1 - report['ok'])
    trial.expect(report['ok'] or report['problems'], 'a mistake that is not told', report)
    printed = trial.run('goal', 'print', file)
    if printed.returncode:
        trial.expect(not report['ok'], 'print refuses what check allows', printed)
        expect_refused_by_all(trial, file, trial.first_line(printed))
        return False
    judge_forms(trial, file)
    judge_times(trial, file, report)
    judge_others(trial, r, file, report)
    return True


# ---- programs ----------------------------------------------------------------------------------------------


def programs(folder):
    """(content, how it is changed)"""
    sluice('goal', 'gen', 'ring-allreduce', '-n', 3, '-s', 96, '-o', folder / 'ring.goal')
    (folder / 'mixed.goal').write_text(MIXED)
    for text in *(ROOT / name for name in TEXTS), folder / 'ring.goal', folder / 'mixed.goal':
        data = text.read_bytes()
        yield data, damaged
        yield from [(data, changed)] * 3
        for options in [], ['--loggopsim']:
            made = sluice('goal', 'compile', *options, text, '-o', folder / 'x')
            if made.returncode == 0:
                yield (folder / 'x').read_bytes(), damaged


def run_programs(folder, count, seed=int(os.environ.get('MUTANTS_SEED', 7))):
    r, all_seeds, is_read = random.Random(seed), list(programs(folder)), [0, 0]
    for n in range(count):
        data, change = all_seeds[n % len(all_seeds)]
        (folder / 'mutant').write_bytes(change(r, data))
        is_read[judge(Trial(folder, n), r, 'mutant')] += 1
    print(f'{is_read[1]} mutants were read, {is_read[0]} refused')
    assert min(is_read) > count // 20


def test_what_is_said_about_a_mutant_agrees(tmp_path):
    run_programs(tmp_path, FEW)


@pytest.mark.complete
@pytest.mark.timeout(7200)
def test_ten_thousand_mutants_of_programs(tmp_path):
    run_programs(tmp_path, MANY)


# ---- traces, noise, parameters -----------------------------------------------------------------------------


def message_files():
    """Two ranks: a message each way, one in parts, a put, a get, a broadcast, a barrier of one of them with
    itself."""
    for r in range(2):
        yield (f'rank-{r}.1.messages', header(r, 2) + entry(COMM, count=2) + b'\0\0\0\0\1\0\0\0'
               + entry(COMM, id_=1, count=1) + bytes([r, 0, 0, 0])
               + entry(ISEND, id_=5, computed=100, peer=1 - r, tag=3, size=8)
               + entry(RECV, peer=1 - r, tag=3, size=8, thread=r) + entry(SEND, peer=r, size=4)
               + entry(READY, id_=6, computed=9) + entry(READY, id_=6, thread=1)
               + entry(ISEND, id_=6, peer=1 - r, tag=3, size=9, count=PARTITIONED + 1, thread=1)
               + entry(IRECV, id_=7, peer=1 - r, tag=3, size=9, count=PARTITIONED + 1)
               + entry(ONE_SIDED, peer=1 - r, tag=1, size=70) + entry(DONE, id_=7)
               + entry(ONE_SIDED, id_=8, peer=1 - r, tag=1, count=1) + part(1 - r, 30)
               + entry(FLUSHED, peer=1 - r, count=1) + entry(DONE, id_=8)
               + entry(RECV, peer=r, size=4) + collective(6, 1, peer=0, size=64)
               + collective(6, 0, peer=0, comm=1) + entry(END, size=1000))


def judge_trace(trial, r, name, content):
    """The program that is written of a trace can be read, and has the trace's messages."""
    for other, whole in message_files():
        (trial.folder / other).write_bytes(whole)
    (trial.folder / name).write_bytes(content)
    ranks = r.choice([[], [], ['--ranks', 8]])
    (trial.folder / 'mutant').unlink(missing_ok=True)
    done = trial.run('trace', 'goal', *ranks, '-o', 'mutant', '.')
    if done.returncode:
        trial.expect('sluice: trace:' in done.stderr and len(done.stderr.splitlines()) == 1, done)
        trial.expect(not (trial.folder / 'mutant').exists(), 'half a program')
        return False
    checked = trial.run('goal', 'check', '--json', 'mutant')
    report = json.loads(checked.stdout)[0]
    trial.expect('ranks' in report, 'a program that cannot be read', report)
    told = re.search(r'(\d+) ranks, (\d+) messages, (\d+) bytes; .*: (\d+) messages, (\d+) bytes',
                     done.stderr)
    trial.expect(told, done)
    if not ranks and report['ok']:
        n = [int(x) for x in told.groups()]
        trial.same('messages', (n[1] + n[3], n[2] + n[4]), (report['messages'], report['bytes']))
    return True


def judge_liballprof(trial, r, name, content):
    folder = trial.folder / 'liballprof'
    folder.mkdir(exist_ok=True)
    for rank in range(2):
        liballprof_trace(rank, 'mpich').write(folder)
    (folder / name).write_bytes(content)
    done = trial.run('trace', 'goal', *r.choice([[], [], ['--ranks', 8]]), '-o', 'mutant', folder)
    if done.returncode:
        trial.expect('sluice: trace:' in done.stderr and len(done.stderr.splitlines()) == 1, done)
        return False
    report = json.loads(trial.run('goal', 'check', '--json', 'mutant').stdout)[0]
    trial.expect('ranks' in report, 'a program that cannot be read', report)
    return True


def judge_noise(trial, r, name, content):
    ring = trial.folder / 'ring.goal'
    if not ring.exists():
        sluice('goal', 'gen', 'ring-allreduce', '-n', 3, '-s', 96, '-o', ring)
    (trial.folder / name).write_bytes(content)
    done = trial.run('goal', 'sim', 'ring.goal', '--noise', name, '--json')
    if done.returncode:
        trial.first_line(done)
        return False
    quiet = simulate(trial, 'ring.goal')[1]
    trial.expect(all(a <= b for a, b in zip(quiet['rank_end_ps'], json.loads(done.stdout)['rank_end_ps'])),
                 'noise makes it faster')
    return True


def judge_params(trial, r, name, content):
    (trial.folder / name).write_bytes(content)
    done = trial.run('goal', 'sim', 'ping-pong', '-n', 2, '--params', name, '--save', 'mutant.saved',
                     '--json')
    if done.returncode:
        trial.first_line(done)
        return False
    again = trial.run('goal', 'sim', 'ping-pong', '-n', 2, '--params', 'mutant.saved', '--json')
    trial.same('saved', *(json.loads(x.stdout)['rank_end_ps'] for x in (done, again)))
    return True


NOISE = b'# a comment\n' + b''.join(b'%d %d\n' % (1000 * k, 30 + k) for k in range(20))
PARAMS = b'''L 2500
o 1500
g 1000
G 0.5
S 65535
above 4K o 800
node cpus 2
node L 100
node o 20
node S 4K
node 8 140 140 1 1
'''


def liballprof_trace(rank, kind):
    trace = liballprof.Trace(rank, 2, kind)
    liballprof.requests(trace)
    trace.call('Comm_split', trace.world, 0, -rank, 140727072956164)
    trace.call('Barrier', trace.comm(0x84000001, 1 - rank, 2))
    liballprof.collectives(trace)
    trace.message('Irecv', 9, liballprof.BYTE, trace.any, -1, None, 140727072956168)
    return trace


def inputs():
    for kind in 'mpich', 'openmpi':
        text = liballprof_trace(0, kind).text().encode()
        for change in damaged, changed:
            yield judge_liballprof, 'pmpi-trace-rank-00.txt', text, change
    yield from ((judge_trace, name, data, damaged) for name, data in message_files())
    yield from ((judge_noise, 'mutant', NOISE, change) for change in (damaged, changed))
    yield from ((judge_params, 'mutant', PARAMS, change) for change in (damaged, changed))


def run_inputs(folder, count, seed=int(os.environ.get('MUTANTS_SEED', 7))):
    r, all_inputs, is_read = random.Random(seed), list(inputs()), {}
    for n in range(count):
        judge_it, name, data, change = all_inputs[n % len(all_inputs)]
        key = judge_it.__name__, judge_it(Trial(folder, n), r, name, change(r, data))
        is_read[key] = is_read.get(key, 0) + 1
    print(is_read)
    assert len(is_read) == 8 and min(is_read.values()) > count // 200, is_read


def test_mutants_of_traces_noise_and_parameters_are_read_or_refused(tmp_path):
    run_inputs(tmp_path, FEW)


@pytest.mark.complete
@pytest.mark.timeout(7200)
def test_ten_thousand_mutants_of_inputs(tmp_path):
    run_inputs(tmp_path, MANY)


def run_records(folder, count, seed=int(os.environ.get('MUTANTS_SEED', 7))):
    """Damaged records of a real run, which `sluice trace report` and `sluice report` read."""
    mpi, r, statuses = need('mpich'), random.Random(seed), {0: 0, 1: 0}
    done = mpi.launch(2, SLUICE, 'trace', '-o', folder / 't', '--limit', '1M', '--goal', folder / 'x.goal',
                      mpi.build(PROGRAMS / 'recorded.c'), 'ring', 'collectives', 'exchange', 'persistent',
                      'partitioned', 'onesided', sluice=False, timeout=100)
    assert done.status == 0, done.explain()
    files = {path: path.read_bytes() for path in sorted((folder / 't').iterdir())
             if path.suffix not in ('.html', '.json', '.txt')}
    assert len(files) >= 4
    for n in range(count):
        trial, path = Trial(folder, n), r.choice(list(files))
        path.write_bytes(damaged(r, files[path]))
        done = trial.run(*r.choice([('trace', 'report'), ('trace', 'goal'), ('report',)]), folder / 't')
        trial.expect(done.returncode == 0 or done.stderr, done)
        statuses[done.returncode] += 1
        path.write_bytes(files[path])
    print(statuses)


def test_damaged_records_of_a_run_are_read_or_refused(tmp_path):
    run_records(tmp_path, FEW // 2)


@pytest.mark.complete
@pytest.mark.timeout(7200)
def test_ten_thousand_damaged_records(tmp_path):
    run_records(tmp_path, MANY)
