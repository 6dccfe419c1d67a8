# SPDX-License-Identifier: BSD-3-Clause
"""What can be said of the sources without building them. Run alone: ./dev check lint"""
import shutil
import subprocess
import sys

import pytest

from support.paths import ROOT


@pytest.mark.parametrize('script', ['check_layers', 'check_source', 'check_signal_safety',
                                    'check_freestanding',
                                    'check_links'])
def test_source(script):
    done = subprocess.run([sys.executable, ROOT / f'scripts/{script}.py'], capture_output=True, text=True)
    assert done.returncode == 0, done.stdout + done.stderr


def test_layers_check_finds_a_forbidden_edge(tmp_path):
    """The check itself: an upward include, a private header and a foreign one are each reported."""
    (tmp_path / 'scripts').mkdir()
    (tmp_path / 'scripts/layers').write_text((ROOT / 'scripts/layers').read_text())
    for folder, text in {'base': '#include "rt/rt.h"\n', 'rt': '#include "node/private.h"\n',
                         'os': '#include <mpi.h>\nint f(void) { return getenv("X") != 0; }\n'}.items():
        (tmp_path / 'src' / folder).mkdir(parents=True)
        (tmp_path / 'src' / folder / 'x.c').write_text(text)
    done = subprocess.run([sys.executable, ROOT / 'scripts/check_layers.py', '--root', tmp_path],
                          capture_output=True, text=True)
    assert done.returncode == 1
    for expected in ['base may not include rt', 'private to node', '<mpi.h>', 'getenv']:
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
    done = subprocess.run([sys.executable, ROOT / 'scripts/check_links.py', '--root', tmp_path],
                          capture_output=True,
                          text=True)
    assert done.returncode == 1 and 'is-here' not in done.stdout, done.stdout
    for expected in ['gone.md is not', 'no such heading', 'x.c: doc/adr/0007', 'the number 0001']:
        assert expected in done.stdout


def test_signal_safety_check_finds_a_forbidden_call(tmp_path):
    """The check itself: setenv in a function that the handler of SIGSEGV reaches through another file."""
    for folder in ('src', 'include'):
        shutil.copytree(ROOT / folder, tmp_path / folder)
    guard = tmp_path / 'src/guard/guard.c'
    guard.write_text('#include <stdlib.h>\n' + guard.read_text().replace(
        'static void publish_bounds(void)\n{', 'static void publish_bounds(void)\n{\n\tsetenv("A", "b", 1);'))
    done = subprocess.run([sys.executable, ROOT / 'scripts/check_signal_safety.py', '--root', tmp_path],
                          capture_output=True, text=True)
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
    verify.write_text(f'#include <{header}>\n' + verify.read_text().replace(
        'uint32_t goal_dtype_bytes(uint32_t dtype) {', 'uint32_t goal_dtype_bytes(uint32_t dtype) { ' +
        statement))
    done = subprocess.run([sys.executable, ROOT / 'scripts/check_freestanding.py', '--root', tmp_path],
                          capture_output=True, text=True)
    assert done.returncode == 1
    assert complaint in done.stdout
