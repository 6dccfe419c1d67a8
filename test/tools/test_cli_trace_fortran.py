# SPDX-License-Identifier: BSD-3-Clause
"""sluice trace of Fortran programs: a call shows the program's line, not the MPI library's function."""
import json
import re
import shutil

import pytest

from cli import PROGRAMS
from support import mpi as mpis
from support.paths import SLUICE

RANKS, ROUNDS, BIG = 2, 30, 262144 * 4


@pytest.mark.parametrize('how', ['mpifh', 'f08'])
@pytest.mark.parametrize('name', ['debian-mpich', 'debian-openmpi'])
def test_calls_from_fortran_are_told_by_the_programs_lines(name, how, tmp_path):
    mpi = mpis.ALL[name]
    if mpi.missing() or not shutil.which('gfortran') or not shutil.which(mpi.compilers['fortran']):
        pytest.skip(mpi.missing() or 'gfortran is not here; ./dev setup installs it')
    source = PROGRAMS / f'traced_{how}.f90'
    program = mpi.build(source, ['-g'])
    done = mpi.launch(RANKS, SLUICE, 'trace', '-o', tmp_path / 't', program, sluice=False, timeout=100)
    assert done.status == 0, done.explain()
    text = (tmp_path / 't/timeline.html').read_text()
    places = json.loads(re.search(r'<script id="meta" type="application/json">(.*?)</script>', text,
                                  re.S).group(1))['places']
    lines = {mark: number for number, line in enumerate(source.read_text().splitlines(), 1)
             for mark in re.findall(r'! (first|second|third|fourth)$', line)}
    # builds without elfutils show an offset for each place
    found = {p['where'] if '.f90:' in p['where'] else i: [p['calls'], p['bytes']] for i,
             p in enumerate(places) if p['calls']}
    want = {'first': [ROUNDS, ROUNDS * BIG], 'second': [ROUNDS // 3, ROUNDS // 3 * BIG],
            'third': [ROUNDS, ROUNDS * 8],
            'fourth': [ROUNDS, 400 * ROUNDS * (ROUNDS + 1) // 2]}
    want = {f'{source.name}:{lines[mark]}': [RANKS * n for n in numbers] for mark, numbers in want.items()}
    if any('.f90:' in str(where) for where in found):
        assert found == want
    else:
        assert sorted(found.values()) == sorted(want.values())
