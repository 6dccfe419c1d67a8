# SPDX-License-Identifier: BSD-3-Clause
"""Datatypes with gaps in memory that peers have mapped, or not: the result, and each byte around it, is
the host MPI's. The counters say whether movers copied from layout to layout.

10,000 cases: HARNESS_TRIALS=10000 build/venv-check/bin/python -m pytest test/mpi/test_typed.py
Run alone: ./dev check mpi -k typed
"""
import json

import pytest

from support.behaviours import cases

KINDS = ['BCAST', 'GATHER', 'SCATTER', 'ALLGATHER', 'ALLTOALL', 'VECTOR', 'NONBLOCKING']
TAKEN = {'SLUICE_COLL_THRESHOLD': '1', **{f'coll:{kind}': 'on' for kind in KINDS}}
MAPPED = {**TAKEN, 'SLUICE_REGION_KIND': 'arena', 'SLUICE_REGION_ADOPT_AFTER': '0',
          'region_adopt_min': '4K'}
CONFIGS = {
    'mapped': MAPPED,
    'pieces': {**MAPPED, 'fault': 'piece:all', 'xfer_fragment': '4K'},
    'not_mapped': {**TAKEN, 'SLUICE_REGION_KIND': 'cma'},
}


def matrix(program):
    """MPICH only, but for a few cases: Open MPI 5 packs some nested types wrongly (case 62 of
    one_type_for_all_parts with HARNESS_SEED=77 and 3 ranks), and Intel MPI crashes in that behaviour."""
    by_name = pytest.mark.complete
    return (cases(program, ['mpich'], [3], ['mapped']) + cases(program, ['openmpi'], [2], ['mapped']) +
            cases(program, ['mpich'], [2], ['pieces', 'not_mapped']) +
            cases(program, ['abi', 'debian-mpich'], [4], CONFIGS, by_name))


@pytest.mark.parametrize('mpi, ranks, config, behaviour', matrix('typed.c'))
def test_typed(mpi, ranks, config, behaviour, get_mpi, runner, with_sluice):
    runner.check(get_mpi(mpi), 'typed.c', ranks, behaviour, sluice=with_sluice, env=CONFIGS[config])


@pytest.mark.parametrize('behaviour', ['columns_become_rows', 'columns_become_rows_by_requests'])
@pytest.mark.parametrize('config', ['mapped', 'not_mapped'])
def test_mapped_types_are_not_packed(config, behaviour, get_mpi, with_sluice, tmp_path):
    if not with_sluice:
        pytest.skip('--plain')
    mpi = get_mpi('mpich')
    result = mpi.launch(2, mpi.build('typed.c'), behaviour,
                        env={**CONFIGS[config], 'SLUICE_STATS': str(tmp_path / 'stats')})
    assert result.status == 0, result.explain()
    for path in tmp_path.iterdir():
        counters = json.loads(path.read_text())
        # each rank makes 12 calls, and one side of each has gaps
        assert counters['typed'] == (12 if config == 'mapped' else 0), counters
        assert counters['packed'] == (0 if config == 'mapped' else 12), counters


test_typed.program = 'typed.c'
