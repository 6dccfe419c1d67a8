# SPDX-License-Identifier: BSD-3-Clause
"""Programs that cannot reach an MPI do not inherit the library; those that can, do."""
import shutil
import sys

import pytest

from cli import LIBRARY, compile_c, run

HOW = ('execve', 'execv', 'execvp', 'execvpe', 'execl', 'execlp', 'execle', 'fexecve', 'execveat',
       'posix_spawn', 'posix_spawnp', 'pidfd_spawn', 'pidfd_spawnp')
SEARCHES = ('execvp', 'execvpe', 'execlp', 'posix_spawnp', 'pidfd_spawnp')
OTHER = 'libc.so.6'  # an entry that ld.so finds and that changes nothing


@pytest.fixture(scope='module')
def exec_by(tools):
    newer = compile_c(tools / 'libfake_pidfd_spawn.so', 'fake_pidfd_spawn.c', '-shared', '-fPIC')
    return compile_c(tools / 'exec_by', 'exec_by.c', newer, f'-Wl,-rpath,{tools}')


@pytest.fixture(scope='module')
def show(tools):
    """Prints its LD_PRELOAD; `show` could start programs, `show-plain` beside it could not."""
    compile_c(tools / 'show-plain', 'show_preload.c')
    return compile_c(tools / 'show', 'show_preload.c', '-DCAN_EXEC')


@pytest.mark.parametrize('how', HOW + tuple('vfork:' + h for h in HOW if 'spawn' not in h))
def test_each_exec_function_keeps_or_strips(how, exec_by, show):
    plain = show.with_name('show-plain')
    assert run(exec_by, how, show, 'word').stdout == f'{LIBRARY}\n'
    result = run(exec_by, how, plain, 'word')
    assert (result.returncode, result.stdout, result.stderr) == (0, '', '')
    result = run(exec_by, how, plain, 'word', env={'LD_PRELOAD': OTHER})
    assert result.stdout == f'{OTHER}\n'


@pytest.mark.parametrize('how', SEARCHES)
def test_functions_that_search_path_still_do(how, exec_by, show):
    path = f'{show.parent}:/usr/bin:/bin'
    assert run(exec_by, how, 'show', env={'PATH': path}).stdout == f'{LIBRARY}\n'
    assert run(exec_by, how, 'show-plain', env={'PATH': path}).stdout == ''


@pytest.mark.parametrize('how', ['execv', 'execvp', 'execl', 'execlp'])
def test_errors_are_those_of_libc(how, exec_by):
    result = run(exec_by, how, './nothing')
    assert result.returncode == 127 and 'No such file or directory' in result.stderr


def test_an_environment_of_thousands_is_copied(exec_by, show):
    many = {f'VARIABLE_{i}': 'x' for i in range(5000)}
    result = run(exec_by, 'vfork:execve', show.with_name('show-plain'), env=many)
    assert (result.returncode, result.stdout) == (0, '')


def test_sleep_started_by_a_shell_has_no_sluice_mapped_and_a_shell_has():
    script = ('sleep 5 & p=$!; while [ "$(cat /proc/$p/comm)" != sleep ]; do :; done;'
              'grep -c libsluice /proc/$p/maps; grep -c libsluice /proc/$p/environ;'
              'kill $p; cat /proc/$$/maps | grep -q libsluice && echo shell')
    assert run('sh', '-c', script).stdout.split() == ['0', '0', 'shell']


def test_python_started_by_a_shell_has_it_and_what_python_starts_is_judged_too():
    code = ('import subprocess\n'
            'print("libsluice" in open("/proc/self/maps").read())\n'
            'print("libsluice" in subprocess.run(["cat", "/proc/self/maps"], capture_output=True,'
            ' text=True).stdout)\n'
            'print("libsluice" in subprocess.run(["sh", "-c", "cat /proc/$$/maps"],'
            ' capture_output=True, text=True).stdout)\n')
    result = run('sh', '-c', f'{sys.executable} -c \'{code}\'')
    assert result.stdout.split() == ['True', 'False', 'True']


@pytest.mark.parametrize('name', ['mpiexec', 'mpirun', 'prterun', 'srun', 'hydra_pmi_proxy'])
def test_a_launcher_does_not_inherit_it(name, show, tmp_path):
    shutil.copy(show, tmp_path / name)
    assert run('env', tmp_path / name).stdout == ''
    (tmp_path / f'{name}.sh').write_text('#!/bin/sh\necho $LD_PRELOAD\n')
    (tmp_path / f'{name}.sh').chmod(0o755)
    assert run('env', tmp_path / f'{name}.sh').stdout == '\n'


def test_what_links_an_mpi_or_an_unknown_library_keeps_it(tools, tmp_path):
    show = '#include <stdlib.h>\n#include <stdio.h>\nint main(void)\n' \
        '{ puts(getenv("LD_PRELOAD") ? "kept" : "stripped"); }\n'
    other = compile_c(tmp_path / 'libsolver.so', 'int solve(void) { return 0; }\n',
                      '-shared', '-fPIC')
    env = {'LD_LIBRARY_PATH': f'{tmp_path}:{tools}/mpi/lib'}
    for library in (tools / 'mpi/lib/libmpi.so.12', other):
        app = compile_c(tmp_path / 'app', show, '-Wl,--no-as-needed', library)
        assert run('env', app, env=env).stdout == 'kept\n'
    assert run('env', compile_c(tmp_path / 'none', show, '-lm'), env=env).stdout == 'stripped\n'


def test_a_script_is_judged_by_its_interpreter(show, tmp_path):
    for interpreter, want in ((show, f'{LIBRARY}\n'), (show.with_name('show-plain'), '')):
        script = tmp_path / 'script'
        script.write_text(f'#! {interpreter} word\n')
        script.chmod(0o755)
        outer = tmp_path / 'outer'
        outer.write_text(f'#!{script}\n')
        outer.chmod(0o755)
        assert run('env', script).stdout == want
        assert run('env', outer).stdout == want


def test_static_programs_do_not_inherit_it(tmp_path):
    app = compile_c(tmp_path / 'app', 'show_preload.c', '-DCAN_EXEC', '-static')
    assert run('env', app).stdout == ''


def test_a_shell_started_by_system_keeps_it(tmp_path):
    app = compile_c(tmp_path / 'app', '#include <stdlib.h>\n'
                    'int main(void) { return system("echo $LD_PRELOAD"); }\n')
    assert run(app).stdout == f'{LIBRARY}\n'
