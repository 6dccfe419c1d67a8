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
         'man5/sluice-goal-text.5', 'man7/sluice.7')


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
    if not shutil.which('groff'):
        pytest.skip('groff is not here')
    done = subprocess.run(['groff', '-man', '-ww', '-z', PREFIX / 'share/man' / name],
                          capture_output=True, text=True, check=True)
    assert done.stderr == ''
