# SPDX-License-Identifier: BSD-3-Clause
"""The protocols in shared memory as Promela models, every interleaving of them, by Spin; and each
model with what it must not survive. Run alone: ./dev check -k model; one by hand:
spin -run -DNO_LOOK engine.pml"""
import pathlib
import re
import shutil
import subprocess

import pytest

HERE = pathlib.Path(__file__).resolve().parent
MODELS = sorted(p.stem for p in HERE.glob('*.pml'))


def mutants(model):
    """Mutants of the model: upper-case names that it tests with #ifdef or #ifndef."""
    text = (HERE / f'{model}.pml').read_text()
    return sorted(set(re.findall(r'^#ifn?def (\w+)', text, re.MULTILINE)))


def errors(model, mutant, where):
    """Number of errors that the search of all states finds; without one it must be complete."""
    flags = [f'-D{mutant}'] if mutant else []
    subprocess.run(['spin', '-a', *flags, HERE / f'{model}.pml'], cwd=where, check=True,
                   capture_output=True, timeout=60)
    subprocess.run(['cc', '-w', '-O2', '-o', 'pan', 'pan.c'], cwd=where, check=True,
                   capture_output=True, timeout=120)
    done = subprocess.run(['./pan', '-m1000000'], cwd=where, check=True, capture_output=True,
                          text=True, timeout=120)
    found = re.search(r'errors: (\d+)', done.stdout)
    assert found, done.stdout + done.stderr
    assert int(found.group(1)) or 'Search not completed' not in done.stdout, done.stdout
    return int(found.group(1)), done.stdout


def need_spin():
    if not shutil.which('spin') or not shutil.which('cc'):
        pytest.skip('spin or a C compiler is not installed')


@pytest.mark.parametrize('model', MODELS)
def test_model_holds(model, tmp_path):
    need_spin()
    count, text = errors(model, None, tmp_path)
    assert count == 0, text


@pytest.mark.parametrize('model, mutant', [(m, x) for m in MODELS for x in mutants(m)])
def test_broken_model_is_caught(model, mutant, tmp_path):
    need_spin()
    count, text = errors(model, mutant, tmp_path)
    assert count > 0, text
