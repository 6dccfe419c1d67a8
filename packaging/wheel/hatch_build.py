# SPDX-License-Identifier: BSD-3-Clause
"""Fills the wheel with the tree that `meson install` makes.

    PREFIX/bin/sluice        -> sluice-VERSION.data/scripts/
    PREFIX/lib/python3/dist-packages/sluice -> sluice
    PREFIX/{lib,libexec,...} -> sluice-VERSION.data/data/

pip unpacks both below the environment's prefix, so the installed tree has the form of every other
installation, and each part finds the others relative to itself.
"""
import os
import pathlib
import platform
import subprocess
import sys
import tempfile

from hatchling.builders.hooks.plugin.interface import BuildHookInterface

# hwloc and libdw would be foreign libraries in the wheel. Without them `sluice info` reads the topology
# from /sys, and `sluice trace` names the functions of C and Fortran programs but not their lines.
SETUP = ['--prefix=/usr/local', '--bindir=bin', '--libdir=lib', '--libexecdir=libexec', '--datadir=share',
         '--mandir=share/man', '--includedir=include', '--sysconfdir=etc', '--buildtype=release', '--strip',
         '-Dhwloc=disabled', '-Ddwarf=disabled', '-Dtests=false', '-Dpkgconfig.relocatable=true']


PYTHON = 'lib/python3/dist-packages/'


def run(*command):
    """Runs a command; the build ends with its message when it fails."""
    done = subprocess.run([str(word) for word in command], stdout=subprocess.PIPE, stderr=subprocess.STDOUT,
                          text=True)
    if done.returncode:
        sys.stderr.write(done.stdout)
        sys.exit(f'sluice: {" ".join(map(str, command[:2]))} failed')


def installed_files(stage):
    """Yields (file, its place below the prefix). A wheel holds no links: a library is there under its
    soname and under the name that `ld -l` looks for, not under its full version."""
    for path in sorted(stage.rglob('*')):
        place = path.relative_to(stage)
        if path.is_dir() or place.parts[:2] == ('share', 'modulefiles'):
            continue
        if place.parts[0] == 'lib' and not path.is_symlink() and '.so.' in place.name:
            continue
        yield path, place.as_posix()


class MesonInstall(BuildHookInterface):
    def initialize(self, version, build_data):
        if (platform.system(), platform.machine()) != ('Linux', 'x86_64'):
            sys.exit(f'sluice: runs on x86-64 Linux only; this machine is {platform.machine()} '
                     f'{platform.system()}')
        self.work = tempfile.TemporaryDirectory(prefix='sluice-wheel-')
        tree, stage = pathlib.Path(self.work.name, 'tree'), pathlib.Path(self.work.name, 'stage')
        jobs = os.environ.get('DEV_JOBS', len(os.sched_getaffinity(0)))
        run('meson', 'setup', tree, self.root, *SETUP)
        run('meson', 'compile', '-C', tree, '-j', jobs)
        run('meson', 'install', '-C', tree, '--no-rebuild', '--destdir', stage)
        files = dict(installed_files(stage / 'usr/local'))
        build_data['shared_scripts'] = {str(path): place[len('bin/'):] for path, place in files.items()
                                        if place.startswith('bin/')}
        build_data['force_include'] = {str(path): place[len(PYTHON):] for path, place in files.items()
                                       if place.startswith(PYTHON)}
        build_data['shared_data'] = {str(path): place for path, place in files.items()
                                     if not place.startswith(('bin/', PYTHON))}
        # Any Python 3; auditwheel replaces linux by the manylinux tag that holds (packaging/wheel/build).
        build_data['tag'] = 'py3-none-linux_x86_64'
        build_data['pure_python'] = False

    def finalize(self, version, build_data, artifact_path):
        self.work.cleanup()
