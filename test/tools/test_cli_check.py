# SPDX-License-Identifier: BSD-3-Clause
"""sluice check: what Sluice can do for a program, found without running it."""
import fnmatch
import json
import re
import sys

import pytest

from cli import SLUICE, compile_c, fake_mpi, sluice
from support.dsa import dsa_env
from support.paths import ROOT

CALLS = '\nint PMPI_Bcast(void);\nint main(void) { return PMPI_Bcast(); }\n'
NEVER_RUN = '\n#include <stdlib.h>\nint main(void) { abort(); }\n'


def link(target, library, *flags):
    return compile_c(target, CALLS, f'-L{library.parent}', f'-l:{library.name}', *flags)


def check(program, code, **env):
    done = sluice('check', '--json', program, env=env)
    assert (done.returncode, done.stderr) == (code, ''), done.stdout
    return json.loads(done.stdout)


@pytest.fixture(scope='module')
def linked(tmp_path_factory):
    """A program that links an MPI library."""
    folder = tmp_path_factory.mktemp('check')
    library = fake_mpi(folder / 'mpi')
    return link(folder / 'app', library), library


def test_a_program_with_an_mpi(linked):
    program, library = linked
    found = check(program, 0, LD_LIBRARY_PATH=str(library.parent))
    assert found['program'] == str(program)
    assert found['sluice']['yes'] and found['endpoints']['yes'] and not found['sanitizer']['yes']
    assert found['mpi']['yes'] and found['mpi']['why'].startswith(f'{library} (')
    text = sluice('check', program, env={'LD_LIBRARY_PATH': str(library.parent)}).stdout
    for name, row in found.items():
        assert (row if name == 'program' else row['why']) in text


def test_an_mpi_that_is_not_found(tmp_path):
    library = fake_mpi(tmp_path / 'mpi')
    program = link(tmp_path / 'app', library)
    library.rename(tmp_path / library.name)
    assert 'LD_LIBRARY_PATH' in check(program, 0)['mpi']['why']
    moved = check(program, 0, LD_LIBRARY_PATH=str(tmp_path))['mpi']
    assert moved['yes'] and str(tmp_path / library.name) in moved['why']


@pytest.mark.parametrize('flag, name, why', [
    ('-static', 'sluice', 'statically linked'), ('-static', 'endpoints', 'links no MPI library'),
    ('-O1', 'sluice', 'cannot call MPI'), ('-O1', 'mpi', 'neither linked nor loaded')])
def test_programs_without_an_mpi(tmp_path, flag, name, why):
    found = check(compile_c(tmp_path / 'app', NEVER_RUN, flag), 1)
    assert why in found[name]['why'] and not found[name]['yes']


def test_a_program_that_is_not_position_independent(tmp_path):
    library = fake_mpi(tmp_path / 'mpi')
    program = link(tmp_path / 'app', library, '-no-pie', '-fno-pie')
    found = check(program, 0, LD_LIBRARY_PATH=str(library.parent))
    assert found['sluice']['yes'] and 'no PIE' in found['endpoints']['why']


def test_limits_count(linked):
    program, library = linked
    done = sluice('-c', 'ulimit -v 9000000; exec "$0" check --json "$1"', SLUICE, program,
                  program='/bin/sh', env={'LD_LIBRARY_PATH': str(library.parent)})
    assert 'ulimit -v' in json.loads(done.stdout)['endpoints']['why']


def test_an_interpreter_may_load_an_mpi():
    found = check(sys.executable, 0)
    assert found['sluice']['yes'] and 'may load' in found['mpi']['why']


@pytest.mark.parametrize('args, code, why', [
    ((), 2, 'one program is needed'), (('a', 'b'), 2, 'one program is needed'),
    (('--jsn', 'ls'), 2, 'one program is needed'), (('/nonexistent/app',), 127, 'No such file'),
    (('/etc/passwd',), 126, 'ermission')])
def test_wrong_calls(args, code, why):
    done = sluice('check', *args)
    assert (done.returncode, done.stdout) == (code, '') and why in done.stderr
    assert done.stderr.count('\n') == 1


def test_a_script_whose_interpreter_is_absent_cannot_be_executed(tmp_path):
    for line, code in (('#! /no/such/interpreter -x', 126), ('#! /bin/sh -e', 0)):
        (tmp_path / 'app').write_text(f'{line}\n')
        (tmp_path / 'app').chmod(0o755)
        done = sluice('check', tmp_path / 'app')
        assert done.returncode == code
        assert ('its interpreter does not exist' in done.stderr) == (code == 126)


# ---- copy engines --------------------------------------------------------------------------------

STEPS = ['found', 'copies', 'many', 'fresh pages', 'fork', 'retire']


def on_the_model(model):
    env = dsa_env(model)
    return {**env, 'SLUICE_TEST': 'dsa_root=' + env.pop('dsa_root')}


@pytest.mark.parametrize('engine, model', [('sw', None), ('dsa', ''), ('dsa', 'fault=3')])
def test_an_engine_that_works(engine, model):
    found = check(engine, 0, **({} if model is None else on_the_model(model)))
    assert (found['engine'], [s['name'] for s in found['steps']]) == (engine, STEPS)
    assert all(s['was_run'] and s['ok'] for s in found['steps'])
    assert found['channels'] >= 1 and found['depth'] >= 1 and found['max_copy_bytes'] >= 1 << 20
    assert [s['bytes'] for s in found['speeds']] == [64 << 10, 256 << 10, 1 << 20, 4 << 20, 16 << 20]
    assert all(s['engine_ns'] > 0 and s['memcpy_ns'] > 0 for s in found['speeds'])
    assert all(found[f'page_tables_{when}'][f'{call}_ns'] > 0
               for when in ('closed', 'open') for call in ('mprotect', 'mremap'))


@pytest.mark.parametrize('fault, why', [('error=5', 'failed: Input/output error'), ('hang=9', 'did not end')])
def test_an_engine_that_is_broken(fault, why):
    done = sluice('check', 'fault', env={'SLUICE_TEST': f'engine_fault={fault}'})
    rows = [line.split() for line in done.stdout.splitlines()[1:]]
    assert done.returncode == 1 and why in done.stdout
    assert [(row[0], row[1]) for row in rows] == [('found', 'yes'), ('copies', 'NO')]


@pytest.mark.parametrize('engine', ['dsa', 'kmod'])
def test_an_engine_that_is_not_there(engine, tmp_path):
    done = sluice('check', engine, env={'SLUICE_TEST': f'dsa_root={tmp_path}'})
    if '/dev/sluice' not in done.stdout and engine == 'kmod':
        pytest.skip('the module is loaded here')
    assert done.returncode == 1 and done.stderr == ''
    assert re.fullmatch(r'  found  NO  .*(driver|/dev/sluice).*', done.stdout.splitlines()[1]), done.stdout
    assert len(done.stdout.splitlines()) == 2


def test_the_udev_rule_finds_the_queue_of_the_profile():
    """As the driver makes them: the device dsa/wq0.0 is a child of the queue wq0.0, which has the name."""
    folder = ROOT / 'packaging/dsa'
    rule = (folder / '60-sluice-dsa.rules').read_text().splitlines()[-1]
    keys = dict(re.findall(r'([\w{}]+)==?"([^"]*)"', rule))
    queue, = json.loads((folder / 'accel-config.conf').read_text())[0]['groups'][0]['grouped_workqueues']
    assert fnmatch.fnmatch('dsa/' + queue['dev'], keys['KERNEL'])
    assert keys['ATTRS{name}'] == queue['name'] and 'ATTR{name}' not in keys
    assert keys['SUBSYSTEM'] == 'dsa' and (queue['type'], queue['mode']) == ('user', 'shared')


def test_a_program_with_the_name_of_an_engine(tmp_path):
    (tmp_path / 'dsa').symlink_to(sys.executable)
    assert json.loads(sluice('check', '--json', './dsa', cwd=tmp_path).stdout)['program'].endswith('/dsa')
