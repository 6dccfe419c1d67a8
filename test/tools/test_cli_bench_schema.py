# SPDX-License-Identifier: BSD-3-Clause
"""The JSON of `sluice bench`: schema, example and manual page agree."""
import copy
import importlib.util
import json
import re

import pytest

from cli import ROOT

EXAMPLE = json.loads((ROOT / 'test/tools/data/bench_example.json').read_text())
SCHEMA = json.loads((ROOT / 'bench/sluice-bench.schema.json').read_text())


def load(name):
    spec = importlib.util.spec_from_file_location(f'bench_{name}', ROOT / f'tools/bench/{name}.py')
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


schema = load('schema')


def test_the_example_is_as_the_schema_says():
    assert schema.problem(EXAMPLE, SCHEMA) is None


def changed(*path, to=None, drop=False):
    doc = copy.deepcopy(EXAMPLE)
    at = doc
    for step in path[:-1]:
        at = at[step]
    if drop:
        del at[path[-1]]
    else:
        at[path[-1]] = to
    return doc


@pytest.mark.parametrize('doc, said', [
    (changed('schema', to='sluice-bench-0'), "file.schema: 'sluice-bench-0' is not one of"),
    (changed('run', 'seconds', to=-1), 'file.run.seconds: -1 is less than 0'),
    (changed('run', 'seconds', to=float('nan')), 'file.run.seconds: nan is less than 0'),
    (changed('run', 'quick', to=1), 'file.run.quick: not boolean'),
    (changed('run', 'stopped', to=3), 'file.run.stopped: not string or null'),
    (changed('mpi', 'version', drop=True), 'file.mpi: no "version"'),
    (changed('mpi', 'more', to=''), 'file.mpi: unknown "more"'),
    (changed('scenarios', 0, 'results', 2, 'sides', 'early', 'p50', to='7'),
     'file.scenarios[0].results[2].sides.early.p50: not number'),
    (changed('scenarios', to={}), 'file.scenarios: not array'),
    ([], 'file: not object'),
])
def test_what_is_wrong_is_said_with_its_place(doc, said):
    assert schema.problem(doc, SCHEMA).startswith(said)


def names(part):
    """Returns all member names in the schema."""
    for name, inner in part.get('properties', {}).items():
        yield name
        yield from names(inner)
    for key in ('items', 'additionalProperties'):
        if isinstance(part.get(key), dict):
            yield from names(part[key])


def test_the_manual_page_names_every_member():
    page = (ROOT / 'doc/man/sluice-bench-json.5.in').read_text()
    words = set(re.findall(r'[a-z0-9_]+', page.replace('\\-', '-')))
    assert set(names(SCHEMA)) - words == set()
