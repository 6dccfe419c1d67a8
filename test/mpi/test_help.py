# SPDX-License-Identifier: BSD-3-Clause
"""The examples in the help of verbs that measure for minutes, as they are printed. By name only:
./dev check mpi --complete -k examples_of_the_help"""
import re
import subprocess

import pytest

from support.paths import SLUICE


@pytest.mark.complete
@pytest.mark.timeout(3600)
@pytest.mark.parametrize('verb', ['bench', 'tune'])
def test_the_examples_of_the_help_work(get_mpi, verb, tmp_path):
    mpi = get_mpi('mpich')
    env = {**mpi.env(), 'XDG_CONFIG_HOME': str(tmp_path / 'config')}
    env['PATH'] = f'{SLUICE.parent}:{env["PATH"]}'
    text = subprocess.run([SLUICE, verb, '--help'], env=env, capture_output=True, text=True,
                          check=True).stdout
    block = re.search(r'^Examples:\n((?:  .*\n)+)', text, re.M).group(1)
    for line in block.splitlines():
        done = subprocess.run(line, shell=True, cwd=tmp_path, env=env, capture_output=True, text=True,
                              timeout=1800)
        assert done.returncode == 0 and done.stdout, f'{line}\n{done.stdout}\n{done.stderr}'
