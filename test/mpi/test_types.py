# SPDX-License-Identifier: BSD-3-Clause
"""Random nested datatypes, every byte compared with the types' maps and the library's own functions.

Here some cases of each collective; 10,000: ./dev check stress -k random_types. Run alone:
./dev check mpi -k random_types
"""
import json

import pytest

from support.behaviours import Report, behaviours, cases
from support.mpi import EARLY

KINDS = ['BCAST', 'GATHER', 'SCATTER', 'ALLGATHER', 'ALLTOALL', 'ALLREDUCE', 'VECTOR', 'NONBLOCKING']
TAKEN = {'SLUICE_COLL_THRESHOLD': '1', **{f'coll:{kind}': 'on' for kind in KINDS}}
# Two libraries choose an algorithm by counts or extents that differ between ranks here, and wait for ever.
LIBRARIES = {'MPIR_CVAR_ALLGATHERV_INTRA_ALGORITHM': 'brucks', 'OMPI_MCA_coll': '^tuned'}
CONFIGS = {
    'taken': TAKEN,
    'early': {**TAKEN, **EARLY, 'SLUICE_GUARD_KIND': 'uffd'},
    'small_fragments': {**TAKEN, 'xfer_fragment': '16K', 'SLUICE_REGION_ADOPT_AFTER': '1',
                        'region_adopt_min': '4K'},
    'cma': {**TAKEN, 'SLUICE_REGION_KIND': 'cma'},
    'staged': {**TAKEN, 'SLUICE_REGION_KIND': 'staged'},
}
# An MPI library passes on nothing here but calls without data, and operations of the program.
LEAST_ADMITTED = 0.8


def check_types(mpi, ranks, config, with_sluice, folder, names=None, timeout=100, **env):
    """All collectives in one job; Sluice has really executed them."""
    names = names or [name for name, _ in behaviours('types_random.c')]
    env = {**LIBRARIES, **(CONFIGS[config] if with_sluice else {}),
           'SLUICE_STATS': str(folder / 'stats'), **env}
    result = mpi.launch(ranks, mpi.build('types_random.c'), *names, sluice=with_sluice, env=env,
                        timeout=timeout)
    report = Report(result)
    bad = [name for name in names if report.verdicts.get(name, ('none',))[0] != 'ok']
    why = '\n'.join(text for name in bad for text in report.why.get(name, []))
    assert not bad and result.status == 0, f'{bad}\n{why}\n{result.explain()}'
    assert not result.leftovers, result.leftovers
    for path in folder.glob('stats.*.json') if with_sluice else ():
        counters = json.loads(path.read_text())
        for family in {name.rstrip('vw') for name in names} - {'allreduce'}:
            n, passed = counters[f'{family}_admitted'], counters[f'{family}_passed']
            assert n > LEAST_ADMITTED * (n + passed), f'{family}: {n} admitted, {passed} passed'


@pytest.mark.parametrize('name, ranks, config', [
    ('mpich', 3, 'taken'), ('mpich', 2, 'early'), ('openmpi', 3, 'small_fragments'),
    *[pytest.param(name, ranks, config, marks=pytest.mark.complete)
      for name in ('mpich', 'openmpi', 'abi') for ranks in (2, 4) for config in CONFIGS
      if (name, ranks, config) != ('mpich', 2, 'early')]])
def test_random_types(name, ranks, config, get_mpi, with_sluice, tmp_path):
    check_types(get_mpi(name), ranks, config, with_sluice, tmp_path)


@pytest.mark.parametrize('mpi, ranks, config, behaviour',
                         cases('sparse.c', ['mpich'], [3], ['taken']) +
                         cases('sparse.c', ['mpich', 'openmpi'], [2], ['early']) +
                         cases('sparse.c', ['mpich', 'openmpi', 'abi'], [4], CONFIGS, pytest.mark.complete))
def test_far_apart(mpi, ranks, config, behaviour, get_mpi, runner, with_sluice):
    """Counts, extents and displacements beyond 2^31."""
    runner.check(get_mpi(mpi), 'sparse.c', ranks, behaviour, sluice=with_sluice, env=CONFIGS[config])


test_far_apart.program = 'sparse.c'
