# SPDX-License-Identifier: BSD-3-Clause
"""The Debian packages: built, judged by lintian, unpacked, and run from where they were unpacked."""
import shutil
import subprocess

import pytest

from support import mpi as mpis
from support.paths import ROOT

pytestmark = [pytest.mark.complete, pytest.mark.timeout(1800)]


@pytest.fixture(scope='module')
def packages(tmp_path_factory):
    for program in 'dh', 'lintian':
        if not shutil.which(program):
            pytest.skip(f'{program} is not here; ./dev check install installs it')
    out = tmp_path_factory.mktemp('deb')
    done = subprocess.run([ROOT / 'packaging/debian/build', out], capture_output=True, text=True,
                          timeout=1500)
    assert done.returncode == 0, done.stdout + done.stderr
    return {path.name.partition('_')[0]: path for path in out.glob('*.deb')}


@pytest.fixture(scope='module')
def unpacked(packages, tmp_path_factory):
    out = tmp_path_factory.mktemp('root')
    for name in 'sluice', 'libsluice-goal0', 'libsluice-dev':
        subprocess.run(['dpkg-deb', '-x', packages[name], out], check=True)
    return out


def test_lintian_has_no_error_and_no_warning(packages):
    done = subprocess.run(['lintian', '--fail-on', 'error,warning', *packages.values()], capture_output=True,
                          text=True)
    assert done.returncode == 0, done.stdout + done.stderr


@pytest.mark.parametrize('name', ['debian-mpich', 'debian-openmpi'])
def test_a_program_is_linked_and_runs_with_the_packages(unpacked, name, tmp_path):
    """stencil.c uses the headers, the GOAL library and the host MPI."""
    mpi = mpis.need(name)
    libraries = unpacked / 'usr/lib/x86_64-linux-gnu'
    found = {'PKG_CONFIG_LIBDIR': str(libraries / 'pkgconfig'), 'PKG_CONFIG_SYSROOT_DIR': str(unpacked)}
    flags = subprocess.run(['pkg-config', '--cflags', '--libs', 'sluice-goal'], check=True,
                           capture_output=True, text=True, env={**mpi.env(), **found}).stdout.split()
    program = tmp_path / 'stencil'
    compiler = mpi.compilers['cc']
    subprocess.run([compiler, '-O2', ROOT / 'examples/stencil.c', '-o', program, *flags], check=True,
                   env=mpi.env())
    done = mpi.launch(2, program, '64', '10', '2', sluice=False, before=[unpacked / 'usr/bin/sluice', 'run'],
                      env={'LD_LIBRARY_PATH': str(libraries)})
    assert done.status == 0, done.explain()
