# SPDX-License-Identifier: BSD-3-Clause
"""sluice tune: what it takes for a value to be written, the file, and what goes wrong. Nothing here waits for
a clock: the launches are the test's own."""
import errno
import json
import os
import sys
import time

import pytest

from cli import PREFIX, sluice

for part in ('bench', 'tune'):
    sys.path.insert(0, str(PREFIX / 'libexec/sluice' / part))

import measure  # noqa: E402
import questions  # noqa: E402
import tunefile  # noqa: E402
from errors import Stop  # noqa: E402
from launch import Failed  # noqa: E402

SIZES = [1 << 20, 4 << 20]


def sample(what, size, us):
    return {'what': what, 'bytes': size, 'ranks': 2, 'samples': 9, 'calls_per_sample': 1, 'p0_us': us,
            'p50_us': us,
            'p99_us': us, 'mismatches': 0}


class Machine:
    """Stands for ranks.Ranks: `times(values, size, number of the launch)` in us."""

    def __init__(self, times):
        self.times, self.launches = times, []

    def run(self, program, ranks, shares_core, values, args, limit_s):
        self.launches.append(values)
        return [sample(what, size, self.times(values, size, len(self.launches)))
                for what in ('bcast', 'gather') for size in SIZES]


def ask(times, candidates=('a', 'b'), seconds=60):
    machine = Machine(times)
    asker = measure.Asker(machine, [2], 1, lambda question, text: None)
    question = questions.Question('xfer_copy', 'test', [
        questions.Candidate({'xfer_copy': v}, questions.used(SIZES)) for v in candidates])
    return asker.ask(question, time.monotonic() + seconds), machine


def test_a_value_that_is_better_in_every_pair_is_written():
    found, _ = ask(lambda values, size, n: {'a': 80, 'b': 95}.get(values.get('xfer_copy'), 100) +
                   n % 3)
    assert (found['verdict'], found['values']) == ('better', {'xfer_copy': 'a'})
    pair = found['pairs'][-1]
    assert pair['pairs'] == measure.PAIRS and 1.15 < pair['low'] <= pair['ratio'] <= pair['high'] < 1.35


def test_noise_writes_nothing():
    """As fast as the default; single launches differ by ten percent either way."""
    found, _ = ask(lambda values, size, n: 100 + n * 7919 % 11)
    assert (found['verdict'], found['values']) == ('default', {})


def test_one_pair_that_does_not_agree_is_enough_to_write_nothing():
    found, machine = ask(lambda values, size, n: 130 if values and n == 10 else 90 if values else 100, ['a'])
    assert found['verdict'] == 'default' and found['pairs'][0]['low'] < 1
    assert len(machine.launches) < 2 * (measure.SCREENS + measure.PAIRS)  # and no more of them are launched


def test_a_value_that_is_slower_at_one_size_is_not_written():
    found, _ = ask(lambda values, size, n: 100 if not values else 60 if size == SIZES[0] else 102.5, ['a'])
    assert found['verdict'] == 'default' and found['pairs'][0]['ratio'] > 1.2
    assert found['pairs'][0]['pairs'] == measure.PAIRS  # two percent may be noise, so it takes all
    assert '4 MB' in found['pairs'][0]['worst']['what'] and found['pairs'][0]['worst']['ratio'] < 0.98


def test_what_is_much_slower_at_one_size_is_not_measured_to_the_end():
    found, _ = ask(lambda values, size, n: 100 if not values else 60 if size == SIZES[0] else 120, ['a'])
    assert found['verdict'] == 'default' and found['pairs'][0]['pairs'] == measure.PAIRS // 2


def test_the_next_best_gets_its_chance():
    def times(values, size, n):
        return {None: 100, 'a': 60 if size == SIZES[0] else 110, 'b': 90}[values.get('xfer_copy')]

    found, _ = ask(times)
    assert found['values'] == {'xfer_copy': 'b'} and len(found['pairs']) == 2


def test_what_is_much_slower_is_launched_once():
    _, machine = ask(lambda values, size, n: 300 if values.get('xfer_copy') == 'b' else 100)
    assert sum(v == {'xfer_copy': 'b'} for v in machine.launches) == 1


def test_without_time_it_is_undecided():
    found, machine = ask(lambda values, size, n: 100, seconds=-1)
    assert (found['verdict'], found['values'], machine.launches) == ('undecided', {}, [])


def test_wrong_contents_and_failed_launches_are_told():
    def fails(values, size, n):
        raise Failed('rank 1: killed')

    found, _ = ask(fails)
    assert found['verdict'] == 'undecided' and 'rank 1: killed' in found['why']


def named(asked):
    return [question.name for question in asked]


@pytest.mark.parametrize('works, chosen, is_asked', [(True, False, True), (False, False, False),
                                                     (True, True, False)])
@pytest.mark.parametrize('has_workers', [True, False])
def test_a_device_that_auto_does_not_take_is_measured(works, chosen, is_asked, has_workers, home):
    info = info_json(home)
    info['engines'] = [{'name': 'dsa', 'works': works, 'chosen': chosen},
                       {'name': 'fault', 'works': True, 'chosen': False},
                       {'name': 'sw', 'works': has_workers, 'chosen': has_workers and not chosen}]
    info['guards'] = [{'name': 'mremap', 'works': True, 'chosen': True}]
    asked, skipped = questions.all_of(info, 4, 2, True)
    assert ('SLUICE_ENGINE' in named(asked)) == is_asked and ('SLUICE_ENGINE' in skipped) != is_asked
    assert ('SLUICE_EARLY_MIN' in named(asked)) == (has_workers or (works and chosen))
    values = [c.values for q in asked for c in q.candidates if q.name == 'SLUICE_ENGINE']
    assert values == [{'SLUICE_ENGINE': 'dsa'}] * is_asked


# ---- the file -------------------------------------------------------------------------------

def result_for(info, mpi, answers):
    return {'format': 1, 'version': info['version'], 'host': info['host'], 'machine': info['kind_of_machine'],
            'mpi': mpi, 'alike': False, 'date': 'today', 'seconds': 1, 'load': 0, 'ranks': [2],
            'options': answers,
            'skipped': {'SLUICE_GUARD_KIND': 'no guard works here'},
            'defaults': {o['name']: o['default'] for o in info['options']}}


def info_json(env):
    return json.loads(sluice('info', '--json', env=env).stdout)


def option(info, name):
    return next(o for o in info['options'] if o['name'] == name)


@pytest.fixture
def home(tmp_path, tools):
    return {'XDG_CONFIG_HOME': tmp_path, 'PATH': f'{tools}/mpi/bin:{os.environ["PATH"]}'}


def test_the_file_that_is_written_is_the_file_that_is_read(home):
    better, _ = ask(lambda values, size, n: 80 if values else 100, ['plain'])
    none, _ = ask(lambda values, size, n: 100, ['movsb'])
    none['option'] = 'xfer_fragment'
    before = info_json(home)
    mine = before['tuned'][0]
    assert (mine['mpi'], mine['state']) == ('MPICH 9.8.7', 'none')
    path = tunefile.Path(mine['writes'])
    tunefile.check_writable(path, True)
    tunefile.save(tunefile.text_of(result_for(before, mine['mpi'], [better, none])), path)
    after = info_json(home)
    assert after['tuned'][0] == {**mine, 'state': 'in force', 'file': str(path), 'values': 1}
    copy = option(after, 'xfer_copy')
    assert (copy['value'], copy['source']) == ('plain', 'tune file')
    assert option(after, 'xfer_fragment')['source'] == 'default'
    said = info_json({**home, 'xfer_copy': 'auto'})
    assert option(said, 'xfer_copy')['source'] == 'environment'
    text = path.read_text()
    assert '1.25 x as fast as the default (1.25 to 1.25 in 6 pairs)' in text
    assert '\nxfer_copy = plain\n' in text and '\n#xfer_fragment = 0\n' in text
    assert 'SLUICE_GUARD_KIND: not measured: no guard works here' in text
    assert max(map(len, text.splitlines())) <= 120


def test_a_disk_without_room_leaves_the_old_file_and_nothing_else(tmp_path, monkeypatch):
    def full(number):
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
    path = tmp_path / 'x.tune'
    path.write_text('old')
    monkeypatch.setattr(tunefile.os, 'fsync', full)
    with pytest.raises(Stop, match=f'cannot write {path}: No space left on device'):
        tunefile.save('new', path)
    assert path.read_text() == 'old' and os.listdir(tmp_path) == ['x.tune']


def test_a_file_of_another_version_is_refused_by_info_with_the_reason(home):
    before = info_json(home)
    result = result_for(before, 'MPICH 9.8.7', [])
    result['version'] = '0.0.1'
    path = tunefile.Path(before['tuned'][0]['writes'])
    tunefile.check_writable(path, True)
    tunefile.save(tunefile.text_of(result), path)
    mine = info_json(home)['tuned'][0]
    assert mine['state'] == 'refused' and 'Sluice 0.0.1 wrote it' in mine['reason']
    assert mine['reason'] in sluice('info', env=home).stdout


# ---- what goes wrong ------------------------------------------------------------------------

def tune(*args, env):
    return sluice('tune', *args, env=env)


def one_line(done, code):
    assert (done.returncode, done.stdout) == (code, ''), done
    assert done.stderr.count('\n') == 1 and done.stderr.startswith('sluice: tune: '), done.stderr
    return done.stderr


def test_mistakes_are_one_line_and_the_right_exit_code(home, tmp_path):
    assert '--dry-run' in one_line(tune('--dry-rnu', env=home), 2)
    assert 'no such file' in one_line(tune('--mpi', '/nowhere/at/all', env=home), 1)
    one_line(tune('-n', '1', env=home), 2)
    assert 'all: numbers from 2 to 64' in one_line(tune('-n', 'all', env=home), 2)
    assert 'no program' in one_line(tune('--launcher', 'no-such-launcher', env=home), 1)
    absent = tmp_path / 'absent/x.tune'
    assert f'cannot write {absent}: No such file' in one_line(tune('-o', absent, env=home), 1)
    assert not absent.parent.exists()
    home['XDG_CONFIG_HOME'] = '/proc/nothing'
    assert 'cannot write /proc/nothing' in one_line(tune(env=home), 1)
    home['XDG_CONFIG_HOME'], home['HOME'] = None, None
    assert '-o FILE' in one_line(tune(env=home), 1)


def test_an_mpi_that_cannot_run_two_ranks_is_told(home):
    line = one_line(tune('--dry-run', env=home), 1)
    assert 'mpiexec' in line


def test_without_python_it_says_so(home):
    home['PATH'] = '/nonexistent'
    assert 'python3' in one_line(tune(env=home), 1)


def test_without_any_mpi_it_says_how_to_name_one(tmp_path):
    (tmp_path / 'bin').mkdir()
    (tmp_path / 'bin/python3').symlink_to(sys.executable)
    env = {'PATH': tmp_path / 'bin', 'HOME': '/nowhere'}
    if any(m['served'] for m in info_json(env)['mpis']):
        pytest.skip("the linker's cache has an MPI")
    assert '--mpi PATH' in one_line(tune('--dry-run', env=env), 1)
