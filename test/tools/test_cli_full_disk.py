# SPDX-License-Identifier: BSD-3-Clause
"""A full disk behind stdout: one line, and exit code 1."""
import os
import subprocess

import pytest

from cli import SLUICE, plain_env

WORDS = ['info', 'info --json', 'bench --list', 'bench --help', 'tune --help', 'trace --help', 'run --help',
         'goal --help', '--help',
         '--version']


@pytest.mark.parametrize('words', WORDS)
def test_a_full_disk_behind_stdout_is_one_line(words):
    if not os.access('/dev/full', os.W_OK):
        pytest.skip('no /dev/full here')
    with open('/dev/full', 'w') as full:
        done = subprocess.run([SLUICE, *words.split()], env=plain_env(), text=True, stdout=full,
                              stderr=subprocess.PIPE, timeout=60)
    assert done.returncode == 1, done.stderr
    lines = done.stderr.splitlines()
    assert len(lines) == 1 and lines[0].startswith('sluice: ') and lines[0].endswith('cannot write: No '
                                                                                     'space left on device')
