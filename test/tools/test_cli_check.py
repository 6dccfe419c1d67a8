# SPDX-License-Identifier: BSD-3-Clause
"""sluice check: what Sluice can do for a program, found without running it."""
import json
import sys

import pytest

from cli import SLUICE, compile_c, fake_mpi, sluice

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
