# SPDX-License-Identifier: BSD-3-Clause
"""Help, version and verbs; what the help says can be done."""
import os
import re
import subprocess

import pytest

from cli import PREFIX, ROOT, SLUICE, compile_c, fake_mpi, plain_env, sluice

VERBS = ('run', 'info', 'check', 'trace', 'report', 'bench', 'tune', 'goal')
HELPS = [()] + [(verb,) for verb in VERBS]
# test_cli_trace.py runs the examples of trace, which need an MPI; those of bench and tune by
# test/mpi/test_help.py
ALONE = [(), ('run',), ('info',), ('goal',)]


def test_the_help_names_every_verb():
    assert re.findall(r'^  ([a-z]+) {2,}', sluice('--help').stdout.split('Examples')[0], re.M) == list(VERBS)


@pytest.mark.parametrize('verb', HELPS)
def test_help_fits_a_screen_and_has_an_example(verb):
    result = sluice(*verb, '--help')
    assert (result.returncode, result.stderr) == (0, '')
    lines = result.stdout.splitlines()
    assert len(lines) <= 24 and max(map(len, lines)) <= 80
    assert lines[0].startswith('usage: sluice')
    assert any(line.startswith('Example') for line in lines)
    assert sluice(*verb, '-h').stdout == result.stdout


def examples(verb):
    text = sluice(*verb, '--help').stdout
    block = re.search(r'^Examples:\n((?:  .*\n)+)', text, re.M).group(1)
    return [line.strip() for line in block.splitlines()]


# Fails unless it is preloaded or SLUICE is off.
IS_AS_ASKED = '''
#include <stdlib.h>
#include <string.h>
int main(void)
{
	const char *sluice = getenv("SLUICE");
	return (getenv("LD_PRELOAD") != NULL) == (sluice && !strcmp(sluice, "off"));
}
'''


@pytest.mark.parametrize('verb', ALONE)
def test_the_examples_of_the_help_work(verb, tmp_path):
    fake_mpi(tmp_path / 'mpi')
    (tmp_path / 'mpi/bin/srun').write_text((tmp_path / 'mpi/bin/mpiexec').read_text())
    (tmp_path / 'mpi/bin/srun').chmod(0o755)
    compile_c(tmp_path / 'app', IS_AS_ASKED)
    (tmp_path / 'app.py').write_text('import os\nassert os.environ["LD_PRELOAD"]\n')
    path = f'{tmp_path}/mpi/bin:{SLUICE.parent}:{os.environ["PATH"]}'
    lines = examples(verb)
    assert lines
    for line in lines:
        done = subprocess.run(line.replace('/opt/mpich', f'{tmp_path}/mpi'), shell=True,
                              cwd=tmp_path, env=plain_env(PATH=path), capture_output=True,
                              text=True, timeout=60)
        assert (done.returncode, done.stderr) == (0, ''), line


def test_version_is_that_of_the_header():
    header = (PREFIX / 'include/sluice/sluice.h').read_text()
    version = re.search(r'#define SLUICE_VERSION "(.*)"', header).group(1)
    assert sluice('--version').stdout == f'sluice {version}\n'
    for part, value in zip(('MAJOR', 'MINOR', 'PATCH'), version.split('.')):
        assert f'#define SLUICE_VERSION_{part} {value}\n' in header


ASK_VERSION = '''
#include <stdio.h>
#include <sluice/sluice.h>
int main(void)
{
	puts(sluice_version ? sluice_version() : "none");
	return 0;
}
'''


def test_a_program_can_ask_which_version_is_loaded(tmp_path):
    app = compile_c(tmp_path / 'app', ASK_VERSION, f'-I{PREFIX}/include')
    alone = subprocess.run([app], env=plain_env(), capture_output=True, text=True, check=True)
    assert alone.stdout == 'none\n'
    assert 'sluice ' + sluice('run', app).stdout == sluice('--version').stdout


@pytest.mark.parametrize('word, nearest', [('rnu', 'run'), ('inf', 'info'), ('--hepl', '--help'),
                                           ('walk-dog', None), ('quite-something-else', None)])
def test_an_unknown_verb_is_one_line_with_the_nearest(word, nearest):
    result = sluice(word)
    assert (result.returncode, result.stdout) == (2, '')
    assert len(result.stderr.splitlines()) == 1 and f"'{word}'" in result.stderr
    assert f"'{nearest}'" in result.stderr if nearest else 'sluice --help' in result.stderr


def test_no_verb_is_misuse_and_shows_the_help():
    result = sluice()
    assert result.returncode == 2 and result.stderr == sluice('--help').stdout


def test_output_that_cannot_be_written_is_a_failure():
    with open('/dev/full', 'w', encoding='ascii') as full:
        result = subprocess.run([SLUICE, '--help'], stdout=full, stderr=subprocess.PIPE, text=True)
    assert result.returncode == 1 and 'No space left' in result.stderr


def test_pkg_config_knows_headers_and_libraries():
    env = plain_env(PKG_CONFIG_PATH=PREFIX / 'lib/pkgconfig')

    def ask(*args, package='sluice'):
        return subprocess.run(['pkg-config', *args, package], env=env, capture_output=True,
                              text=True, check=True).stdout.strip()

    assert ask('--variable=preload') == str(PREFIX / 'lib/libsluice.so')
    assert ask('--modversion') in (ROOT / 'meson.build').read_text()
    assert f'-I{PREFIX}/include' in ask('--cflags')
    assert ask('--libs') == f'-L{PREFIX}/lib -lsluice'
    assert ask('--libs', package='sluice-goal') == f'-L{PREFIX}/lib -lsluice-goal'
    assert f'-I{PREFIX}/include' in ask('--cflags', package='sluice-goal')
