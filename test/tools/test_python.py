# SPDX-License-Identifier: BSD-3-Clause
"""The Python package `sluice` returns what the tool prints. Run alone: ./dev check -k test_python"""
import json
import math
import os
import pathlib
import random
import re
import subprocess
import sys

import pytest

from cli import PREFIX, ROOT, SLUICE, sluice
from support.mpi import need

PACKAGE = PREFIX / 'lib/python3/dist-packages'
sys.path.insert(0, str(PACKAGE))
from sluice import _tool, chakra, goal  # noqa: E402  the installed package

EXAMPLES = ROOT / 'examples/goal'


def tool(*args, **more):
    done = sluice(*args, **more)
    assert done.returncode == 0, done.stderr
    return done.stdout


# ---- programs ----------------------------------------------------------------------------------------------


def test_the_package_uses_the_tool_of_its_installation(monkeypatch, tmp_path):
    assert pathlib.Path(_tool.path()).resolve() == pathlib.Path(SLUICE).resolve()
    monkeypatch.setattr(_tool, '__file__', str(tmp_path / 'lib/python3/dist-packages/sluice/_tool.py'))
    monkeypatch.setenv('PATH', str(tmp_path))
    with pytest.raises(goal.SluiceError, match=r'bin/sluice, and no sluice in PATH'):
        _tool.path()


def example():
    b = goal.Builder(2)
    first = b[0].calc(1000, cpu=1)
    sent = b[0].send(40, 1, 7, memory='user0+8', after=[first], nic=2)
    b[0].copy(8, 'user0', 'user1', begun=[sent])
    got = b[1].recv(40, None, None, memory='user1')
    b[1].reduce('max', 'f64', 40, 'user1', 'user1', 'scratch', after=[got, b[1].nop()])
    return b.program()


def test_a_built_program_is_what_its_methods_say():
    assert example().text() == '''num_ranks 2
rank 0 {
l0: calc 1000 cpu 1
l1: send 40b to 1 tag 7 from user0+8 nic 2
l1 requires l0
l2: copy 8b from user0 into user1
l2 irequires l1
}
rank 1 {
l0: recv 40b from any tag any into user1
l1: nop
l2: max f64 40b from user1, user1 into scratch
l2 requires l0, l1
}
'''
    assert example().check() == []


def test_ranks_cannot_require_each_other():
    b = goal.Builder(2)
    with pytest.raises(ValueError, match='rank 1 cannot require l0 of rank 0: ranks wait for'):
        b[1].nop(after=[b[0].nop()])
    with pytest.raises(ValueError, match='at least one rank'):
        goal.Builder(0)


def test_problems_are_those_of_goal_check():
    told = json.loads(sluice('goal', 'check', '--json', EXAMPLES / 'deadlock.goal').stdout)[0]['problems']
    problems = goal.Program.open(EXAMPLES / 'deadlock.goal').check()
    assert [(p.line, p.column, p.message, list(p.notes)) for p in problems] == \
        [(p['line'], p['column'], p['message'], p['notes']) for p in told] != []


def test_programs_are_saved_as_text_and_compiled(tmp_path):
    example().save(tmp_path / 'a.goal')
    example().save(tmp_path / 'a', compiled=True)
    assert goal.Program.open(tmp_path / 'a').text() == tool('goal', 'print', tmp_path / 'a.goal')
    example().draw(tmp_path / 'a.svg')
    assert '<svg' in (tmp_path / 'a.svg').read_text()
    with pytest.raises(goal.SluiceError, match='there is no file'):
        goal.Program.open(tmp_path / 'b')


# ---- results -----------------------------------------------------------------------------------------------


def test_a_simulation_is_that_of_the_tool():
    result = goal.pattern('ring-allreduce', 5, '64K', type='f32').simulate(preset='infiniband', path=4)
    j = json.loads(tool('goal', 'sim', 'ring-allreduce', '-n', 5, '-s', '64K', '--type', 'f32', '--preset',
                        'infiniband', '--json', '--times', '--path', 4))
    assert result.json == j and result.complete
    assert result.end_ns.tolist() == [ps / 1000 for ps in j['rank_end_ps']] and len(result.end_ns) == 5
    assert result.total_ns == result.end_ns.max() and result.messages == j['messages']
    assert math.isclose(sum(result.path_ns.values()), result.total_ns)
    assert [s.begin_ns for s in result.path] == sorted(s.begin_ns for s in result.path)


def test_noise_and_classes_of_lengths_are_options(tmp_path):
    noise = tmp_path / 'noise'
    noise.write_text('1000 3000\n10000 0\n')
    result = goal.pattern('dissemination-allreduce', 16).simulate(noise=noise, seed=3)
    assert result.path_ns['noise'] > 0 and math.isclose(sum(result.path_ns.values()), result.total_ns)
    above = ['4K o 100', '4K L 700']
    slow, fast = (goal.pattern('ping-pong', 2, 5000).simulate(above=a).total_ns for a in ([], above))
    assert slow - fast == 2 * (2 * 1400 + 1800)


def test_merged_programs_are_found_again():
    jobs = [goal.pattern('ring-allgather', 5, '1K'), goal.pattern('binomial-bcast', 8, '64K')]
    for placement in 'packed', 'cyclic', 'random':
        both, places = goal.merge(jobs, placement=placement, ranks=20, seed=4)
        ends = both.simulate().end_ns
        assert len(ends) == 20 and both.check(strict=True) == []
        for job, place in zip(jobs, places):
            assert ends[place].tolist() == job.simulate().end_ns.tolist()
    with pytest.raises(goal.SluiceError, match='13 ranks do not fit on 3'):
        goal.merge(jobs, ranks=3)


def test_what_is_stuck_is_returned():
    result = goal.Program.open(EXAMPLES / 'deadlock.goal').simulate()
    assert not result.complete and result.stuck[0] == 'rank 0: get (line 4): recv 8b from 1 tag 0'
    b = goal.Builder(2)
    for tag in range(50):
        b[0].recv(1, 1, tag)
    told = b.program().simulate().stuck
    assert len(told) == 21 and told[20] == 'and 30 more'


def test_texts_are_utf8_whatever_the_locale_and_the_file(tmp_path):
    (tmp_path / 'x.goal').write_bytes(b'num_ranks 1\nrank 0 { \xff: calc 5 }\n')
    for use in goal.Program.text, goal.Program.simulate:
        with pytest.raises(goal.SluiceError, match=r"x\.goal:2:10: expected an operation, a label or '}',"):
            use(goal.Program.open(tmp_path / 'x.goal'))
    code = '''from sluice.goal import Program
print(Program('num_ranks 1 // \\xb5\\nrank 0 { }').simulate().total_ns)'''
    done = subprocess.run([sys.executable, '-c', code], capture_output=True, text=True,
                          env={**os.environ, 'PYTHONPATH': str(PACKAGE), 'LC_ALL': 'POSIX', 'PYTHONUTF8': '0',
                               'PYTHONCOERCECLOCALE': '0'})
    assert done.stdout == '0.0\n', done.stderr


def test_a_timeline_has_each_occupation_of_a_cpu():
    result = goal.pattern('ping-pong', 2, 100).simulate(timeline=True, L=1000, o=10, g=0, G=1, O=0)
    mine = [(i.rank, i.kind, i.begin_ns, i.end_ns) for i in result.intervals]
    assert sorted(mine) == [(0, 'receive', 2129, 2238), (0, 'send', 0, 10), (1, 'receive', 1010, 1119),
                            (1, 'send', 1119, 1129)]
    import matplotlib
    matplotlib.use('Agg')
    ax = result.plot()
    assert [t.get_text() for t in ax.get_yticklabels()] == ['rank 0', 'rank 1']
    with pytest.raises(ValueError, match='there is no timeline'):
        goal.pattern('ping-pong', 2).simulate().plot()


def test_a_run_has_its_times_and_predictions(tmp_path):
    (tmp_path / 'node').write_text('node cpus 2\nnode start 1000\nnode L 100\nnode o 20\nnode S 4K\n'
                                   'node 8 140 140 1 1\n')
    run = goal.pattern('binomial-bcast', 2).run(7, verify=True, params=tmp_path / 'node')
    assert run.times == 7 and run.verified and run.predicted_us.tolist() == [1.02, 1.14]
    assert (run.least_us >= 0).all() and (run.least_us <= run.low_us).all()  # 0: ended before rank 1 began
    assert (run.low_us <= run.median_us).all() and (run.median_us <= run.high_us).all()
    assert run.all['median_us'] > 0 and run.all['predicted_us'] == 1.14
    assert goal.pattern('binomial-bcast', 2).run().all is None
    traced = goal.Program('num_ranks 1\nrank 0 {\ncalc 1000\n}\n// rank 0: traced 5000 ns\n')
    assert traced.run(replay=True).traced_us.tolist() == [5] and math.isnan(traced.run().traced_us[0])


def test_mistakes_are_told_in_the_words_of_the_tool():
    with pytest.raises(goal.SluiceError, match="there is no pattern 'ring-alreduce'; did you mean"):
        goal.pattern('ring-alreduce', 4)
    with pytest.raises(goal.SluiceError, match='there is no preset fast'):
        goal.pattern('ping-pong', 2).simulate(preset='fast')
    with pytest.raises(goal.SluiceError, match="expected 'to'"):
        goal.Program('num_ranks 1\nrank 0 { send 8b too 1 }').simulate()
    assert goal.patterns()['ping-pong'] == 'rank 0 to rank 1 and back'


# ---- Chakra ------------------------------------------------------------------------------------------------


def varint(n):
    n &= (1 << 64) - 1
    out = bytearray()
    while n > 127:
        out.append(n & 127 | 128)
        n >>= 7
    return bytes([*out, n])


def field(number, value):
    if isinstance(value, int):
        return varint(number << 3) + varint(value)
    data = value.encode() if isinstance(value, str) else value
    return varint(number << 3 | 2) + varint(len(data)) + data


def node(number, kind, after=(), us=0, **attributes):
    """A node; texts as string_val, numbers as int64_val."""
    attrs = (field(1, k) + field(29 if isinstance(v, str) else 9, v) for k, v in attributes.items())
    return field(1, number) + field(2, 'name') + field(3, kind) + field(5, b''.join(map(varint, after))) + \
        field(7, us) + b''.join(field(10, a) for a in attrs)


def et(path, *nodes):
    messages = field(1, '0.0.4'), *nodes
    path.write_bytes(b''.join(varint(len(m)) + m for m in messages))
    return path


COMP, SEND, RECV, COLL = 4, 5, 6, 7


def ring(folder, ranks=3, **collective):
    """Computes, meets in a collective, then sends to the next rank."""
    return [et(folder / f'x.{r}.et', node(1, COMP, us=10 * (r + 1)), node(2, COLL, [1], **collective),
               node(8, SEND, [2], comm_size=100, comm_dst=(r + 1) % ranks, comm_tag=3),
               node(9, RECV, [2], comm_size=100, comm_src=(r + ranks - 1) % ranks, comm_tag=3),
               node(10, COMP, [8, 9], us=5)) for r in range(ranks)]


@pytest.mark.parametrize('number, pattern, size', [
    (0, 'ring-allreduce', 120), (1, 'binomial-reduce', 120), (2, 'ring-allgather', 120),
    (3, 'binomial-gather', 120), (4, 'binomial-scatter', 40), (5, 'binomial-bcast', 120),
    (6, 'pairwise-alltoall', 40), (7, 'ring-reduce-scatter', 120), (9, 'dissemination-barrier', 120)])
def test_collectives_of_a_chakra_trace_become_patterns(number, pattern, size, tmp_path):
    program = chakra.read(ring(tmp_path, comm_type=number, comm_size=120))
    assert program.check() == []
    result, alone = program.simulate(), goal.pattern(pattern, 3, size).simulate()
    assert result.complete and result.messages == alone.messages + 3
    assert result.message_bytes == alone.message_bytes + 300
    assert program.run().all is None  # it runs, too


def test_a_chakra_trace_takes_its_durations_and_dependencies(tmp_path):
    paths = [et(tmp_path / '0', node(1, COMP, us=7), node(2, COMP, [1], us=5), node(3, 1, [2]),
                node(4, SEND, [3], comm_size=8, comm_dst=1)),
             et(tmp_path / '1', node(4, RECV, comm_size=8, comm_src=0))]
    assert chakra.read(paths).simulate(L=100, o=10, g=0, G=0, O=0).end_ns.tolist() == [12010, 12120]


def test_traces_of_pytorch_have_callers_and_calls_of_the_host(tmp_path):
    """Chakra's converter keeps callers as control dependencies, which may be missing, and each collective a
    second time as a call of the host, without its kind and size."""
    def rank(r):
        return et(tmp_path / str(r), node(1, COMP, us=3, is_cpu_op=1) + field(4, varint(99)),
                  node(2, COLL, [1], us=2, is_cpu_op=1) + field(4, varint(2) + varint(3)),
                  node(3, COMP, [1], us=50, is_cpu_op=0),
                  node(4, COLL, [2], us=900, is_cpu_op=0, comm_type=0, comm_size=8),
                  node(5, COMP, [2], us=40, is_cpu_op=1) + field(4, varint(5)))
    program = chakra.read([rank(0), rank(1)])
    assert program.check() == []
    result = program.simulate(timeline=True, L=100, o=10, g=0, G=0, O=0)
    spans = {(i.kind, i.cpu): (i.begin_ns, i.end_ns) for i in result.intervals if i.rank == 0}
    assert spans['calc', 1] == (3000, 53000)  # the device computes beside the host
    assert spans['send', 2][0] >= 5000 and result.total_ns == 53000
    assert ('calc', 2) not in spans
    assert result.messages == goal.pattern('ring-allreduce', 2).simulate().messages


def test_process_groups_have_their_own_ranks_and_order(tmp_path):
    def rank(r):
        group = f'g{r % 2}'
        return et(tmp_path / str(r), node(1, COLL, comm_type=5, comm_size=8, pg_name=group),
                  node(2, COLL, [1], comm_type=9, pg_name='all'),
                  node(3, COLL, [2], comm_type=6, comm_size=80, pg_name=group))
    program = chakra.read([rank(r) for r in range(4)], use={'barrier': 'linear-gather'})
    assert program.check() == []
    assert program.simulate().messages == 2 * (1 + 2) + 3


@pytest.mark.parametrize('change, message', [
    (lambda p: p[1].write_bytes(p[1].read_bytes()[:-3]), r'x\.1\.et: no Chakra trace, or damaged, at byte'),
    (lambda p: et(p[0], node(1, COMP, [5])), r'x\.0\.et: node 1: it depends on node 5, which is not there'),
    (lambda p: et(p[0], node(1, 99)), r'x\.0\.et: node 1: type 99 is not known'),
    (lambda p: et(p[0], node(1, COLL, comm_type=77)), r'x\.0\.et: node 1: comm_type is 77; 0 to 9 are'),
    (lambda p: et(p[0], node(1, COLL, comm_type=9)), r"group '': collective 0 is allreduce and barrier"),
    (lambda p: et(p[0], node(1, COLL), node(2, COLL)), r'different numbers of collectives: 1 to 2'),
    (lambda p: et(p[0], node(1, COLL, comm_size=8)), r'x\.0\.et: node 1: it has no number comm_type'),
    (lambda p: et(p[0], node(1, COLL, comm_type=0)), r'x\.0\.et: node 1: it has no number comm_size'),
    (lambda p: et(p[0], node(1, SEND, comm_size=8)), r'x\.0\.et: node 1: it has no number comm_dst'),
    (lambda p: et(p[0], node(1, RECV, comm_src=1)), r'x\.0\.et: node 1: it has no number comm_size'),
    (lambda p: et(p[0], node(1, SEND, comm_size=8, comm_dst=1, comm_tag=1 << 40)),
     r'comm_tag is 1099511627776; 0 to 1048575'),
    (lambda p: p[1].write_bytes(b''), r'x\.1\.et: no Chakra trace, or damaged, at byte 0'),
    (lambda p: p[1].write_bytes(varint(1 << 62) + bytes(99)), r'x\.1\.et: no Chakra trace, or damaged, at'),
    (lambda p: et(p[0], node(1, COMP), node(1, COMP)), r'x\.0\.et: node 1: another node has this number'),
    (lambda p: et(p[0], node(1, COMP, [2]), node(2, COMP, [3]), node(3, COMP, [1])),
     r'x\.0\.et: node (\d): it depends on itself, by the nodes (\d) \d \d \1$'),
    (lambda p: et(p[0], node(1, COMP, us=1 << 62)), r'x\.0\.et: node 1: duration_micros is 46116860184273'),
    (lambda p: et(p[0], node(1, SEND, comm_size=-1, comm_dst=1)), r'node 1: comm_size is -1; 0 to 92233720'),
    (lambda p: et(p[0], node(1, SEND, comm_size=8, comm_dst=3)), r'node 1: comm_dst is 3; 0 to 2 are possib'),
    (lambda p: et(p[0], node(1, RECV, comm_size=8, comm_src=-1)), r'node 1: comm_src is -1; 0 to 2 are poss'),
    (lambda p: et(p[0], node(1, COLL, comm_type=0, comm_size=-8)), r'x\.0\.et: node 1: comm_size is -8; 0'),
    (lambda p: [et(x, node(1, COLL, comm_type=5, comm_size=8, comm_root=r)) for r, x in enumerate(p)],
     r"^process group '': collective 0: comm_root is 0 and 1 and 2$"),
    (lambda p: [et(x, node(1, COLL, comm_type=0, comm_size=1 << 62)) for x in p],
     r'x\.0\.et: node 1: sluice: goal gen: ring-allreduce: so many bytes cannot be addressed$')])
def test_a_wrong_chakra_trace_is_told(change, message, tmp_path):
    paths = ring(tmp_path, comm_type=0, comm_size=120)
    change(paths)
    with pytest.raises(goal.SluiceError, match=message):
        chakra.read(paths)


def test_the_root_says_how_many_bytes_it_brings(tmp_path):
    def program(size_of_others):
        return chakra.read([et(tmp_path / str(r), node(1, COLL, comm_type=5, comm_root=1,
                                                       comm_size=100 if r == 1 else size_of_others))
                            for r in range(3)])
    assert program(100).text() == program(1 << 40).text() == program(0).text()


def test_the_arguments_of_a_chakra_trace_are_checked(tmp_path):
    paths = ring(tmp_path, comm_type=0, comm_size=120)
    with pytest.raises(ValueError, match='^expected a list of traces, one for each rank$'):
        chakra.read(str(paths[0]))
    with pytest.raises(ValueError, match='^no collective alreduce; there are allreduce, reduce, '):
        chakra.read(paths, use={'alreduce': 'ring-allreduce'})


def chakra_mutants(folder, count, seed):
    """A program that is read can be simulated; a refusal names file or group in one line."""
    paths, r, refused = ring(folder, comm_type=0, comm_size=120), random.Random(seed), 0
    whole = [p.read_bytes() for p in paths]
    for n in range(count):
        bad, at = [bytearray(data) for data in whole], r.randrange(3)
        numbers = [m.end() + 1 for m in re.finditer(rb'comm_(size|dst|src|tag|type)', bad[at])]
        for _ in range(r.choice([1, 1, 1, 3])):
            place = r.choice([r.randrange(len(bad[at])), *r.sample(numbers, 2)])
            bad[at][place] = r.choice([0, 1, 8, 127, 128, 255, r.randrange(256)])
        for path, data in zip(paths, bad):
            path.write_bytes(data)
        try:
            program = chakra.read(paths)
        except goal.SluiceError as error:
            assert re.fullmatch(r"(.*/x\.\d\.et: |process group ').*", str(error)), (n, error)
            refused += 1
        else:
            assert isinstance(program.simulate().complete, bool), n
    assert count // 20 < refused < count


def test_mutants_of_chakra_traces_are_read_or_refused(tmp_path):
    chakra_mutants(tmp_path, 300, 1)


@pytest.mark.complete
@pytest.mark.timeout(3600)
def test_ten_thousand_mutants_of_chakra_traces(tmp_path):
    chakra_mutants(tmp_path, 10000, 2)


def test_damaged_chakra_traces_end_in_an_error_or_a_program(tmp_path):
    data, r = ring(tmp_path, ranks=1, comm_type=0, comm_size=120)[0].read_bytes(), random.Random(1)
    refused = 0
    for _ in range(3000):
        bad = bytearray(data)
        for _ in range(r.randint(1, 4)):
            bad[r.randrange(len(bad))] = r.randrange(256)
        (tmp_path / 'bad').write_bytes(bad[:r.randint(0, len(bad))])
        try:
            assert all(n.id >= 0 for n in chakra.nodes(tmp_path / 'bad'))
        except goal.SluiceError:
            refused += 1
    assert 500 < refused < 3000


# ---- types, notebooks --------------------------------------------------------------------------------------


def test_the_types_hold(tmp_path):
    done = subprocess.run([sys.executable, '-m', 'mypy', '--strict', '--cache-dir', tmp_path,
                           ROOT / 'python/sluice'], capture_output=True, text=True)
    assert done.returncode == 0, done.stdout


@pytest.mark.parametrize('notebook', sorted(EXAMPLES.glob('*.ipynb')), ids=lambda p: p.stem)
def test_the_notebooks_run(notebook, tmp_path):
    text = notebook.read_text()
    cells = json.loads(text)['cells']
    assert all(not c.get('outputs') for c in cells), 'a notebook is kept without its outputs'
    code = '\n'.join(''.join(c['source']) for c in cells if c['cell_type'] == 'code')
    own = {'MPLBACKEND': 'Agg', 'PYTHONPATH': str(PACKAGE), 'MPLCONFIGDIR': str(tmp_path)}
    env = {**os.environ, **own}
    if 'mpiexec' in text:
        mpi = need('mpich')
        env = {**mpi.env(), **own}
        env['PATH'] = f'{mpi.bindir}:{PREFIX / "bin"}:{os.environ["PATH"]}'
    done = subprocess.run([sys.executable, '-c', code], env=env, cwd=tmp_path, capture_output=True, text=True)
    assert done.returncode == 0 and not done.stderr, done.stderr
    assert 'predicted' in done.stdout
