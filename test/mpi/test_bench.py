# SPDX-License-Identifier: BSD-3-Clause
"""sluice bench with real MPIs, found, loaded and launched as a user's would be."""
import json
import subprocess

import pytest

from support.mpi import ALL
from support.paths import ROOT, SLUICE

ABI_OF = {'mpich': 'MPICH', 'openmpi': 'OMPI', 'standard': 'STD'}
TINY = '''[scenario]
title = Tiny
about = A few calls.
plot = lines
warmup = one call
rounds = 1

[job calls]
program = collective_bench
what = bcast call-gather allreduce sendrecv barrier
sizes = 64 256K
args = ms=1 min=3 max=3 warmup=1
'''


@pytest.mark.parametrize('name', ALL)
def test_the_values_of_the_measuring_programs_are_this_mpis(name, get_mpi):
    mpi = get_mpi(name)
    program = mpi.build('bench_abi.c', name='bench_abi', extra=[
        f'-DSLUICE_ABI_{ABI_OF[mpi.abi]}', f'-I{ROOT}/src', f'-I{ROOT}/bench'])
    done = mpi.launch(1, program, sluice=False)
    assert 'ok bench abi' in done.out, done.explain()


@pytest.mark.parametrize('name', [n for n in ALL if ALL[n].libdir])
def test_bench_measures_with(name, get_mpi, tmp_path):
    mpi = get_mpi(name)
    (tmp_path / 'tiny.ini').write_text(TINY)
    library = mpi.libdir / {'standard': 'libmpi_abi.so.1', 'openmpi': 'libmpi.so.40'}.get(mpi.abi,
                                                                                          'libmpi.so.12')
    done = subprocess.run([SLUICE, 'bench', 'tiny.ini', '--mpi', library, '--sides', 'plain,early', '-o',
                           'out.json'],
                          cwd=tmp_path, env=mpi.env(), capture_output=True, text=True, timeout=240)
    assert done.returncode == 0, done.stdout + done.stderr
    out = json.loads((tmp_path / 'out.json').read_text())
    assert out['mpi']['library'] == str(library) and not out['failures'] and out['run']['complete']
    results = {r['key']: r for r in out['scenarios'][0]['results']}
    for key in ('bcast/use/2/64', 'bcast/use/2/262144', 'gather/call/2/64', 'gather/call/2/262144',
                'allreduce/use/2/64', 'sendrecv/use/2/262144', 'barrier/use/2/0'):
        for side in ('plain', 'early'):
            assert results[key]['sides'][side]['p50'] > 0 and results[key]['sides'][side]['wrong'] == 0
