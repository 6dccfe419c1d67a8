# SPDX-License-Identifier: BSD-3-Clause
"""libFuzzer over blocks of schedules: a few seconds, and longer by name. Needs clang.
Run alone: ./dev check -k fuzz; for an hour: FUZZ_SECONDS=3600 ./dev check -k fuzz"""
import os
import pathlib
import shutil
import subprocess

import pytest

from support.paths import BUILD, ROOT

HERE = pathlib.Path(__file__).resolve().parent
COMMON = ['-g', '-O1', '-std=gnu11', '-D_GNU_SOURCE', f'-I{ROOT}/src']


def compile_with(compiler, out, flags, *sources):
    done = subprocess.run([compiler, *COMMON, *flags, '-o', out, *sources], capture_output=True,
                          text=True, timeout=300)
    if done.returncode and 'libclang_rt' in done.stderr:
        pytest.skip('clang has no fuzzer library here')
    assert done.returncode == 0, done.stderr
    return out


def fuzz(seconds, where):
    if not shutil.which('clang'):
        pytest.skip('clang is not installed')
    corpus = BUILD / 'fuzz/goal'  # kept: later runs begin where this one ends
    corpus.mkdir(parents=True, exist_ok=True)
    seed = compile_with('clang', where / 'seed', [], HERE / 'seed_goal.c',
                        ROOT / 'src/goal/goal.c', ROOT / 'src/coll/flat.c')
    subprocess.run([seed, corpus], check=True, timeout=60)
    target = compile_with('clang', where / 'fuzz_goal', ['-fsanitize=fuzzer,address,undefined'],
                          HERE / 'fuzz_goal.c', ROOT / 'src/goal/goal.c')
    done = subprocess.run([target, f'-max_total_time={seconds}', '-max_len=1500', '-timeout=5',
                           '-rss_limit_mb=1024', corpus], cwd=where, capture_output=True, text=True,
                          errors='replace', timeout=seconds + 240)
    assert done.returncode == 0, done.stderr[-4000:]


def test_fuzz_goal(tmp_path):
    fuzz(int(os.environ.get('FUZZ_SECONDS', '3')), tmp_path)
