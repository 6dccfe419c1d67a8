# SPDX-License-Identifier: BSD-3-Clause
"""Completion: what the shells offer, asked of the shells; bash always, the others where they are
installed."""
import json
import re
import shutil
import subprocess

import pytest

from cli import PREFIX, plain_env, sluice

BASH = PREFIX / 'share/bash-completion/completions/sluice'
ZSH = PREFIX / 'share/zsh/site-functions/_sluice'
FISH = PREFIX / 'share/fish/vendor_completions.d/sluice.fish'
# Words as bash cuts them: at blanks, and '=' is a word of its own.
ASK = '''
source "$1"; shift
COMP_WORDS=("$@"); COMP_CWORD=$(($# - 1))
_sluice
printf '%s\\n' "${COMPREPLY[@]}"
'''


def offered(*words, cwd=None):
    done = subprocess.run(['bash', '--norc', '-c', ASK, 'bash', BASH, 'sluice', *words], env=plain_env(),
                          capture_output=True, text=True, timeout=30, cwd=cwd)
    assert done.returncode == 0, done.stderr
    return sorted(done.stdout.split('\n'))[1:] if done.stdout.strip() else []


def verbs():
    return re.findall(r'^  ([a-z]+) {2,}', sluice('--help').stdout.split('Examples:')[0], re.M)


def test_verbs_are_those_of_the_help():
    assert offered('') == sorted([*verbs(), '--help', '--version'])
    assert offered('i') == ['info'] and offered('t') == ['trace', 'tune']
    assert 'check' in offered('goal', '') and offered('goal', 'co') == ['compile']


@pytest.mark.parametrize('verb', ['run', 'info', 'check', 'trace', 'report', 'bench', 'tune', 'goal check',
                                  'goal gen',
                                  'goal sim'])
def test_every_flag_of_a_verb_is_offered(verb):
    words = verb.split()
    usage = sluice(*words, '--help').stdout.split('Examples:')[0]
    for flag in set(re.findall(r'(?<![\w-])--[a-z-]+[a-z]', usage)):
        assert flag in offered(*words, '--'), flag


def test_every_option_can_be_set_and_its_values_are_offered():
    options = json.loads(sluice('info', '--json').stdout)['options']
    names = [o['name'][7:] + '=' for o in options if o['name'].startswith('SLUICE_')]
    assert offered('run', '--set', '') == sorted(names)
    assert offered('run', '--set', 'guard') == ['GUARD_KIND=']
    takes = next(o for o in options if o['name'] == 'SLUICE_GUARD_KIND')['accepts']
    kinds = sorted(takes.replace(' or ', ', ').split(', '))
    assert offered('run', '--set', 'GUARD_KIND', '=') == kinds
    assert offered('run', '--set', 'guard_kind', '=', 'mp') == ['mprotect']
    assert offered('run', '--set', 'SLUICE_GUARD_KIND', '=', 'mp') == ['mprotect']
    assert offered('run', '--set', 'COLL_THRESHOLD', '=') == []


def test_the_program_is_a_command_and_its_arguments_are_files(tmp_path):
    (tmp_path / 'input.dat').touch()
    assert 'bash' in offered('run', 'bas', cwd=tmp_path)
    assert 'bash' in offered('run', '--set', 'LOG', '=', 'info', '--mpi', '/opt', 'bas', cwd=tmp_path)
    assert offered('run', './app', 'in', cwd=tmp_path) == ['input.dat']
    assert offered('run', './app', '--js', cwd=tmp_path) == []  # an option of the program's
    assert offered('goal', 'check', 'in', cwd=tmp_path) == ['input.dat']
    assert offered('tune', '-o', 'in', cwd=tmp_path) == ['input.dat']
    assert offered('tune', '-n', '', cwd=tmp_path) == []


@pytest.mark.parametrize('shell, script', [('zsh', ZSH), ('fish', FISH)])
def test_other_shells_can_read_theirs(shell, script):
    assert script.read_text().count('sluice') > 10
    if not shutil.which(shell):
        pytest.skip(f'{shell} is not here')
    subprocess.run([shell, '--no-execute' if shell == 'fish' else '-n', script], check=True, timeout=30)


def test_fish_offers_verbs_and_settings():
    if not shutil.which('fish'):
        pytest.skip('fish is not here')

    def ask(line):
        text = f'source {FISH}; complete -C "{line}"'
        done = subprocess.run(['fish', '--no-config', '-c', text], capture_output=True, text=True, timeout=30,
                              env=plain_env(PATH=f'{PREFIX}/bin:/usr/bin:/bin'))
        return [row.split('\t')[0] for row in done.stdout.splitlines()]

    assert set(verbs()) <= set(ask('sluice '))
    assert '--dry-run' in ask('sluice tune --')
    assert 'GUARD_KIND=mprotect' in ask('sluice run --set GUARD')
