# SPDX-License-Identifier: BSD-3-Clause
"""sluice run: becomes the program with the library preloaded; one line when it cannot."""
import os
import shutil
import signal
import subprocess

import pytest

from cli import LIBRARY, PREFIX, SLUICE, compile_c, plain_env, run, sluice

SHOW_PRELOAD = ('sh', '-c', 'echo "[$LD_PRELOAD]"')


def preload_of(result):
    """The output of SHOW_PRELOAD; everything else must be silent."""
    assert result.returncode == 0 and result.stderr == ''
    return result.stdout.strip()[1:-1].split(':')


def runs_plain(result, *words):
    assert result.returncode == 0
    assert result.stdout.strip() == '[]'
    lines = result.stderr.splitlines()
    assert len(lines) == 1 and lines[0].startswith('sluice: run: '), result.stderr
    for word in words:
        assert word in lines[0]


def test_the_exit_code_is_the_programs():
    for code in (0, 1, 2, 77, 255):
        assert run('sh', '-c', f'exit {code}').returncode == code


def test_the_process_is_the_same_so_signals_reach_the_program():
    child = subprocess.Popen([SLUICE, 'run', 'sh', '-c', 'echo $$; exec sleep 60'], env=plain_env(),
                             stdout=subprocess.PIPE, text=True)
    assert int(child.stdout.readline()) == child.pid
    child.send_signal(signal.SIGTERM)
    assert child.wait(10) == -signal.SIGTERM


def test_nothing_is_printed_and_input_and_arguments_arrive_as_they_are():
    args = ['a b', '', '--set', '*', '--']
    result = run('--', 'sh', '-c', 'cat; printf "<%s>" "$@"', 'name', *args, input='in\n')
    assert (result.stdout, result.stderr) == ('in\n' + ''.join(f'<{a}>' for a in args), '')


def test_no_descriptor_is_left_open():
    command = ['sh', '-c', 'ls /proc/$$/fd']
    plain = subprocess.run(command, env=plain_env(), capture_output=True, text=True)
    assert run(*command).stdout == plain.stdout


def test_the_library_comes_first_in_the_preload_and_the_users_stay():
    assert preload_of(run(*SHOW_PRELOAD)) == [str(LIBRARY)]
    users = shutil.which('true')  # any ELF file that exists; ld.so says what it thinks of it
    result = run(*SHOW_PRELOAD, env={'LD_PRELOAD': users})
    assert result.stdout.strip()[1:-1].split(':') == [str(LIBRARY), users]


def test_a_run_within_a_run_preloads_once():
    assert preload_of(run(SLUICE, 'run', *SHOW_PRELOAD)) == [str(LIBRARY)]


def test_an_installed_tree_may_be_moved(tmp_path):
    shutil.copytree(PREFIX, tmp_path / 'moved', symlinks=True)
    result = sluice('run', *SHOW_PRELOAD, program=tmp_path / 'moved/bin/sluice')
    assert preload_of(result) == [str(tmp_path / 'moved/lib/libsluice.so')]


def test_a_moved_tree_that_is_called_by_path_finds_its_files(tmp_path):
    """The program's name is then "sluice", without a folder."""
    shutil.copytree(PREFIX, tmp_path / 'moved', symlinks=True)
    path = f'{tmp_path}/moved/bin:{os.environ["PATH"]}'
    told = sluice('info', program='sluice', env={'PATH': path}, cwd=tmp_path).stdout
    assert f'{tmp_path}/moved/share/sluice/host-mpi.tune' in told
    assert 'sluice-worker is not there' not in told


def test_off_is_a_plain_execution():
    assert preload_of(run(*SHOW_PRELOAD, env={'SLUICE': 'off'})) == ['']
    assert preload_of(run('--set', 'SLUICE=off', *SHOW_PRELOAD)) == ['']
    inner = run('env', 'SLUICE=off', SLUICE, 'run', *SHOW_PRELOAD)
    assert preload_of(inner) == ['']


@pytest.mark.parametrize('setting', ['COLL_THRESHOLD=1M', 'SLUICE_COLL_THRESHOLD=1M',
                                     'coll_threshold=1M'])
def test_settings_are_exported_by_any_form_of_the_name(setting):
    show = ['sh', '-c', 'echo $SLUICE_COLL_THRESHOLD']
    assert run('--set', setting, *show, env={'SLUICE_COLL_THRESHOLD': '2M'}).stdout == '1M\n'
    assert run(f'--set={setting}', *show).stdout == '1M\n'


@pytest.mark.parametrize('args, words', [
    (['--set', 'COLL_TRESHOLD=1M'], ['SLUICE_COLL_TRESHOLD', 'SLUICE_COLL_THRESHOLD']),
    (['--set', 'REGION_KIND=dma'], ['REGION_KIND=dma', 'auto, arena, cma or staged']),
    (['--set', 'REGION_ADOPT_AFTER=99999999'], ['REGION_ADOPT_AFTER', '-1 to']),
    (['--set', 'REGION_MAX'], ['NAME=VALUE', 'REGION_MAX']),
    (['--sett', 'LOG=info'], ['--sett', '--set']),
    (['--sett=LOG=info'], ['--sett', '--set']),
    (['-v'], ['-v', '--set', '--mpi']),
])
def test_a_wrong_option_is_one_line_and_the_program_runs_plain(args, words):
    runs_plain(run(*args, *SHOW_PRELOAD), *words)


def test_a_wrong_variable_in_the_environment_likewise():
    runs_plain(run(*SHOW_PRELOAD, env={'SLUICE_LOGG': 'info'}), 'SLUICE_LOGG', 'SLUICE_LOG')


def test_of_a_job_only_rank_0_tells():
    for variable in ('PMI_RANK', 'OMPI_COMM_WORLD_RANK', 'SLURM_PROCID'):
        runs_plain(run('--set', 'LOGG=1', *SHOW_PRELOAD, env={variable: '0'}))
        other = run('--set', 'LOGG=1', *SHOW_PRELOAD, env={variable: '3'})
        assert (other.stdout, other.stderr) == ('[]\n', '')


def test_a_path_that_ld_preload_cannot_hold_is_told(tmp_path):
    shutil.copytree(PREFIX, tmp_path / 'a b', symlinks=True)
    runs_plain(sluice('run', *SHOW_PRELOAD, program=tmp_path / 'a b/bin/sluice'), 'LD_PRELOAD')


def test_a_missing_library_is_told(tmp_path):
    (tmp_path / 'bin').mkdir()
    shutil.copy(SLUICE, tmp_path / 'bin')
    runs_plain(sluice('run', *SHOW_PRELOAD, program=tmp_path / 'bin/sluice'), 'libsluice.so')


# ---- what cannot be run -----------------------------------------------------------------

def one_line(result, code, text):
    assert (result.returncode, result.stdout) == (code, '')
    assert result.stderr == f'sluice: run: {text}\n'


def test_a_wrong_option_is_named_before_the_program_that_its_value_was_taken_for():
    done = run('--treshold', '4', 'true')
    assert done.returncode == 127
    assert [line.split(':')[2].split("'")[0].strip() for line in done.stderr.splitlines()] == [
        'there is no option', 'cannot execute 4']


def test_a_missing_program_is_127_as_in_a_shell():
    one_line(run('./no-such-app'), 127, 'cannot execute ./no-such-app: No such file or directory')
    one_line(run('no-such-app'), 127, 'cannot execute no-such-app: No such file or directory')


def test_a_program_that_may_not_be_executed_is_126(tmp_path):
    (tmp_path / 'app').write_text('#!/bin/sh\n')
    one_line(run('./app', cwd=tmp_path), 126, 'cannot execute ./app: Permission denied')
    one_line(run('./', cwd=tmp_path), 126, 'cannot execute ./: Permission denied')


def test_a_missing_interpreter_is_named_as_such(tmp_path):
    (tmp_path / 'app').write_text('#!/no/such/interpreter\n')
    (tmp_path / 'app').chmod(0o755)
    one_line(run('./app', cwd=tmp_path), 126,
             'cannot execute ./app: its interpreter does not exist')


def test_a_program_is_found_as_execvp_finds_it(tmp_path):
    for folder, mode in (('first', 0o644), ('second', 0o755)):
        (tmp_path / folder).mkdir()
        (tmp_path / folder / 'app').write_text(f'#!/bin/sh\necho {folder}\n')
        (tmp_path / folder / 'app').chmod(mode)
    path = f'{tmp_path}/first:{tmp_path}/second:{os.environ["PATH"]}'
    assert run('app', env={'PATH': path}).stdout == 'second\n'


def test_a_script_without_an_interpreter_line_runs_as_in_a_shell(tmp_path):
    (tmp_path / 'app').write_text('echo "[$LD_PRELOAD]"\n')
    (tmp_path / 'app').chmod(0o755)
    assert preload_of(run('./app', cwd=tmp_path)) == [str(LIBRARY)]


@pytest.mark.parametrize('name', ['mpiexec', 'mpirun', 'mpiexec.hydra', 'mpirun.openmpi', 'prterun',
                                  'orterun', 'srun', 'aprun', 'jsrun', 'flux'])
def test_a_launcher_in_place_of_the_program_is_told_what_to_write(name, tmp_path):
    (tmp_path / name).write_text('#!/bin/sh\necho launched\n')
    (tmp_path / name).chmod(0o755)
    result = run(name, '-n', '4', './app', env={'PATH': f'{tmp_path}:{os.environ["PATH"]}'})
    assert result.returncode == 2 and result.stdout == ''
    assert len(result.stderr.splitlines()) == 1
    assert 'write: mpiexec -n 4 sluice run ./app' in result.stderr


def test_a_users_mpi_program_may_have_the_name_of_a_launcher(tools, tmp_path):
    program = 'int PMPI_Bcast(void);\nint main(void) { return PMPI_Bcast(); }\n'
    app = compile_c(tmp_path / 'flux', program, tools / 'mpi/lib/libmpi.so.12')
    assert run(app, env={'LD_LIBRARY_PATH': tools / 'mpi/lib'}).returncode == 0


def test_no_program_is_misuse():
    for args in ([], ['--set', 'LOG=info'], ['--']):
        result = run(*args)
        assert result.returncode == 2 and 'sluice run ./app' in result.stderr


# ---- where the loader ignores LD_PRELOAD ------------------------------------------------

# Exits with 1 when it is preloaded.
IS_PRELOADED = '#include <stdlib.h>\nint main(void) { return getenv("LD_PRELOAD") != NULL; }\n'


def test_a_static_program_runs_plain_and_one_line_says_so(tmp_path):
    app = compile_c(tmp_path / 'app', IS_PRELOADED, '-static')
    done = run(app)
    assert (done.returncode, done.stdout) == (0, '')
    assert done.stderr == (f'sluice: run: {app} is statically linked: nothing can be preloaded into it '
                           f'(running {app} without Sluice)\n')
    assert run(app, env={'PMI_RANK': '1'}).stderr == ''


@pytest.mark.skipif(os.getuid() != 0, reason='only root can make a program of another user')
def test_a_set_user_id_program_runs_plain(tmp_path):
    app = compile_c(tmp_path / 'app', IS_PRELOADED)
    os.chown(app, 65534, 65534)
    app.chmod(0o4755)
    done = run(app)
    assert done.returncode == 0 and 'is set-user-ID' in done.stderr and len(done.stderr.splitlines()) == 1
    app.chmod(0o755)
    assert run(app).returncode == 1


# ---- sanitizers, checkpoints ------------------------------------------------------------

def test_the_runtime_of_a_sanitizer_comes_first(tmp_path):
    show = '#include <stdio.h>\n#include <stdlib.h>\nint main(void) { puts(getenv("LD_PRELOAD")); }\n'
    app = compile_c(tmp_path / 'app', show, '-fsanitize=address')
    soname, ours = run(app).stdout.strip().split(':')
    assert soname.startswith('libasan.so.') and ours == str(LIBRARY)
    # what the user preloads comes before Sluice's library
    users = next(line.split()[2] for line in subprocess.run(['ldd', app], capture_output=True, text=True,
                                                            check=True).stdout.splitlines() if soname in line)
    other = str(compile_c(tmp_path / 'other.so', 'int other;\n', '-shared', '-fPIC'))
    env = {'LD_PRELOAD': f'{users}:{other}', 'ASAN_OPTIONS': 'detect_leaks=0'}
    assert run(app, env=env).stdout.strip().split(':') == [users, str(LIBRARY), other]
    assert preload_of(run(*SHOW_PRELOAD, env=env)) == [users, str(LIBRARY), other]


@pytest.mark.parametrize('name, value', [('DMTCP_HIJACK_LIBS', '/lib/libdmtcp.so'),
                                         ('DMTCP_VIRTUAL_PID', '40000')])
def test_under_a_checkpointer_the_program_runs_plain(name, value):
    runs_plain(run(*SHOW_PRELOAD, env={name: value}), 'DMTCP or MANA', name)
    assert preload_of(run(*SHOW_PRELOAD, env={'DMTCP_CHECKPOINT_INTERVAL': '60'})) == [str(LIBRARY)]


def test_a_program_that_a_checkpointer_launches_runs_plain(tmp_path):
    (tmp_path / 'dmtcp_launch').write_text('#!/bin/sh\nexec "$@"\n')
    (tmp_path / 'dmtcp_launch').chmod(0o755)
    runs_plain(run(tmp_path / 'dmtcp_launch', *SHOW_PRELOAD), 'dmtcp_launch')


# ---- --mpi ------------------------------------------------------------------------------

@pytest.mark.parametrize('path', ['mpi', 'mpi/lib', 'mpi/lib/libmpi.so.12'])
def test_mpi_puts_its_folder_first_in_the_library_path(tools, path):
    show = ['sh', '-c', 'echo $LD_LIBRARY_PATH']
    folder = str(tools / 'mpi/lib')
    assert run('--mpi', tools / path, *show).stdout.strip() == folder
    result = run(f'--mpi={tools / path}', *show, env={'LD_LIBRARY_PATH': '/x'})
    assert result.stdout.strip() == f'{folder}:/x'


def test_mpi_may_name_a_linker_script_beside_the_library(tools):
    script = tools / 'mpi/lib/libmpi.so'
    script.write_text('INPUT(libmpi.so.12)\n')
    result = run('--mpi', script, 'sh', '-c', 'echo $LD_LIBRARY_PATH')
    assert result.stdout.strip() == str(script.parent)


def test_mpi_that_is_none_is_misuse(tools, tmp_path):
    other = compile_c(tmp_path / 'libmpi.so.1', 'int MPI_Bcast(void) { return 0; }\n',
                      '-shared', '-fPIC')
    for path, word in ((tmp_path / 'nothing', 'No such file'), (other, 'PMPI_Bcast'),
                       (tmp_path, 'PMPI_Bcast')):
        result = run('--mpi', path, 'true')
        assert result.returncode == 2 and word in result.stderr
        assert len(result.stderr.splitlines()) == 1
        assert run('--mpi', path, 'true', env={'PMI_RANK': '1'}).stderr == ''
