# SPDX-License-Identifier: BSD-3-Clause
"""MPI calls right after a collective on the same buffer, and the table that says what calls observe.

Run alone: ./dev check mpi -k observe
"""
import fnmatch
import importlib.util
import json
import re
import sys

import pytest

from support.behaviours import cases
from support.paths import ROOT, SOURCES

TABLE = ROOT / 'src/mpi/front/functions.table'
EARLY = {'SLUICE_COLL_THRESHOLD': '1', 'SLUICE_REGION_ADOPT_AFTER': '1', 'region_adopt_min': '16K',
         'SLUICE_EARLY': 'on', 'SLUICE_EARLY_MIN': '1', 'early_wait': '0'}
CONFIGS = {
    'early': EARLY,
    'mprotect': {**EARLY, 'SLUICE_GUARD_KIND': 'mprotect'},
    'mremap': {**EARLY, 'SLUICE_GUARD_KIND': 'mremap'},
    'none': {**EARLY, 'SLUICE_EARLY': 'off'},
}


def matrix(program):
    by_name = pytest.mark.complete
    return (cases(program, ['mpich', 'openmpi', 'impi'], [2], ['early']) +
            cases(program, ['mpich'], [3], ['early', *list(CONFIGS)[1:]], by_name) +
            cases(program, ['openmpi', 'abi', 'debian-mpich', 'debian-openmpi'], [2, 3], ['early'], by_name))


def behaviours_of(program):
    def wrap(function):
        function.program = program
        return pytest.mark.parametrize('mpi, ranks, config, behaviour', matrix(program))(function)
    return wrap


@behaviours_of('observe.c')
def test_messages(mpi, ranks, config, behaviour, get_mpi, runner, with_sluice):
    runner.check(get_mpi(mpi), 'observe.c', ranks, behaviour, sluice=with_sluice, env=CONFIGS[config])


@behaviours_of('observe_collectives.c')
def test_collectives(mpi, ranks, config, behaviour, get_mpi, runner, with_sluice):
    runner.check(get_mpi(mpi), 'observe_collectives.c', ranks, behaviour, sluice=with_sluice,
                 env=CONFIGS[config])


@behaviours_of('observe_others.c')
def test_others(mpi, ranks, config, behaviour, get_mpi, runner, with_sluice):
    runner.check(get_mpi(mpi), 'observe_others.c', ranks, behaviour, sluice=with_sluice, env=CONFIGS[config])


def by_calls_alone(program):
    """Behaviours in which a call comes before every touch: observe(reads, writes)."""
    text = (SOURCES / program).read_text()
    return re.findall(r'^BEHAVIOUR\((\w+), 2\)\n{\n(?:\tif .*\n\t)?'
                      r'\tobserve\((?!NULL)\w+, (?!NULL)\w+\);', text, re.M)


# System calls are not looked at then: a library that names pages beside the buffer in one (Intel
# MPI, in mbind)
# would count as a touch.
ALONE = {**EARLY, 'SLUICE_GUARD_KIND': 'uffd'}


def counters(folder):
    """Counters of all ranks, from SLUICE_STATS=folder/stats."""
    total = {}
    for path in folder.glob('stats.*.json'):
        for key, value in json.loads(path.read_text()).items():
            total[key] = total.get(key, 0) + value
    if not total['early']:
        pytest.skip('no call returns early on this machine')
    return total


@pytest.mark.parametrize('name', ['mpich', 'openmpi', 'impi'])
@pytest.mark.parametrize('program', ['observe.c', 'observe_collectives.c', 'observe_others.c'])
def test_calls_complete_before_anything_is_touched(name, program, get_mpi, with_sluice, tmp_path):
    """The guard would save a call that has been forgotten, but not when a peer's library looks."""
    if not with_sluice:
        pytest.skip('--plain')
    mpi, wanted = get_mpi(name), by_calls_alone(program)
    result = mpi.launch(2, mpi.build(program), *wanted,
                        env={**ALONE, 'SLUICE_STATS': str(tmp_path / 'stats')})
    assert result.status == 0 and result.out.count('ok ') == len(wanted) > 0, result.explain()
    total = counters(tmp_path)
    assert total['early_called'] > len(wanted) and not total['early_touched'], total


@pytest.mark.parametrize('name', ['debian-mpich', 'debian-openmpi'])
@pytest.mark.parametrize('how', ['mpifh', 'f08'])
def test_fortran_calls_complete(name, how, get_mpi, with_sluice, tmp_path):
    """Fortran's calls come to the same wrappers, with C's MPI_IN_PLACE."""
    mpi = get_mpi(name)
    result = mpi.launch(2, mpi.build(f'observe_{how}.f90'), sluice=with_sluice,
                        env={**ALONE, 'SLUICE_STATS': str(tmp_path / 'stats')})
    assert result.status == 0 and 'ok fortran' in result.out, result.explain()
    if with_sluice:
        total = counters(tmp_path)
        assert total['early_called'] > 10 and not total['early_touched'], total


@pytest.mark.parametrize('name', ['mpich', 'openmpi', 'impi'])
def test_finalize(name, get_mpi, with_sluice):
    """Operations that are pending at MPI_Finalize complete before callbacks run inside it."""
    mpi = get_mpi(name)
    result = mpi.launch(2, mpi.build('observe_others.c'), 'finalize', sluice=with_sluice, env=EARLY)
    assert result.status == 0 and 'ok finalize' in result.out and '# ' not in result.out, result.explain()


# ---- the table -----------------------------------------------------------------------------------------

@pytest.fixture(scope='module')
def table():
    """functions.table as the build reads it."""
    # by its path: other tests bring modules of this name
    spec = importlib.util.spec_from_file_location('mpi_functions_table', TABLE.parent / 'table.py')
    module = importlib.util.module_from_spec(spec)
    sys.modules[spec.name] = module # dataclasses look there
    spec.loader.exec_module(module)
    yield module
    del sys.modules[spec.name]


@pytest.fixture(scope='module')
def standard():
    """{name: (signature in C, names of its buffers)} of MPI, large counts too; without tools and handles."""
    import pympistandard as std # of build/venv-check, as pytest is
    std.use_api_version()
    functions = {}
    for key, procedure in std.PROCEDURES.items():
        if key.startswith('mpi_t_') or not procedure.express.iso_c:
            continue
        buffers = [p['name'] for p in procedure._parseset['parameters'] if 'BUFFER' in p['kind']]
        forms = [procedure.express.iso_c]
        if procedure.has_embiggenment():
            forms.append(procedure.express.embiggen.iso_c)
        for form in filter(None, map(str, forms)):
            match = re.match(r'(\w+) MPI_(\w+)\((.*)\)$', form)
            if match:
                functions[match[2]] = (match[1], match[3], buffers)
    return functions


def plain(args):
    """Types without names, as a compiler sees them."""
    out = []
    for arg in args.split(','):
        arg = arg.strip().replace('...', '').replace('[]', ' *')
        arg = re.sub(r'\b\w+(?=\s*\*?$)', '', arg) if re.search(r'\w[ *]+\w+ ?\*?$', arg) else arg
        out.append(re.sub(r'\s+', '', arg))
    return [a for a in out if a]


def test_table_forgets_no_function_of_the_standard(table, standard):
    known = {f.name for f in table.read(TABLE)}
    known |= {name for f in table.read(TABLE) for name in f.names}
    omitted = table.omitted(TABLE)
    missing = [n for n in standard if n not in known and not any(fnmatch.fnmatch(n, p) for p in omitted)]
    assert not missing, 'neither in the way nor omitted, with a reason: ' + ' '.join(sorted(missing))


def test_table_leaves_no_buffer_by_a_pattern(table, standard):
    """A function with a buffer is excluded by its own name or not at all."""
    known = {f.name for f in table.read(TABLE) if f.exported}
    omitted = set(table.omitted(TABLE))
    forgotten = [n for n, (_, _, buffers) in standard.items()
                 if buffers and n not in known and n.removesuffix('_c') not in omitted and n not in omitted]
    assert not forgotten, ' '.join(sorted(forgotten))


def test_table_names_every_buffer(table, standard):
    """A function observes all its buffers, or everything."""
    wrong = []
    for f in table.read(TABLE):
        if not f.exported or f.name not in standard or any(t.verb == 'all' for t in f.terms):
            continue
        named = {a for t in f.terms for a in t.args}
        # where MPI says where its own buffer is or was
        says = f.name.startswith(('Buffer_detach', 'Win_allocate_shared'))
        buffers = [] if says else standard[f.name][2]
        wrong += [f'{f.name}: {b}' for b in buffers if b not in named]
    assert not wrong, wrong


def test_table_has_the_signatures_of_the_standard(table, standard):
    wrong = [f.name for f in table.read(TABLE) if f.exported and f.name in standard and
             plain(f.args.replace('void', 'void')) != plain(standard[f.name][1])]
    assert not wrong, wrong


def test_each_collective_that_makes_something_is_a_wait(table, standard):
    """Calls that wait/ does not see are one wait to it: in a row of them each step sleeps."""
    known = {f.name for f in table.read(TABLE) if f.exported}
    makes = {n: args for n, (_, args, _) in standard.items() if re.search(r'MPI_(Comm|Win|File) ?\*', args)}
    unseen = [n for n, args in makes.items() if re.search(r'MPI_(Comm|Group) \w+', args) and n not in known]
    assert len(makes) > 20 and not unseen, ' '.join(sorted(unseen))


def test_left_functions_are_not_exported(table):
    exported = {f.name for f in table.read(TABLE) if f.exported}
    both = [n for n in exported if any(fnmatch.fnmatchcase(n, p) for p in table.omitted(TABLE))]
    assert not both, both
