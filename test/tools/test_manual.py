# SPDX-License-Identifier: BSD-3-Clause
"""The manual: every option, counter and verb is in it, and it is well-formed."""
import json
import re
import shutil
import subprocess

import pytest

from cli import PREFIX, ROOT, sluice

PAGES = ('man1/sluice.1', 'man1/sluice-run.1', 'man1/sluice-info.1', 'man1/sluice-trace.1',
         'man1/sluice-check.1', 'man1/sluice-report.1', 'man1/sluice-goal.1',
         'man1/sluice-goal-sim.1', 'man1/sluice-bench.1', 'man1/sluice-tune.1', 'man5/sluice-bench-json.5',
         'man5/sluice-goal.5',
         'man5/sluice-goal-text.5', 'man7/sluice.7', 'man3/sluice-goal-build.3', 'man3/sluice-goal-run.3',
         'man3/sluice_version.3', 'man3/sluice-endpoints.3', 'man7/sluice-endpoints.7')


def page(name):
    return (PREFIX / 'share/man' / name).read_text()


def plain(text):
    return text.replace('\\-', '-')


def test_every_option_is_in_the_page_with_meaning_and_default():
    text = plain(page('man7/sluice.7')) + plain(page('man1/sluice-tune.1'))
    options = json.loads(sluice('info', '--json').stdout)['options']
    assert len(options) > 10
    for o in options:
        entry = text[text.index(f'.TP\n.B {o["name"]}\n') + 4:].split('.TP')[0]
        assert o['meaning'] in entry and o['accepts'] in entry
        assert f'default {o["default"] or "none"}.' in entry


def test_every_counter_is_in_the_page():
    text = plain(page('man7/sluice.7'))
    source = (ROOT / 'src/base/base.h').read_text()
    counters = re.findall(r'X\(\w+, "(\w+)", "(.*)"\)', source)
    assert counters
    for name, meaning in counters:
        assert f'.B {name}\n{meaning}\n' in text


@pytest.mark.parametrize('verb', ['run', 'info', 'check', 'trace', 'bench', 'tune'])
def test_every_option_of_a_verb_is_in_its_page(verb):
    usage = sluice(verb, '--help').stdout
    text = plain(page(f'man1/sluice-{verb}.1'))
    for flag in set(re.findall(r'--[a-z]+(?:-[a-z]+)*', usage)):
        assert flag in text


@pytest.mark.parametrize('name', PAGES)
def test_the_page_is_well_formed(name):
    assert not re.search('@[A-Z]', page(name))
    # a macro of two fonts prints its arguments without spaces between them
    assert not re.search(r'^\.[BIR][BIR](?: (?:"[^"\n]*"|[^"\s]+))*?(?: [A-Za-z]{2,}){3}', page(name), re.M)
    if not shutil.which('groff'):
        pytest.skip('groff is not here')
    done = subprocess.run(['groff', '-man', '-ww', '-z', PREFIX / 'share/man' / name],
                          capture_output=True, text=True, check=True)
    assert done.stderr == ''


def public_functions():
    """The functions that the libraries export, and those that sluice/goal_mpi.h adds."""
    symbols = subprocess.run(['nm', '-D', '--defined-only', PREFIX / 'lib/libsluice-goal.so'], check=True,
                             capture_output=True, text=True).stdout
    names = set(re.findall(r' T (sluice_\w+)', symbols)) | {'sluice_version', 'sluice_goal_group_mpi'}
    names |= {f'sluice_endpoints_{verb}' for verb in ('here', 'yield', 'offer', 'pointer')}
    assert len(names) > 30
    return sorted(names)


def test_every_public_function_has_a_page_with_its_declaration_and_meaning():
    for name in public_functions():
        text = page(f'man3/{name}.3')
        if text.startswith('.so '):
            text = page(text.split()[1])
        text = plain(text)
        assert re.search(rf'^\S.*\b{name}\(', text.split('.SH SYNOPSIS')[1].split('.SH')[0], re.M), name
        assert re.search(rf'^\.B .*\b{name}\(\)', text.split('.SH DESCRIPTION')[1], re.M), name


@pytest.mark.parametrize('name, out', [('sluice-goal-build', 'buffer 0 has at least 16 bytes\n'),
                                       ('sluice-goal-run', '42\n'),
                                       ('sluice_version', 'Sluice is not loaded\n'),
                                       ('sluice-endpoints', '0 others are here\n')])
def test_the_examples_of_section_3_run(name, out, tmp_path):
    source = plain(page(f'man3/{name}.3')).split('.SH EXAMPLE')[1].split('.fi')[0]
    source = source.split('#include', 1)[1]
    (tmp_path / 'x.c').write_text('#include' + source.replace('\\e', '\\'))
    subprocess.run(['gcc', '-Wall', '-Werror', f'-I{PREFIX}/include', f'-L{PREFIX}/lib', '-o', tmp_path / 'x',
                    tmp_path / 'x.c', '-lsluice-goal', f'-Wl,-rpath,{PREFIX}/lib'], check=True)
    done = subprocess.run([tmp_path / 'x'], capture_output=True, text=True)
    assert (done.returncode, done.stdout, done.stderr) == (0, out, '')
