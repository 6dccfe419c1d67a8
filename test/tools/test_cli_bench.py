# SPDX-License-Identifier: BSD-3-Clause
"""sluice bench with a libmpi made for these tests. test/mpi/test_bench.py uses real ones."""
import json
import os
import shlex
import shutil
import signal
import subprocess
import sys
import time

import pytest

from cli import PREFIX, PROGRAMS, ROOT, SLUICE, compile_c, plain_env, sluice

sys.path.insert(0, str(ROOT / 'tools/bench'))
import schema  # noqa: E402

SCHEMA = json.loads((ROOT / 'bench/sluice-bench.schema.json').read_text())
TINY = '''[scenario]
title = Tiny
about = Two calls.
plot = lines
warmup = one call
rounds = {rounds}
most = {rounds}

[job calls]
program = collective_bench
what = bcast call-gather
sizes = 8 64K
args = ms=1 min=3 max=3 warmup=1
'''


class Bench:
    """A folder with an MPI installation and the scenario tiny.ini."""

    def __init__(self, folder):
        self.folder, self.mpi = folder, folder / 'mpi'
        for name in ('lib', 'bin'):
            (self.mpi / name).mkdir(parents=True)
        compile_c(self.mpi / 'lib/libmpi.so.12', 'bench_mpi.c', '-shared', '-fPIC')
        shutil.copy(PROGRAMS / 'bench_mpiexec.sh', self.mpi / 'bin/mpiexec')
        self.scenario()

    def scenario(self, rounds=1):
        (self.folder / 'tiny.ini').write_text(TINY.format(rounds=rounds))

    def env(self, **more):
        return plain_env(BENCH_MPI_LOG=self.folder / 'launches', **more)

    def run(self, *args, scenario='tiny.ini', sides='plain,blocking', **env):
        command = [SLUICE, 'bench', scenario, '--mpi', self.mpi, '--sides', sides, *args]
        return subprocess.run([str(a) for a in command if a is not None], env=self.env(**env), text=True,
                              capture_output=True, timeout=240, cwd=self.folder)

    def launches(self):
        path = self.folder / 'launches.log'
        return len(path.read_text().splitlines()) if path.exists() else 0


@pytest.fixture(scope='module')
def bench(tmp_path_factory):
    return Bench(tmp_path_factory.mktemp('bench'))


@pytest.fixture(scope='module')
def measured(bench):
    done = bench.run('-o', 'out.json')
    return done, json.loads((bench.folder / 'out.json').read_text())


def test_what_is_written_is_as_the_schema_says_and_whole(measured):
    done, out = measured
    assert done.returncode == 0, done.stderr
    assert schema.problem(out, SCHEMA) is None
    assert out['run']['complete'] and not out['failures'] and out['mpi']['version'] == 'MPICH 9.8.7'
    results = out['scenarios'][0]['results']
    assert [r['key'] for r in results] == ['bcast/use/2/8', 'bcast/use/2/65536', 'gather/call/2/8',
                                           'gather/call/2/65536']
    for r in results:
        assert set(r['sides']) == {'plain', 'blocking'} and set(r['ratios']) == {'blocking'}
        for side in r['sides'].values():
            assert 0 < side['p0'] <= side['p50'] <= side['p99'] and side['samples'] == 3
            assert side['wrong'] == 0


def test_the_table_has_every_result_and_the_files_are_named(measured):
    done, out = measured
    for text in ('== Tiny', 'bcast, until the data has been used, 2 ranks, us', '64 KB',
                 'gather, the call (as OSU times it), 2 ranks, us', 'plain/blocking', 'Warm-up: one call.'):
        assert text in done.stdout
    assert done.stderr.splitlines()[-1] == \
        'sluice: bench: results are in out.json, as a page in out.html'


def test_the_page_holds_the_same_figures(measured, bench):
    page = (bench.folder / 'out.html').read_text()
    p50 = measured[1]['scenarios'][0]['results'][0]['sides']['plain']['p50']
    assert f'"p50":{p50}' in page


def test_json_on_stdout_is_the_json_alone(bench):
    done = bench.run('-o', '-', sides='blocking')
    out = json.loads(done.stdout)
    assert done.returncode == 0 and schema.problem(out, SCHEMA) is None
    assert out['scenarios'][0]['results'][0]['ratios'] == {}


@pytest.mark.parametrize('trouble, said', [
    ('init', 'mpiexec cannot run two ranks: bench_mpi: the network is on fire'),
    ('alone', 'libmpi.so.12: the ranks do not find each other; see --mpi and --launcher'),
    ('machines', 'the ranks are on different machines; this measures one'),
])
def test_an_mpi_that_does_not_work_is_one_line(bench, trouble, said):
    done = bench.run('-o', 'bad.json', BENCH_MPI_TROUBLE=trouble)
    assert (done.returncode, done.stdout) == (1, '')
    assert len(done.stderr.splitlines()) == 1 and done.stderr.strip().endswith(said)
    assert not (bench.folder / 'bad.json').exists()


def test_wrong_data_is_shown_and_fails(bench):
    done = bench.run('-o', 'wrong.json', sides='plain', BENCH_MPI_TROUBLE='wrong')
    assert done.returncode == 1
    wrong = {r['key']: r['sides']['plain']['wrong'] > 0
             for r in json.loads((bench.folder / 'wrong.json').read_text())['scenarios'][0]['results']}
    assert wrong == {'bcast/use/2/8': False, 'bcast/use/2/65536': True, 'gather/call/2/8': False,
                     'gather/call/2/65536': False}
    assert done.stdout.count('WRONG DATA') == 1


@pytest.mark.parametrize('args, code, said', [
    (('latncy',), 2, "there is no scenario 'latncy'; did you mean 'latency'?"),
    (('--quik',), 2, "there is no option '--quik'; did you mean '--quick'?; see: sluice bench --help"),
    (('-n', '1'), 2, '1: numbers from 2 to 256, with commas'),
    (('-n', 'all'), 2, 'all: numbers from 2 to 256, with commas'),
    (('--time=-3',), 2, "'-3' is not a number of minutes"),
    (('-o', '/no/such/folder/x.json'), 1, '/no/such/folder/x.json: there is no folder /no/such/folder'),
    (('-o', '/tmp'), 1, '/tmp: is a folder'),
    (('-o', 'x.html'), 2, '-o x.html: the page gets this name'),
    (('--mpi', '/no/mpi'), 1, '--mpi /no/mpi: no such file or folder'),
    (('--mpi', '/proc/sys'), 1, '--mpi /proc/sys: no MPI library there'),
    (('--launcher', 'no-such-launcher'), 1, "--launcher: there is no program 'no-such-launcher'"),
    (('--sides', 'plain,erly'), 2, "--sides: there is no side 'erly' here; there are plain, blocking"),
    (('compare',), 2, 'compare takes two files, not 0'),
    (('compare', 'a.json', 'b.json', '--oops'), 2, "there is no option '--oops'"),
])
def test_what_cannot_be_is_one_line_with_the_remedy(args, code, said, tmp_path):
    done = sluice('bench', *args, cwd=tmp_path)
    assert (done.returncode, done.stdout) == (code, '')
    assert len(done.stderr.splitlines()) == 1 and done.stderr.startswith('sluice: bench: ')
    assert said in done.stderr and not list(tmp_path.iterdir())


def test_without_python_it_says_so():
    done = subprocess.run([SLUICE, 'bench', '--list'], env=plain_env(PATH='/nowhere'), text=True,
                          capture_output=True, timeout=60)
    assert (done.returncode, done.stdout) == (1, '')
    assert done.stderr == 'sluice: bench: there is no python3 in PATH; it needs Python 3.9 or newer\n'


@pytest.mark.parametrize('text, said', [
    ('nonsense', 'not a scenario'),
    (TINY.format(rounds=1).replace('plot = lines', 'plot = pie'), 'plot is one of'),
    (TINY.format(rounds=1).replace('sizes = 8', 'sizes = 8Q'), "'8Q' is not a size like 64K"),
    (TINY.format(rounds=1).replace('args', 'arguments'), '[job calls] has no "arguments"'),
    (TINY.format(rounds=1).replace('title = Tiny\n', ''), "'title'"),
])
def test_a_scenario_that_is_wrong_is_one_line_with_its_name(text, said, tmp_path):
    (tmp_path / 'mine.ini').write_text(text)
    done = sluice('bench', 'mine.ini', cwd=tmp_path)
    assert done.returncode == 1 and len(done.stderr.splitlines()) == 1
    assert done.stderr.startswith('sluice: bench: mine.ini: ') and said in done.stderr


def wait_for(condition, process):
    while not condition():
        assert process.poll() is None, process.communicate()
        time.sleep(0.02)


@pytest.mark.parametrize('number', [signal.SIGINT, signal.SIGTERM])
def test_an_interrupted_run_keeps_what_was_measured(bench, number):
    bench.scenario(rounds=1000)
    before = bench.launches()
    command = [SLUICE, 'bench', 'tiny.ini', '--mpi', bench.mpi, '--sides', 'plain', '-o', 'cut.json']
    with subprocess.Popen(command, env=bench.env(), cwd=bench.folder, text=True,
                          stdout=subprocess.PIPE, stderr=subprocess.PIPE) as process:
        # the first launch, two rounds, and one more
        wait_for(lambda: bench.launches() >= before + 4, process)
        process.send_signal(number)
        out, err = process.communicate(timeout=120)
    bench.scenario()
    assert process.returncode == 128 + number
    assert err.splitlines()[-1] == \
        'sluice: bench: stopped; the results so far are in cut.json, as a page in cut.html'
    assert f'STOPPED by {number.name}' in out
    kept = json.loads((bench.folder / 'cut.json').read_text())
    assert schema.problem(kept, SCHEMA) is None
    assert kept['run']['stopped'] == number.name and not kept['run']['complete']
    assert kept['scenarios'][0]['results'][0]['sides']['plain']['launches'] >= 2


def test_what_cannot_be_written_in_the_end_is_one_line_and_the_table_is_there(bench):
    bench.scenario(rounds=1000)
    before = bench.launches()
    folder = bench.folder / 'goes'
    folder.mkdir()
    command = [SLUICE, 'bench', 'tiny.ini', '--mpi', bench.mpi, '--sides', 'plain', '--quiet', '-o',
               'goes/x.json']
    with subprocess.Popen(command, env=bench.env(), cwd=bench.folder, text=True,
                          stdout=subprocess.PIPE, stderr=subprocess.PIPE) as process:
        wait_for(lambda: bench.launches() >= before + 3, process)
        folder.rmdir()
        process.send_signal(signal.SIGINT)
        out, err = process.communicate(timeout=120)
    bench.scenario()
    assert process.returncode == 1 and '== Tiny' in out and '64 KB' in out
    assert err == 'sluice: bench: goes/x.json: cannot be written: No such file or directory\n'


def test_an_end_that_was_asked_for_comes_and_is_told(bench):
    bench.scenario(rounds=1000)
    done = bench.run('--time', '0.05', '-o', 'short.json', sides='plain')
    bench.scenario()
    assert done.returncode in (0, 1)  # 1: there was no time for a single launch
    kept = json.loads((bench.folder / 'short.json').read_text())
    assert not kept['run']['complete'] and kept['run']['stopped'] is None
    assert 'not complete' in done.stdout


def test_a_full_disk_behind_stdout_is_one_line(bench):
    if not os.access('/dev/full', os.W_OK):
        pytest.skip('no /dev/full here')
    done = subprocess.run([SLUICE, 'bench', 'tiny.ini', '--mpi', bench.mpi, '--sides', 'plain', '-o', '-'],
                          env=bench.env(), cwd=bench.folder, text=True, stdout=open('/dev/full', 'w'),
                          stderr=subprocess.PIPE, timeout=240)
    assert done.returncode == 1
    assert done.stderr.splitlines()[-1] == 'sluice: bench: cannot write: No space left on device'


# ---- compare ---------------------------------------------------------------------------------


def saved(folder, name, document):
    path = folder / name
    path.write_text(json.dumps(document))
    return path


def test_compare_finds_what_is_different_and_nothing_else(measured, tmp_path):
    other = json.loads(json.dumps(measured[1]))
    other['sluice']['version'] = '9.9'
    stat = other['scenarios'][0]['results'][1]['sides']['blocking']
    for name in ('p0', 'p50', 'p99', 'low', 'high'):
        stat[name] *= 3
    a, b = saved(tmp_path, 'a.json', measured[1]), saved(tmp_path, 'b.json', other)
    done = sluice('bench', 'compare', a, b)
    assert done.returncode == 0
    assert '8 figures: B is better in 0, worse in 1, the same within the spread in 7' in done.stdout
    assert 'sluice version' in done.stdout and '9.9' in done.stdout
    row = [x for x in done.stdout.splitlines() if x.endswith('worse')]
    assert len(row) == 1 and 'broadcast of 64 KB (use)' in row[0] and '3.00' in row[0]
    same = sluice('bench', 'compare', a, a)
    assert 'the same machine, MPI and options' in same.stdout and 'worse in 0' in same.stdout
    found = json.loads(sluice('bench', 'compare', '--json', b, a).stdout)
    assert [f['key'] for f in found['figures'] if f['verdict'] == 'better'] == ['bcast/use/2/65536']


@pytest.mark.parametrize('text, said', [
    (None, 'No such file or directory'),
    ('{', 'not JSON: '),
    ('[' * 100000, 'not JSON: '),
    ('{"schema": "sluice-bench-9"}', 'not written by this version of sluice bench: file: no "run"'),
])
def test_compare_says_what_is_wrong_with_a_file(text, said, tmp_path):
    path = tmp_path / 'x.json'
    if text is not None:
        path.write_text(text)
    done = sluice('bench', 'compare', path, path)
    assert (done.returncode, done.stdout) == (1, '')
    assert len(done.stderr.splitlines()) == 1 and f'{path}: {said}' in done.stderr


# ---- help and scenarios ------------------------------------------------------------------------


def test_the_examples_of_the_help_work_as_printed(bench, tmp_path):
    """The installed scenarios, cut short, with the test's MPI found like any other."""
    text = sluice('bench', '--help').stdout
    lines = [x.strip() for x in text[text.index('Examples:'):].splitlines()[1:] if x.startswith('  ')]
    assert len(lines) >= 2
    prefix = tmp_path / 'prefix'
    shutil.copytree(PREFIX, prefix, symlinks=True)
    folder = prefix / 'libexec/sluice/bench/scenarios'
    for path in folder.iterdir():
        path.unlink()
    for name in ('latency', 'overlap'):
        (folder / f'{name}.ini').write_text(TINY.format(rounds=1).replace('sizes = 8 64K', 'sizes = 8'))
    for line in lines:
        done = subprocess.run(shlex.split(line), cwd=tmp_path, text=True, capture_output=True, timeout=240,
                              env=bench.env(PATH=f'{prefix}/bin:{bench.mpi}/bin:{os.environ["PATH"]}'))
        assert done.returncode == 0 and '== Tiny' in done.stdout, (line, done.stderr)


def test_every_installed_scenario_is_listed_with_what_it_is():
    done = sluice('bench', '--list')
    names = [line.split()[0] for line in done.stdout.splitlines()]
    assert set(names) == {p.stem for p in (ROOT / 'bench/scenarios').glob('*.ini')}
    assert {'latency', 'overlap', 'synthetic', 'small', 'first', 'late', 'maps', 'limits'} <= set(names)
    assert all(len(line.split(None, 1)[1]) > 40 for line in done.stdout.splitlines())


def test_the_limits_of_the_machine_need_no_mpi_call(bench):
    text = (ROOT / 'bench/scenarios/limits.ini').read_text().replace('ms=20', 'ms=1')
    (bench.folder / 'limits-short.ini').write_text(text)
    done = bench.run('--quick', '-o', 'limits.json', scenario='limits-short.ini')
    assert done.returncode == 0, done.stderr
    results = json.loads((bench.folder / 'limits.json').read_text())['scenarios'][0]['results']
    kinds = {r['what'] for r in results}
    assert {'copy by one core', 'protect'} <= kinds
    assert all(set(r['sides']) == {'machine'} and r['sides']['machine']['p50'] > 0 for r in results)
    assert {r['unit'] for r in results if r['what'].startswith('copy')} == {'GB/s'}
