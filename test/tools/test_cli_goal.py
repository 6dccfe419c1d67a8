# SPDX-License-Identifier: BSD-3-Clause
"""sluice goal: check, print, compile and draw. Run alone: ./dev check -k cli_goal"""
import json
import os
import pathlib
import re
import resource
import shutil
import struct
import subprocess
import xml.dom.minidom

import pytest

from cli import PREFIX, ROOT, SLUICE, plain_env, sluice

DATA = pathlib.Path(__file__).resolve().parent / 'goal'
EXAMPLES = sorted((ROOT / 'examples/goal').glob('*.goal'))
VERBS = ('check', 'print', 'compile', 'draw')
SMALL = 'num_ranks 1\n\nrank 0 {\nl0: calc 5\n}\n'
DEADLOCK = '''num_ranks 2
rank 0 { a: recv 8b from 1; b: send 8b to 1
b requires a }
rank 1 { a: recv 8b from 0; b: send 8b to 0
b requires a }
'''
EXCHANGE = '''num_ranks 2
rank 0 { a: send 8b to 1; b: recv 8b from 1; b requires a }
rank 1 { a: send 8b to 0; b: recv 8b from 0; b requires a }
'''


def goal(*args, text=None, **more):
    """With text on standard input."""
    return sluice('goal', *args, input=text, **more)


def check(text, *options):
    done = goal('check', *options, '-', text=text)
    return done.returncode, done.stdout, done.stderr


# ---- command lines ------------------------------------------------------------------------------------

@pytest.mark.parametrize('verb', [(), *((v,) for v in VERBS)])
def test_help_fits_a_screen_and_has_an_example(verb):
    done = goal(*verb, '--help')
    assert (done.returncode, done.stderr) == (0, '')
    lines = done.stdout.splitlines()
    assert len(lines) <= 24 and max(map(len, lines)) <= 80
    assert lines[0].startswith('usage: sluice goal') and 'Examples:' in lines
    assert goal(*verb, '-h').stdout == done.stdout


def test_help_lists_each_verb_and_each_has_help():
    verbs = re.findall(r'^  (\w+) +[A-Z]', goal('--help').stdout, re.M)
    assert set(VERBS) <= set(verbs)
    for verb in verbs:
        assert goal(verb, '--help').stdout.startswith(f'usage: sluice goal {verb}'), verb


@pytest.mark.parametrize('verb', [(), *((v,) for v in VERBS)])
def test_the_examples_of_the_help_work(verb, tmp_path):
    shutil.copy(EXAMPLES[0], tmp_path / 'text.goal')
    goal('compile', EXAMPLES[0], '-o', tmp_path / 'program')
    text = goal(*verb, '--help').stdout
    lines = re.search(r'^Examples:\n((?:  .*\n)+)', text, re.M).group(1).splitlines()
    for line in lines:
        done = subprocess.run(line, shell=True, cwd=tmp_path, capture_output=True, text=True, timeout=60,
                              env=plain_env(PATH=f'{SLUICE.parent}:{os.environ["PATH"]}'))
        assert (done.returncode, done.stderr) == (0, ''), line


def test_every_option_is_in_the_page():
    page = (PREFIX / 'share/man/man1/sluice-goal.1').read_text().replace('\\-', '-')
    for verb in re.findall(r'^  (\w+) +[A-Z]', goal('--help').stdout, re.M):
        for flag in set(re.findall(r'--[a-z]+(?:-[a-z]+)*', goal(verb, '--help').stdout)):
            assert flag in page, (verb, flag)


@pytest.mark.parametrize('args, says', [
    ((), 'usage: sluice goal'),
    (('chekc',), "there is no verb 'chekc'; did you mean 'check'?"),
    (('check',), 'goal check: no FILE;'),
    (('print',), 'goal print: no FILE;'),
    (('compile',), 'goal compile: no FILE;'),
    (('draw',), 'goal draw: no FILE;'),
    (('compile', 'x'), 'goal compile: no output; use -o OUT'),
    (('compile', 'x', '-o'), '-o needs a value'),
    (('print', 'x', 'y'), "only, not also 'y'"),
    (('draw', 'x', 'y'), "only, not also 'y'"),
    (('print', 'x', '-o', 'y', '-o', 'z'), "one -o only, not also 'z'"),
    (('check', '--jsno', 'x'), "there is no option '--jsno'; did you mean '--json'?"),
    (('check', '--json=1', 'x'), '--json takes no value'),
    (('draw', '--ranks', '3-', 'x'), "--ranks takes a list such as 0-3,8 of ranks up to 2047, not '3-'"),
    (('draw', '--ranks=', 'x'), '--ranks takes a list'),
])
def test_misuse_is_one_line(args, says):
    done = goal(*args)
    assert (done.returncode, done.stdout) == (2, '')
    assert says in done.stderr
    assert not args or len(done.stderr.splitlines()) == 1


# ---- files --------------------------------------------------------------------------------------------

@pytest.mark.parametrize('verb', [['check'], ['print'], ['compile', '-o', '/dev/null'], ['draw']])
def test_files_that_cannot_be_read_are_told(verb, tmp_path):
    for path, says in ((tmp_path / 'none', 'No such file or directory'), (tmp_path, 'Is a directory')):
        done = goal(*verb, path)
        assert (done.returncode, done.stdout) == (1, '')
        assert done.stderr == f'sluice: goal {verb[0]}: {path}: {says}\n'


@pytest.mark.skipif(os.getuid() == 0, reason='root reads everything')
def test_a_file_without_permission_is_told(tmp_path):
    (tmp_path / 'x').write_text(SMALL)
    (tmp_path / 'x').chmod(0)
    assert 'Permission denied' in goal('check', tmp_path / 'x').stderr


@pytest.mark.parametrize('content, says', [
    (b'', ': the text is empty: a program begins with'),
    (b'\x7f\x45\x4c\x46\x02\x01\x01\x00\x00', 'this is not text: it contains byte 0x7f'),
    (b'num_ranks 1\n\0', ':2: this is not text: it contains byte 0x00'),
    (b'GOALPROG', 'a damaged program, or one of another version'),
])
@pytest.mark.parametrize('through_a_pipe', [False, True])
def test_what_is_neither_text_nor_program_is_told(content, says, through_a_pipe, tmp_path):
    (tmp_path / 'x').write_bytes(content)
    with open(tmp_path / 'x', 'rb') as f:
        piped = subprocess.run([SLUICE, 'goal', 'print', '-'], input=f.read(), capture_output=True,
                               env=plain_env())
    plain = goal('print', tmp_path / 'x')
    for code, err in ((piped.returncode, piped.stderr.decode()), (plain.returncode, plain.stderr)):
        assert code == 1 and says in err


def test_a_damaged_program_is_refused_wherever_it_is_damaged(tmp_path):
    program = tmp_path / 'p'
    goal('compile', DATA / 'dialect.goal', '-o', program)
    whole = program.read_bytes()
    for cut in (8, 64, 100, len(whole) - 1):
        program.write_bytes(whole[:cut])
        done = goal('print', program)
        assert done.returncode == 1 and 'damaged program' in done.stderr
    # the version of the first block: the mask of its line, its magic, then this
    program.write_bytes(whole[:70] + b'\x63' + whole[71:])
    assert 'block 0 is not valid' in goal('print', program).stderr
    piped = subprocess.run([SLUICE, 'goal', 'print', '-'], input=program.read_bytes(), capture_output=True,
                           env=plain_env())
    assert piped.returncode == 1 and b'standard input: a damaged program: block 0' in piped.stderr


@pytest.mark.parametrize('args', [['print', '-'], ['compile', '-', '-o', '-'], ['draw', '-'],
                                  ['check', '-'], ['check', '--json', '-'], ['draw', '--dot', '-']])
def test_a_full_disk_is_a_failure(args):
    with open('/dev/full', 'w', encoding='ascii') as full:
        done = subprocess.run([SLUICE, 'goal', *args], input=SMALL, stdout=full, stderr=subprocess.PIPE,
                              text=True, env=plain_env(), check=False)
    assert done.returncode == 1 and 'No space left' in done.stderr


@pytest.mark.parametrize('verb', ['print', 'compile', 'draw'])
def test_output_that_cannot_be_made_is_told_and_devices_stay(verb, tmp_path):
    done = goal(verb, '-', '-o', tmp_path / 'no/x', text=SMALL)
    assert done.returncode == 1 and 'cannot write' in done.stderr and 'No such file' in done.stderr
    done = goal(verb, '-', '-o', '/dev/full', text=SMALL)
    assert done.returncode == 1 and 'No space left' in done.stderr
    assert pathlib.Path('/dev/full').is_char_device()


def test_a_program_that_cannot_be_compiled_leaves_what_was_there(tmp_path):
    (tmp_path / 'p').write_text('precious')
    assert goal('compile', '-', '-o', tmp_path / 'p', text='num_ranks 1').returncode == 1
    assert (tmp_path / 'p').read_text() == 'precious' and len(list(tmp_path.iterdir())) == 1


def test_a_text_is_compiled_in_memory_that_does_not_grow_with_it(tmp_path):
    text, out = tmp_path / 'text', tmp_path / 'program'
    text.write_text('num_ranks 4000\n' + ''.join(f'rank {r} {{' + 'nop\n' * 100 + '}\n' for r in range(4000)))
    limit = 12 << 20  # the program has 24 MiB
    done = goal('compile', text, '-o', out, preexec_fn=lambda: resource.setrlimit(resource.RLIMIT_DATA,
                                                                                  (limit, limit)))
    assert done.returncode == 0, done.stderr
    assert struct.unpack_from('<Q', out.read_bytes(), 16)[0] > 2 * limit
    assert out.stat().st_size < limit / 4
    assert '4000 ranks, 400000 operations' in goal('check', out).stdout


# ---- print and compile --------------------------------------------------------------------------------

@pytest.mark.parametrize('text', sorted(DATA.glob('*.goal')), ids=lambda p: p.name)
def test_the_canonical_form_is_as_expected(text):
    assert goal('print', text).stdout == text.with_suffix('.expect').read_text()


@pytest.mark.parametrize('text', sorted(DATA.glob('*.goal')) + EXAMPLES, ids=lambda p: p.name)
def test_text_and_program_are_the_same_there_and_back(text, tmp_path):
    printed = goal('print', text).stdout
    assert printed
    first, second = tmp_path / 'a', tmp_path / 'b'
    assert goal('compile', text, '-o', first).returncode == 0
    assert goal('print', first).stdout == printed
    assert goal('print', '-', text=printed).stdout == printed
    assert goal('compile', '-', '-o', second, text=printed).returncode == 0
    assert first.read_bytes() == second.read_bytes()
    assert goal('compile', first, '-o', second).returncode == 0
    assert first.read_bytes() == second.read_bytes()
    piped = subprocess.run(f'{SLUICE} goal compile {text} -o - | {SLUICE} goal compile - -o -', shell=True,
                           capture_output=True, check=True, env=plain_env())
    assert piped.stdout == first.read_bytes()


def test_print_writes_to_a_file_when_asked(tmp_path):
    done = goal('print', '-', '-o', tmp_path / 'x', text=SMALL)
    assert (done.returncode, done.stdout) == (0, '')
    assert (tmp_path / 'x').read_text() == SMALL


def test_mistakes_are_shown_in_their_line_with_a_caret(tmp_path):
    (tmp_path /
     'x.goal').write_text('num_ranks 1\nrank 0 {\n\tl1: snd 8b to 0 \x1b[31m\nl2 requires l9\nl2: nop\n}\n')
    done = goal('print', tmp_path / 'x.goal')
    assert done.returncode == 1 and done.stdout == ''
    assert done.stderr == (
        f"{tmp_path}/x.goal:3:6: there is no operation 'snd'; did you mean 'send'?\n"
        "   l1: snd 8b to 0 ?[31m\n       ^~~\n"
        f"{tmp_path}/x.goal:4:13: there is no operation 'l9' in rank 0\n"
        "  l2 requires l9\n              ^\n")


def test_a_long_line_is_shown_around_its_mistake():
    lines = check('num_ranks 1 rank 0 { ' + 'calc 5; ' * 40 + 'clac 5; ' + 'calc 5; ' * 40 +
                  '}')[2].splitlines()
    assert len(lines) == 3 and all(len(line) < 130 for line in lines)
    assert lines[1][lines[2].index('^'):].startswith('clac 5')


def test_many_mistakes_are_enough_at_some_point():
    code, _, err = check('num_ranks 1 rank 0 {\n' + 'oops\n' * 1000)
    assert code == 1 and err.count('there is no operation') == 20
    assert err.endswith('stopped here: there may be more\n')


# ---- check --------------------------------------------------------------------------------------------

@pytest.mark.parametrize('text', [p for p in EXAMPLES if p.name != 'deadlock.goal'], ids=lambda p: p.name)
def test_the_examples_are_without_mistakes(text):
    done = goal('check', '--strict', text)
    assert (done.returncode, done.stderr) == (0, '') and done.stdout.startswith(f'{text}: ')


def test_the_numbers_are_told():
    assert check(EXCHANGE)[1] == 'standard input: 2 ranks, 4 operations, 2 messages, 16 bytes: no mistakes\n'


def test_a_deadlock_is_named_with_its_operations_and_lines():
    code, out, err = check(DEADLOCK)
    assert (code, out) == (1, '')
    assert err == '''standard input:2: deadlock: rank 0 'a: recv 8b from 1 tag 0' waits for itself
  rank 0 'a: recv 8b from 1 tag 0' (line 2) waits for the send
  rank 1 'b: send 8b to 0 tag 0' (line 4) requires
  rank 1 'a: recv 8b from 0 tag 0' (line 4) waits for the send
  rank 0 'b: send 8b to 1 tag 0' (line 2) requires
  back to the first operation
'''


def test_a_deadlock_of_a_program_is_named_by_the_labels_that_print_gives(tmp_path):
    goal('compile', '-', '-o', tmp_path / 'p', text=DEADLOCK)
    done = goal('check', tmp_path / 'p')
    assert done.returncode == 1 and "rank 0 'l0: recv 8b from 1 tag 0' waits for the send" in done.stderr


def test_what_only_deadlocks_without_buffers_is_a_warning_unless_strict():
    code, out, err = check(EXCHANGE.replace('a:', 'big:').replace('requires a', 'requires big'))
    assert code == 0 and 'no mistakes' in out
    assert "warning: deadlock unless messages are buffered: rank 0 'big: send 8b" in err
    code, out, err = check(EXCHANGE, '--strict')
    assert code == 1 and out == '' and 'waits for the receive' in err


@pytest.mark.parametrize('rank1, says', [
    ('', "rank 0 'l1: recv 8b from 1 tag 3' waits for ever: no rank sends to it"),
    ('send 8b to 0 tag 4', "no rank receives what rank 1 'send 8b to 0 tag 4' sends"),
    ('send 8b to 1 tag 3', "no rank receives what rank 1 'send 8b to 1 tag 3' sends"),
    ('send 9b to 0 tag 3', "rank 1 'send 9b to 0 tag 3' (line 2) sends 9 bytes, not 8"),
    ('send 8b to 0 tag 3; send 8b to 0 tag 3', 'no rank receives what'),
])
def test_messages_that_do_not_meet_their_receives_are_named(rank1, says):
    code, _, err = check(f'num_ranks 2 rank 0 {{ l1: recv 8b from 1 tag 3 }}\nrank 1 {{ {rank1} }}')
    assert code == 1 and says in err


def test_a_receive_from_any_is_matched_and_what_was_not_tried_is_said():
    code, out, err = check('num_ranks 3 rank 0 { recv 8b from any tag any; recv 8b from -1 tag 2 }\n'
                           'rank 1 { send 8b to 0 tag 1 } rank 2 { send 8b to 0 tag 2 }')
    assert (code, err) == (0, '')
    assert '2 receives take any source or tag: only one order' in out


def test_a_receive_from_any_that_nobody_serves_is_named():
    code, _, err = check('num_ranks 2 rank 0 { recv 8b from any tag 1; recv 8b from any tag 1 }\n'
                         'rank 1 { send 8b to 0 tag 1; send 8b to 0 tag 2 }')
    assert code == 1 and 'no rank sends to it' in err and "'send 8b to 0 tag 2' sends" in err


def test_one_sided_operations_are_said_to_be_the_simulators():
    code, out, _ = check('num_ranks 2 rank 0 { put 8b to 1 } rank 1 { append 8b to priority_list '
                         'allowed 0 ct 0 }')
    assert code == 0 and '2 one-sided operations' in out and 'sluice goal sim' in out


def test_messages_of_one_sender_do_not_overtake_each_other():
    text = '''num_ranks 2 rank 0 { a: recv 1b from 1; b: recv 2b from 1; b requires a }
              rank 1 { c: send 1b to 0; d: send 2b to 0; d requires c }'''
    assert check(text)[0] == 0
    code, _, err = check(text.replace('d requires c', 'c requires d'))
    assert code == 1 and err.count('message of another size') == 2


def test_beginnings_release_before_ends():
    text = 'num_ranks 2 rank 0 {{ r: recv 8b from 1; s: send 8b to 1; s {} r }}\n' \
           'rank 1 {{ r: recv 8b from 0; s: send 8b to 0; s requires r }}'
    assert check(text.format('irequires'), '--strict')[0] == 0
    assert check(text.format('requires'))[0] == 1


def test_many_mistakes_of_one_kind_are_counted():
    code, _, err = check('num_ranks 1 rank 0 {' + 'recv 8b from 0;' * 50 + '}')
    assert code == 1 and err.count('no rank sends to it') == 10 and '40 more like these' in err


def test_several_files_are_checked_and_one_that_is_wrong_is_enough(tmp_path):
    (tmp_path / 'good').write_text(SMALL)
    (tmp_path / 'bad').write_text(DEADLOCK)
    done = goal('check', tmp_path / 'bad', tmp_path / 'good', tmp_path / 'none')
    assert done.returncode == 1 and 'good: 1 ranks' in done.stdout
    assert 'bad:2: deadlock' in done.stderr and 'none: No such file' in done.stderr


def test_json_has_the_same(tmp_path):
    (tmp_path / 'bad').write_text('num_ranks 1\nrank 0 { clac }')
    (tmp_path / 'dead').write_text(DEADLOCK)
    (tmp_path / 'good').write_text(SMALL)
    done = goal('check', '--json', tmp_path / 'bad', tmp_path / 'dead', tmp_path / 'good')
    bad, dead, good = json.loads(done.stdout)
    assert (done.returncode, done.stderr) == (1, '')
    assert bad['problems'][0]['line'] == 2 and bad['problems'][0]['column'] == 10
    assert bad['problems'][0]['text'] == 'rank 0 { clac }' and not bad['ok']
    assert len(dead['problems'][0]['notes']) == 5 and not dead['ok']
    assert good == {'file': str(tmp_path / 'good'), 'ok': True, 'ranks': 1, 'operations': 1, 'messages': 0,
                    'bytes': 0, 'receives_from_any': 0, 'one_sided': 0, 'problems': [],
                    'problems_not_listed': 0}


def test_json_says_why_a_file_cannot_be_read(tmp_path):
    (tmp_path / 'good').write_text(SMALL)
    for option in [], ['--loggopsim']:
        assert goal('compile', *option, tmp_path / 'good', '-o', tmp_path / 'x').returncode == 0
        whole = (tmp_path / 'x').read_bytes()
        (tmp_path / 'cut').write_bytes(whole[:-3])
        done = goal('check', '--json', tmp_path / 'cut', tmp_path / 'none', tmp_path / 'good')
        cut, none, good = json.loads(done.stdout)
        assert done.returncode == 1 and good['ok']
        assert 'damaged' in cut['problems'][0]['message'] and not cut['ok'] and 'ranks' not in cut
        assert 'No such file' in none['problems'][0]['message'] and not none['ok']
        assert f"cut: {cut['problems'][0]['message']}" in done.stderr


# ---- draw ---------------------------------------------------------------------------------------------

def boxes(svg):
    """(rank, x, y) of each operation."""
    tree = xml.dom.minidom.parseString(svg)
    out = []
    for group in tree.getElementsByTagName('g'):
        box = group.getElementsByTagName('rect')[0]
        out.append((group.getElementsByTagName('title')[0].firstChild.data,
                    *(int(box.getAttribute(a)) for a in ('x', 'y', 'width', 'height'))))
    return out


@pytest.mark.parametrize('text', EXAMPLES, ids=lambda p: p.name)
def test_a_drawing_has_all_operations_and_none_on_top_of_another(text):
    done = goal('draw', text)
    assert (done.returncode, done.stderr) == (0, '')
    drawn = boxes(done.stdout)
    assert len(drawn) == goal('print', text).stdout.count(': ')
    for i, (_, x, y, w, h) in enumerate(drawn):
        for _, x2, y2, w2, h2 in drawn[:i]:
            assert x + w <= x2 or x2 + w2 <= x or y + h <= y2 or y2 + h2 <= y


def test_what_comes_later_stands_lower():
    y = {title.split(':')[0]: top for title, _, top, _, _ in
         boxes(goal('draw', '-', text='''num_ranks 2 rank 0 { a: calc 1; b: send 8b to 1; b requires a }
                    rank 1 { c: recv 8b from 0; d: nop; d requires c; e: nop; e irequires d }''').stdout)}
    assert y['rank 0 a'] < y['rank 0 b'] < y['rank 1 c'] < y['rank 1 d'] < y['rank 1 e']


def test_a_drawing_shows_what_never_ends_and_what_nobody_receives():
    svg = goal('draw', '-', text=DEADLOCK + '').stdout
    assert svg.count('never ends</title>') == 4 and svg.count('class="wait"') == 2
    svg = goal('draw', '-', text='num_ranks 1 rank 0 { send 8b to 0 }').stdout
    assert 'never received</title>' in svg


def test_names_of_files_and_labels_cannot_break_a_drawing(tmp_path):
    path = tmp_path / '<b>&"\x01.goal'
    path.write_text(SMALL)
    assert boxes(goal('draw', path).stdout)
    assert '&lt;b&gt;&amp;' in goal('draw', path).stdout


def test_some_ranks_can_be_drawn_of_what_is_too_large(tmp_path):
    ranks = 300
    text = f'num_ranks {ranks}\n' + ''.join(
        f'rank {r} {{ send 8b to {(r + 1) % ranks}; recv 8b from {(r - 1) % ranks} }}\n'
        for r in range(ranks))
    (tmp_path / 'x').write_text(text)
    done = goal('draw', tmp_path / 'x')
    assert done.returncode == 1 and done.stdout == ''
    assert 'at most 128 ranks and 4096 operations; choose with --ranks' in done.stderr
    done = goal('draw', '--ranks', '7,8,200-203', tmp_path / 'x')
    assert done.returncode == 0 and len(boxes(done.stdout)) == 12
    assert done.stdout.count('class="wire"') == 4 and '6 of 300 ranks' in done.stdout


def test_the_name_of_a_drawing_says_what_it_is(tmp_path):
    assert goal('draw', '-', '-o', tmp_path / 'a.dot', text=SMALL).returncode == 0
    assert (tmp_path / 'a.dot').read_text().startswith('digraph')
    done = goal('draw', '-', '-o', tmp_path / 'a.png', text=SMALL)
    assert done.returncode == 2 and 'OUT is SVG' in done.stderr and not (tmp_path / 'a.png').exists()


def test_ranks_that_there_are_not_cannot_be_drawn():
    done = goal('draw', '--ranks', '0,7', '-', text=SMALL)
    assert done.returncode == 1 and not done.stdout
    assert done.stderr == 'sluice: goal draw: standard input: there is no rank 7: num_ranks is 1\n'


def test_a_receive_that_leads_to_its_own_message_can_be_drawn():
    text = 'num_ranks 1 rank 0 { r: recv 8b from 0; s: send 8b to 0; s irequires r }'
    assert len(boxes(goal('draw', '-', text=text).stdout)) == 2


def test_dot_has_clusters_requirements_and_messages(tmp_path):
    done = goal('draw', '--dot', '-', text=EXCHANGE)
    assert done.stdout.count('subgraph') == 2 and done.stdout.count(' -> ') == 4
    assert 'label="a: send 8b to 1 tag 0"' in done.stdout
    if shutil.which('dot'):
        subprocess.run(['dot', '-Tsvg'], input=done.stdout, check=True, text=True, capture_output=True)


# ---- LogGOPSim's binary files -------------------------------------------------------------------------

ANY = 0xffffffff


def binary(ranks, cookie=4223):
    """A file as txt2bin writes it. ranks: operations (kind, peer, bytes, tag, cpu, nic), then pairs (number
    of an operation, number of one that requires its end) and pairs for beginnings."""
    schedules = []
    for ops, ends, begins in ranks:
        requires = [sum(to == i for _, to in ends + begins) for i in range(len(ops))]
        roots = [i for i, n in enumerate(requires) if not n]
        nodes, lists = b'', []
        for i, (kind, peer, size, tag, cpu, nic) in enumerate(ops):
            nodes += struct.pack('<IBIQIBB', requires[i], kind, peer, size, tag, cpu, nic)
            for edges in (ends, begins):
                mine = [to for at, to in edges if at == i]
                nodes += struct.pack('<II', len(mine), len(lists))
                lists += mine
        schedules.append(struct.pack(f'<II{len(roots)}I', len(ops), len(roots), *roots) + nodes +
                         struct.pack(f'<{len(lists)}I', *lists))
    at, jumps = 6 + 16 * len(ranks), b''
    for s in schedules:
        jumps += struct.pack('<QQ', at, at + len(s))
        at += len(s)
    return struct.pack('<QIBB', cookie, len(ranks), 0, 0) + jumps + b''.join(schedules)


PAIR_OF_RANKS = [([(3, 0, 5, 0, 1, 0), (1, 1, 10, 3, 0, 2), (3, 0, 7, 0, 0, 0)], [(0, 1)], [(1, 2)]),
                 ([(2, ANY, 10, ANY, 0, 0)], [], [])]
THE_SAME_AS_TEXT = '''num_ranks 2
rank 0 { a: calc 5 cpu 1; b: send 10b to 1 tag 3 nic 2; c: calc 7; b requires a; c irequires b }
rank 1 { recv 10b from -1 tag -1 }
'''


def test_a_binary_file_of_loggopsim_is_read(tmp_path):
    file = tmp_path / 'x.bin'
    file.write_bytes(binary(PAIR_OF_RANKS))
    expected = goal('print', '-', text=THE_SAME_AS_TEXT).stdout
    assert 'irequires' in expected and goal('print', file).stdout == expected
    assert goal('compile', file, '-o', tmp_path / 'program').returncode == 0
    assert goal('print', tmp_path / 'program').stdout == expected
    assert 'no mistakes' in goal('check', file).stdout
    assert goal('sim', file, '--json').returncode == 0


@pytest.mark.parametrize('change, says', [
    (lambda b: struct.pack('<Q', 2342) + b[8:], 'has used up this binary file (--save-mem)'),
    (lambda b: b[:-1], 'rank 1: damaged'),
    (lambda b: b[:12], 'LogGOPSim: damaged'),
    (lambda b: binary([([(3, 0, 1, 0, 0, 0)] * 2, [(0, 1), (1, 0)], [])]),
     'rank 0: its requirements form a cycle'),
    (lambda b: binary([([(1, 7, 1, 0, 0, 0)], [], [])]), 'rank 0: damaged'),
    (lambda b: binary([([(9, 0, 1, 0, 0, 0)], [], [])]), 'rank 0: damaged'),
])
def test_a_damaged_binary_file_of_loggopsim_is_told_in_one_line(change, says, tmp_path):
    file = tmp_path / 'x.bin'
    file.write_bytes(change(binary(PAIR_OF_RANKS)))
    done = goal('check', file)
    assert (done.returncode, done.stdout) == (1, '')
    assert says in done.stderr and done.stderr.count('\n') == 1


# ---- merge -------------------------------------------------------------------------------------------------

def ranks_of_jobs(text):
    """[[rank of the machine of each rank of a job]], from the comments."""
    jobs = []
    for ranges in re.findall(r'^// .*: ranks ([\d,-]+)$', text, re.M):
        ends = [[int(n) for n in part.split('-')] for part in ranges.split(',')]
        jobs.append([r for end in ends for r in range(end[0], end[-1] + 1)])
    return jobs


def ends(path, *args):
    r = goal('sim', path, '--json', '--times', '--path', '0', *args)
    assert r.returncode == 0, r.stderr
    return json.loads(r.stdout)['rank_end_ps']


@pytest.fixture
def jobs(tmp_path):
    paths = tmp_path / 'ring.goal', tmp_path / 'tree.goal', tmp_path / 'pong.goal'
    for path, args in zip(paths, ('ring-allgather -n 5 -s 1K', 'binomial-bcast -n 8 -s 64K --root 3',
                                 'ping-pong -n 2')):
        assert goal('gen', *args.split(), '-o', path).returncode == 0
    return paths


@pytest.mark.parametrize('placement, ranks', [('packed', 15), ('cyclic', 15), ('random', 15), ('random', 40)])
def test_merged_jobs_end_as_alone_wherever_they_are(jobs, tmp_path, placement, ranks):
    out = tmp_path / 'all.goal'
    r = goal('merge', *jobs, '--placement', placement, '--ranks', ranks, '-o', out)
    assert r.returncode == 0 and r.stdout == r.stderr == ''
    assert goal('check', '--strict', out).returncode == 0
    places, both = ranks_of_jobs(out.read_text()), ends(out)
    assert len(both) == ranks and len({r for job in places for r in job}) == 15
    for path, place in zip(jobs, places):
        assert [both[r] for r in place] == ends(path)
    if placement == 'packed':
        assert places == [list(range(5)), list(range(5, 13)), [13, 14]]
    if placement == 'cyclic':
        assert places == [[0, 3, 6, 8, 10], [1, 4, 7, 9, 11, 12, 13, 14], [2, 5]]
    again = goal('merge', *jobs, '--placement', placement, '--ranks', ranks, '--seed', 1).stdout
    assert again == out.read_text()
    if placement == 'random':
        assert goal('merge', *jobs, '--placement', 'random', '--ranks', ranks, '--seed', 2).stdout != again


def test_any_source_and_one_sided_operations_keep_to_their_job(tmp_path):
    one = tmp_path / 'one.goal'
    one.write_text('num_ranks 2; rank 0 { recv 8b from any tag any } rank 1 { send 8b to 0 tag 4 }\n')
    text = goal('merge', one, one, '--placement', 'cyclic').stdout
    assert 'from -1 tag -1' in text and text.count('send 8b to 0') == 1 and text.count('send 8b to 1') == 1


@pytest.mark.parametrize('args, code, says', [
    ((), 2, 'goal merge: no FILE;'),
    (('--placement', 'best'), 2, "--placement cannot be 'best'"),
    (('--ranks', 'x'), 2, "--ranks cannot be 'x'"),
    (('--ranks', '0'), 2, "--ranks cannot be '0'"),
    (('--seed', '-1'), 2, "--seed cannot be '-1'"),
    (('--ranks', '3'), 1, 'goal merge: 15 ranks do not fit on 3'),
    (('no-such.goal',), 1, 'no-such.goal'),
    (('-o', '/dev/full'), 1, 'cannot write /dev/full: No space left'),
])
def test_wrong_merges_are_refused(jobs, args, code, says):
    r = goal('merge', *(jobs if args else ()), *args)
    assert r.returncode == code and says in r.stderr and r.stderr.count('\n') == 1


def test_more_than_64_files_are_refused(jobs):
    r = goal('merge', *[jobs[2]] * 65)
    assert r.returncode == 2 and 'goal merge: more than 64 files' in r.stderr
    assert ranks_of_jobs(goal('merge', *[jobs[2]] * 64).stdout)[63] == [126, 127]
