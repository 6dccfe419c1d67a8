# SPDX-License-Identifier: BSD-3-Clause
"""The recipe for Spack without Spack: what it says is recorded, and compared with what the build takes."""
import json
import re
import shutil
import subprocess
import sys
import types

import pytest

from cli import ROOT

RECIPE = ROOT / 'packaging/spack/packages/sluice/package.py'
# what Spack gives to each package that is built by Meson
STANDARD = ['-Dprefix=/p', '-Dlibdir=/p/lib', '-Dbuildtype=release', '-Dstrip=false',
            '-Ddefault_library=shared',
            '-Dwrap_mode=nodownload']


class Spec:
    def __init__(self, *on):
        self.on = on

    def satisfies(self, text):
        return text[0] == '+' and text[1:] in self.on


@pytest.fixture
def recipe(monkeypatch):
    """(class, {directive: [(words, keywords)]})"""
    said = {}

    def directive(name):
        return lambda *words, **more: said.setdefault(name, []).append((words, more))

    module = types.ModuleType('spack.package')
    for name in ('license', 'version', 'variant', 'depends_on', 'conflicts'):
        setattr(module, name, directive(name))
    for name in ('run_after', 'on_package_attributes'):
        setattr(module, name, lambda *words, **more: lambda function: function)
    module.MesonPackage, module.Executable = type('MesonPackage', (), {}), None
    monkeypatch.setitem(sys.modules, 'spack', types.ModuleType('spack'))
    monkeypatch.setitem(sys.modules, 'spack.package', module)
    names = {}
    exec(compile(RECIPE.read_text(), str(RECIPE), 'exec'), names)
    return names['Sluice'], said


def args_of(recipe, *on):
    package = recipe[0]()
    package.spec = Spec(*on)
    return package.meson_args()


def options():
    return re.findall(r"^option\('(\w+)', type: 'feature'", (ROOT / 'meson_options.txt').read_text(), re.M)


def test_each_variant_is_an_option_of_the_build_and_comes_there(recipe):
    variants = [words[0] for words, _ in recipe[1]['variant']]
    assert sorted(variants) == sorted(options())
    for name in variants:
        assert f'-D{name}=enabled' in args_of(recipe, name) and f'-D{name}=disabled' in args_of(recipe)
        assert [m.get('when') for _, m in recipe[1]['depends_on']].count(f'+{name}') == 1


def test_versions_are_those_that_are_asked_for_elsewhere(recipe):
    needed = {words[0].partition('@')[0]: words[0].partition('@')[2].rstrip(':') for words,
              _ in recipe[1]['depends_on']}
    meson = re.search(r"meson_version: '>= ?([\d.]+)'", (ROOT / 'meson.build').read_text())[1]
    assert [int(n) for n in needed['meson'].split('.')] >= [int(n) for n in meson.split('.')[:2]]
    python = re.search(r'version_info < \((\d+), (\d+)\)', (ROOT / 'tools/bench/main.py').read_text())
    assert needed['python'] == '.'.join(python.groups())
    assert recipe[1]['license'] == [(('BSD-3-Clause',), {})]


def test_the_build_takes_what_the_recipe_gives(recipe, tmp_path):
    if not shutil.which('meson'):
        pytest.skip('meson is not here')
    done = subprocess.run(['meson', 'setup', tmp_path / 'b', ROOT, *STANDARD, *args_of(recipe)],
                          capture_output=True, text=True)
    assert done.returncode == 0, done.stdout + done.stderr
    found = subprocess.run(['meson', 'introspect', '--dependencies', tmp_path / 'b'], capture_output=True,
                           text=True, check=True)
    assert not {'hwloc', 'libdw'} & {d['name'] for d in json.loads(found.stdout)}
