# SPDX-License-Identifier: BSD-3-Clause
"""Packages hold what `meson install` installs, under the version of the tree. Nothing is built here."""
import fnmatch
import importlib.util
import re
import sys
import types

import pytest

from support.paths import PREFIX, ROOT

DEBIAN = ROOT / 'packaging/debian'
VERSION = re.search(r"version: '([^']+)'", (ROOT / 'meson.build').read_text())[1]
INSTALLED = sorted(p.relative_to(PREFIX).as_posix() for p in PREFIX.rglob('*') if not p.is_dir())


@pytest.fixture
def hook(monkeypatch):
    """packaging/wheel/hatch_build.py, without hatchling."""
    interface = types.ModuleType('hatchling.builders.hooks.plugin.interface')
    interface.BuildHookInterface = object
    monkeypatch.setitem(sys.modules, interface.__name__, interface)
    spec = importlib.util.spec_from_file_location('hatch_build', ROOT / 'packaging/wheel/hatch_build.py')
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def test_the_wheel_takes_its_version_from_meson():
    text = (ROOT / 'pyproject.toml').read_text()
    pattern = re.search(r'pattern = "(.*)"', text)[1]
    assert re.search(pattern, (ROOT / 'meson.build').read_text())['version'] == VERSION


def test_the_wheel_holds_each_installed_file_but_the_module_file(hook):
    held = {place for _, place in hook.installed_files(PREFIX)}
    assert {'bin/sluice', 'lib/libsluice.so', 'lib/libsluice-goal.so', 'lib/libsluice-goal.so.0',
            'lib/libsluice-profile.so',
            'lib/libsluice-record.so',
            'libexec/sluice/sluice-worker', 'share/sluice/host-mpi.tune', 'share/man/man1/sluice-run.1',
            'include/sluice/goal.h', 'lib/python3/dist-packages/sluice/goal.py'} <= held
    # build/prefix may hold files of earlier versions, too
    assert {re.sub(r'\d+\.\d+\.\d+$', 'V', name) for name in set(INSTALLED) - held} == \
        {'lib/libsluice-goal.so.V', 'share/modulefiles/sluice/V'}


def test_the_wheel_build_refuses_another_machine(hook, monkeypatch):
    monkeypatch.setattr(hook.platform, 'machine', lambda: 'aarch64')
    with pytest.raises(SystemExit, match='^sluice: runs on x86-64 Linux only; .* is aarch64 Linux$'):
        hook.MesonInstall().initialize('standard', {})


def test_the_debian_packages_have_the_version_of_the_tree():
    assert re.match(r'sluice \(([^)]+)\) ', (DEBIAN / 'changelog').read_text())[1] == VERSION


def test_each_installed_file_is_in_one_debian_package():
    lists = {path.name: [line.split()[0] for line in path.read_text().splitlines()]
             for path in [*DEBIAN.glob('*.install'), DEBIAN / 'not-installed']}
    for name in INSTALLED:
        place = 'usr/' + re.sub('^lib/(?!python3/)', 'lib/x86_64-linux-gnu/', name)
        homes = [home for home, patterns in lists.items()
                 if any(fnmatch.fnmatch(place, p) or place.startswith(p + '/') or
                        fnmatch.fnmatch(place, p + '/*') for p in patterns)]
        assert len(homes) == 1, (place, homes)
