# SPDX-License-Identifier: BSD-3-Clause
"""Checks of the sources and of the build. Run alone: ./dev check lint"""
import re
import shutil
import subprocess
import sys

import pytest

from support.paths import ROOT


def run(script, *args):
    return subprocess.run([sys.executable, ROOT / 'scripts' / script, *args], capture_output=True, text=True)


@pytest.mark.parametrize('script', ['check_layers', 'check_source', 'check_words', 'check_signal_safety',
                                    'check_freestanding', 'check_links', 'check_callers', 'check_size'])
def test_source(script):
    done = run(f'{script}.py')
    assert done.returncode == 0, done.stdout + done.stderr


def test_layers_check_finds_a_forbidden_edge(tmp_path):
    """The check itself: an upward include, a private header and a foreign one are each reported."""
    (tmp_path / 'scripts').mkdir()
    (tmp_path / 'scripts/layers').write_text((ROOT / 'scripts/layers').read_text())
    for folder, text in {'policy': 'int g(void) { return base_opt.hier; }\n',
                         'base': '#include "rt/rt.h"\n', 'rt': '#include "node/private.h"\n',
                         'os': '#include <mpi.h>\nint f(void) { return getenv("X") != 0; }\n'}.items():
        (tmp_path / 'src' / folder).mkdir(parents=True)
        (tmp_path / 'src' / folder / 'x.c').write_text(text)
    done = run('check_layers.py', '--root', tmp_path)
    assert done.returncode == 1
    for expected in ['base may not include rt', 'private to node', '<mpi.h>', 'getenv',
                     'policy may not use base_opt']:
        assert expected in done.stdout


def test_links_check_finds_what_is_not_there(tmp_path):
    """The check itself: a page, a heading and a page in a comment that are not there; a number used twice."""
    for folder in ('src', 'doc/adr'):
        (tmp_path / folder).mkdir(parents=True)
    doc = 'doc'  # apart from what follows, so that this file names nothing that is not there
    (tmp_path /
     'README.md').write_text(f'[a]({doc}/gone.md) [b]({doc}/here.md#gone) [c]({doc}/here.md#is-here)')
    (tmp_path / doc / 'here.md').write_text('# Is here\n')
    (tmp_path / 'src/x.c').write_text(f'/* why: {doc}/adr/0007-lost.md */')
    for name in ('0001-a.md', '0001-b.md'):
        (tmp_path / 'doc/adr' / name).write_text('# 1\n')
    done = run('check_links.py', '--root', tmp_path)
    assert done.returncode == 1 and 'is-here' not in done.stdout, done.stdout
    for expected in ['gone.md is not', 'no such heading', 'x.c: doc/adr/0007', 'the number 0001']:
        assert expected in done.stdout


def test_signal_safety_check_finds_a_forbidden_call(tmp_path):
    """The check itself: setenv in a function that the handler of SIGSEGV reaches through another file."""
    for folder in ('src', 'include'):
        shutil.copytree(ROOT / folder, tmp_path / folder)
    for source in (tmp_path / 'src').rglob('*.c'):  # what is not compiled calls nothing
        if source.parent.name != 'guard':
            source.unlink()
    guard = tmp_path / 'src/guard/guard.c'
    guard.write_text('#include <stdlib.h>\n' + guard.read_text().replace(
        'static void publish_bounds(void)\n{', 'static void publish_bounds(void)\n{\n\tsetenv("A", "b", 1);'))
    done = run('check_signal_safety.py', '--root', tmp_path)
    assert done.returncode == 1
    assert 'publish_bounds calls setenv' in done.stdout


@pytest.mark.parametrize('header, statement, complaint', [
    ('stdlib.h', 'free(0);', 'stdlib.h'),
    ('stddef.h', 'extern int printf(const char *, ...); printf("%p", (void *)0);', 'calls printf'),
    ('stddef.h', 'volatile double d = 1; d = d * 2;', 'SSE'),
])
def test_freestanding_check_finds_a_libc(tmp_path, header, statement, complaint):
    """The check itself: a header of the libc, a function of it, floating point in the verifier."""
    shutil.copytree(ROOT / 'src/goal', tmp_path / 'src/goal', ignore=shutil.ignore_patterns('kernels*',
                                                                                            'local.c'))
    verify = tmp_path / 'src/goal/verify.c'
    text, count = re.subn(r'(uint32_t goal_dtype_bytes\(uint32_t dtype\)\s*{)',
                          lambda match: f'{match.group(1)} {statement}', verify.read_text())
    assert count == 1
    verify.write_text(f'#include <{header}>\n{text}')
    done = run('check_freestanding.py', '--root', tmp_path)
    assert done.returncode == 1
    assert complaint in done.stdout


def test_source_check_finds_long_lines_and_functions(tmp_path):
    (tmp_path / 'src').mkdir()
    licence = '/* SPDX-License-Identifier: BSD-3-Clause */\n'
    (tmp_path / 'src/wide.c').write_text(f'{licence}\tint {"x" * 90};\n')
    (tmp_path / 'src/long.c').write_text(f'{licence}int f(void)\n{{\n' + '\tg();\n' * 60 + '}\n')
    done = run('check_source.py', '--root', tmp_path)
    assert done.returncode == 1
    for expected in ['wide.c:2: 103 columns', 'f() has 62 lines']:
        assert expected in done.stdout


def test_words_check_finds_retired_words_and_comments_without_a_subject(tmp_path):
    for folder in ('src/x', 'scripts'):
        (tmp_path / folder).mkdir(parents=True)
    shutil.copy(ROOT / 'scripts/glossary', tmp_path / 'scripts')
    (tmp_path / 'scripts/words-allowed').write_text('src/x fold_all\n')
    (tmp_path / 'src/x/x.c').write_text('/* Of the call: which is over. */\nint fold_all, board_of;\n'
                                        '/* The board. */ // "fold_one"\n')
    (tmp_path / 'src/x/x.py').write_text('"""Reads a file."""\n# Who calls it.\nleft = 1\n')
    done = run('check_words.py', '--root', tmp_path)
    assert done.returncode == 1 and 'fold_' not in done.stdout, done.stdout
    for expected in ['x.c:2: board_of', 'x.c:1: a comment begins "Of the call', 'x.py:2: a comment begins',
                     'src/x: 2 such comments, 0 are allowed']:
        assert expected in done.stdout


def test_callers_check_finds_a_function_that_only_tests_call(tmp_path):
    for folder in ('src/x', 'scripts', 'include', 'build/src', 'build/tools'):
        (tmp_path / folder).mkdir(parents=True)
    (tmp_path / 'scripts/callers-allowed').write_text('x_kept: a reason\nx_used: none\n')
    source = tmp_path / 'src/x/x.c'
    source.write_text('int x_used(void) { return 1; }\nint x_lost(void) { return x_used(); }\n'
                      'int x_kept(void)\n{\n\treturn 0; /* not x_lost() */\n}\n')
    subprocess.run(['cc', '-c', source, '-o', tmp_path / 'build/src/x.o'], check=True)
    done = run('check_callers.py', '--root', tmp_path, tmp_path / 'build')
    assert done.returncode == 1
    assert done.stdout.splitlines() == ['x_lost: no caller in the product',
                                        'scripts/callers-allowed: x_used is not needed']


def test_layers_check_finds_included_sources(tmp_path):
    (tmp_path / 'scripts').mkdir()
    (tmp_path / 'scripts/layers').write_text('base:\nrt: base\n')
    (tmp_path / 'src/rt').mkdir(parents=True)
    (tmp_path / 'src/rt/x.c').write_text('#include "y.c"\n#include "../base/private.h"\n')
    done = run('check_layers.py', '--root', tmp_path)
    assert done.returncode == 1 and done.stdout.count('are not included') == 2, done.stdout


@pytest.mark.parametrize('path, tests', [
    ('src/xfer/protocol.c', ['test/unit/test_xfer_protocol.c', 'test/mpi/test_semantics.py', 'unit_xfer']),
    ('src/sud/fault.c', ['test/unit/test_sud_fault.c', 'test/mpi/test_early.py',
                         'test/mpi/programs/early_touch.c']),
    ('tools/sluice/goal_sim.c', ['test/tools/test_cli_goal_sim.py']),
    ('test/mpi/programs/memory.c', ['test/mpi/test_memory.py', 'test/mpi/quick.py']),
])
def test_tests_of_a_file(path, tests):
    done = run('tests_of', ROOT / path)
    assert done.returncode == 0, done.stderr
    for test in tests:
        assert test in done.stdout


def test_each_folder_has_tests_and_the_map_names_what_is_there():
    lines = [line.split() for line in (ROOT / 'scripts/tests_map').read_text().splitlines()
             if not line.startswith('#')]
    for path, *tests in lines:
        assert tests and all((ROOT / test).exists() for test in tests), path
        path = ROOT / path.rstrip(':')
        assert path.exists() or list(path.parent.glob(f'{path.name}[_.]*')), path
    heads = {path.rstrip(':') for path, *_ in lines}
    folders = {f'src/{p.name}' for p in (ROOT / 'src').iterdir() if p.is_dir()}
    assert folders <= heads, sorted(folders - heads)


def test_quick_runs_every_mpi_program_or_says_where_it_runs():
    text = (ROOT / 'test/mpi/quick.py').read_text()
    block = text.partition('ELSEWHERE = {')[2].partition('\n}')[0]
    for name in re.findall(r"^    '([\w.]+)':", block, re.M):
        assert (ROOT / 'test/mpi/programs' / name).exists(), name
