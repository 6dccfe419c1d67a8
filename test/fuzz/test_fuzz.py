# SPDX-License-Identifier: BSD-3-Clause
"""libFuzzer over input from outside the program: some seconds in the default check, a minute by
./dev check fuzz, an hour each by FUZZ_SECONDS=3600 ./dev check fuzz. The corpora are kept, so that each
run goes on where the last one ended. Needs clang."""
import concurrent.futures
import os
import pathlib
import shutil
import subprocess

import pytest

from support.build import compile_once
from support.paths import BUILD, ROOT

HERE = pathlib.Path(__file__).resolve().parent
FUZZ = BUILD / 'fuzz'
COMMON = ['-g', '-O1', '-std=gnu11', '-D_GNU_SOURCE', f'-I{ROOT}/src', f'-I{ROOT}/include',
          '-fno-sanitize-recover=undefined']
SANITIZED = 'fuzzer{},address,undefined'
SECONDS = int(os.environ.get('FUZZ_SECONDS', '12'))
SECONDS_BY_DEFAULT = 4
GOAL = [f'src/goal/{name}.c' for name in ('build', 'interp', 'kernels_base', 'kernels_generic', 'local',
                                          'program', 'verify')]
TEXT = ['src/goal/words.c', *sorted(str(p.relative_to(ROOT)) for folder in ('goal/grow', 'goal/text', 'base')
                                    for p in (ROOT / 'src' / folder).glob('*.c'))]
# name of test/fuzz/fuzz_NAME.c: its sources, how seeds are written (seed_goal's arguments) and the
# longest input
TARGETS = {
    'goal': (GOAL, [], 1500),
    'goal_program': (GOAL + TEXT, ['--program'], 5000),
    'text': (['src/goal/build.c', 'src/goal/verify.c', *TEXT], None, 3000),
    'loggopsim': (['src/goal/build.c', 'src/goal/verify.c', 'src/goal/file/loggopsim.c'], None, 1000),
    'goal_build': (GOAL + ['src/goal/grow/grow.c', 'src/goal/api/build.c', 'src/goal/api/schedule.c'], None,
                   400),
}


def compile_object(source):
    """One object serves all targets: with the fuzzer's instrumentation, without its main()."""
    source = ROOT / source
    target = FUZZ / 'objects' / str(source.relative_to(ROOT)).replace('/', '_').replace('.c', '.o')
    headers = [p for folder in ('src/goal', 'src/base', 'include', 'test/fuzz')
               for p in (ROOT / folder).rglob('*') if p.suffix in ('.h', '.inc')]
    return compile_once(target, 'clang', [*COMMON, '-fsanitize=' + SANITIZED.format('-no-link'), '-c'],
                        [source], headers=headers)


def link(out, library, *sources):
    with concurrent.futures.ThreadPoolExecutor(os.cpu_count()) as pool:
        objects = list(pool.map(compile_object, sources))
    done = subprocess.run(['clang', '-fsanitize=' + SANITIZED.format(library), '-o', out, *objects],
                          capture_output=True, text=True, timeout=100)
    if done.returncode and 'libclang_rt' in done.stderr:
        pytest.skip('clang has no fuzzer library here')
    assert done.returncode == 0, done.stderr
    return out


@pytest.mark.xdist_group('fuzz')
@pytest.mark.timeout(SECONDS + 600)
@pytest.mark.parametrize('name', TARGETS)
def test_fuzz(name, tmp_path, request):
    seconds = SECONDS if request.config.getoption('--complete') else min(SECONDS, SECONDS_BY_DEFAULT)
    if not shutil.which('clang'):
        pytest.skip('clang is not installed')
    sources, seeds, longest = TARGETS[name]
    corpus = FUZZ / name  # kept: later runs begin where this one ends
    corpus.mkdir(parents=True, exist_ok=True)
    if seeds is not None:
        seed = link(tmp_path / 'seed', '-no-link', 'test/fuzz/seed_goal.c', *sources)
        subprocess.run([seed, *seeds, corpus], check=True, timeout=60,
                       env={**os.environ, 'ASAN_OPTIONS': 'detect_leaks=0'})
    if name == 'text':
        for text in [*(ROOT / 'examples/goal').glob('*.goal'), *(ROOT / 'test/tools/goal').glob('*.goal')]:
            (corpus / text.name).write_text('~' + text.read_text())  # the first byte: size of pieces
    target = link(tmp_path / f'fuzz_{name}', '', f'test/fuzz/fuzz_{name}.c', *sources)
    words = [f'-dict={path}' for path in HERE.glob(f'{name}.dict')]
    done = subprocess.run([target, f'-max_total_time={seconds}', f'-max_len={longest}', '-timeout=60',
                           '-rss_limit_mb=1024', *words, corpus], cwd=tmp_path, capture_output=True,
                          text=True, errors='replace', timeout=SECONDS + 240)
    assert done.returncode == 0, done.stderr[-4000:]
