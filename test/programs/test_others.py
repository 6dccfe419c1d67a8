# SPDX-License-Identifier: BSD-3-Clause
"""Programs that nobody here wrote, with the same results plain and under Sluice; by name only.

./dev check programs runs those whose packages are installed, and names the package of each other one.
Run alone: ./dev check programs -k lammps
"""
import json
import os

import pytest
from others import PROGRAMS, difference

from support import mpi as mpis
from support.mpi import EARLY

pytestmark = [pytest.mark.complete, pytest.mark.alone, pytest.mark.timeout(900)]
KINDS = ['BCAST', 'GATHER', 'SCATTER', 'ALLGATHER', 'ALLTOALL', 'REDUCE', 'ALLREDUCE', 'REDUCE_SCATTER',
         'SCAN', 'VECTOR', 'NEIGHBOR', 'NONBLOCKING', 'BARRIER']
TAKEN = {'SLUICE_COLL_THRESHOLD': '1', **{f'coll:{kind}': 'on' for kind in KINDS}}
WAYS = {
    'default': {},
    'taken': TAKEN,
    'early': {**TAKEN, **EARLY},
    'cma': {**TAKEN, 'SLUICE_REGION_KIND': 'cma'},
    'endpoints': {'SLUICE_ENDPOINTS': '2'},
    'switch': {'SLUICE_ENDPOINTS': '4', 'SLUICE_ENDPOINTS_SWITCH': 'user'},
}


def run(program, ranks, folder, sluice, env):
    folder.mkdir()
    result = mpis.ALL[program.mpi].launch(ranks, *program.prepare(folder, ranks), sluice=sluice, cwd=folder,
                                          env={**program.env, **env}, timeout=150)
    assert result.status in program.ends and not result.timed_out, result.explain()
    assert not result.leftovers, result.leftovers
    made = [folder / name for name in program.made]
    return result, program.lines('\n'.join([result.out, *(path.read_text() for path in made)]))


def admitted(folder):
    """Collectives that Sluice executed, of all ranks."""
    return sum(value for path in folder.glob('stats.*.json')
               for name, value in json.loads(path.read_text()).items() if name.endswith('_admitted'))


@pytest.mark.parametrize('program, ranks', [
    pytest.param(program, n, id=f'{program.name}-{n}') for program in PROGRAMS for n in program.ranks
    if n >= program.least])
def test_program(program, ranks, with_sluice, tmp_path, record_property):
    if program.missing():
        pytest.skip(program.missing())
    if ranks > len(os.sched_getaffinity(0)) and program.spins():
        pytest.skip(f'{ranks} ranks of MPICH on fewer CPUs spin through time slices: minutes without Sluice')
    result, plain = run(program, ranks, tmp_path / 'plain', False, {})
    assert plain, f'nothing to compare\n{result.explain()}'
    times, counts, wrong = {'plain': result.seconds}, {}, []
    record_property('times', (f'{program.name}-{ranks}', times, counts))
    for way, env in WAYS.items():
        result, ours = run(program, ranks, tmp_path / way, with_sluice,
                           {**env, 'SLUICE_STATS': str(tmp_path / way / 'stats')})
        counts[way] = admitted(tmp_path / way)
        times[way] = result.seconds
        found = difference(plain, ours, program.tolerance)
        wrong += [f'{way}: {found}\n{result.command()}'] if found else []
    assert not wrong, '\n'.join(wrong)
    if program.has_collectives and ranks > 1 and with_sluice:
        assert counts['taken'], 'Sluice has executed nothing'
