# SPDX-License-Identifier: BSD-3-Clause
"""Every unit test that Meson knows, each as a test of its own. Run alone: ./dev check unit -k NAME"""
import json
import os
import re
import subprocess

import pytest

from support.paths import BUILD, ROOT


def known_to_meson(build):
    """Names and commands as Meson wrote them when it configured."""
    listing = BUILD / build / 'meson-info/intro-tests.json'
    return json.loads(listing.read_text()) if listing.exists() else []


# A failed test: its own lines, also those of its child processes, stand before the verdict.
FAILURE = re.compile(r'(?:^(?!(?:ok|FAILED|skipped) ).*\n)*^FAILED .*$', re.M)


def run_one(test, env=None, patience=4):
    whole = {**os.environ, **test['env'], **(env or {})}
    done = subprocess.run(test['cmd'], cwd=test['workdir'] or ROOT, env=whole, capture_output=True,
                          text=True, errors='replace', stdin=subprocess.DEVNULL,
                          timeout=test['timeout'] * patience)
    if done.returncode == 77:
        pytest.skip((done.stderr or done.stdout).strip()[-200:] or 'skipped by the test')
    text = f'{done.stdout}\n{done.stderr}'
    failed = FAILURE.findall(text) or [text[-4000:]]
    assert done.returncode == 0, (f'exit {done.returncode}\nrun alone: {" ".join(test["cmd"])}\n'
                                  + '\n'.join(failed)[-8000:])


@pytest.mark.parametrize('test', known_to_meson('dev'), ids=lambda t: t['name'])
def test_unit(test):
    run_one(test)
