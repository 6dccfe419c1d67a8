# SPDX-License-Identifier: BSD-3-Clause
"""Polite waiting: CPU time of ranks that block, and that every wait ends.

Run alone: ./dev check mpi -k test_wait
"""
import json
import pathlib
import re

import pytest

from support.behaviours import behaviours

PROGRAM = 'waits.c'
MPIS = ['mpich', 'mpich-3.4', 'mpich-4.2', 'openmpi', 'impi', 'debian-mpich', 'debian-openmpi']
KINDS = [name for name, _ in behaviours(PROGRAM) if name != 'parts']
INTEL_DEFAULTS = {'I_MPI_THREAD_YIELD': None, 'I_MPI_THREAD_SLEEP': None} # which spin, but for us
NOTE = re.compile(r'cpu ([\d.]+) late (\d+)')


@pytest.mark.parametrize('behaviour', KINDS)
@pytest.mark.parametrize('mpi', MPIS)
def test_wait_is_polite_and_ends(mpi, behaviour, runner, get_mpi, with_sluice):
    report = runner.check(get_mpi(mpi), PROGRAM, 4, behaviour, sluice=with_sluice,
                          env={'SLUICE_WAIT': 'polite'})
    shares = [float(NOTE.search(note).group(1)) for note in report.notes[behaviour]]
    assert len(shares) == 3, report.result.explain()
    # 5 where the machine is idle; 25 to 50 without Sluice
    assert not with_sluice or sum(shares) / 3 < 20, report.result.explain()


test_wait_is_polite_and_ends.program = PROGRAM


def sleeps(prefix):
    return [json.loads(path.read_text())['sleeps'] for path in pathlib.Path(prefix).parent.glob('stats.*')]


@pytest.mark.parametrize('option, expected', [('spin', False), ('polite', True)])
@pytest.mark.parametrize('name', ['mpich', 'mpich-3.4', 'mpich-4.2', 'openmpi', 'impi'])
def test_wait_does_as_told(name, option, expected, get_mpi, tmp_path, with_sluice):
    if not with_sluice:
        pytest.skip('--plain')
    mpi = get_mpi(name)
    done = mpi.launch(2, mpi.build(PROGRAM), 'recv', 'barrier',
                      env={'SLUICE_WAIT': option, 'SLUICE_STATS': str(tmp_path / 'stats'), **INTEL_DEFAULTS})
    assert done.status == 0 and done.out.count('ok ') == 2, done.explain()
    counts = sleeps(tmp_path / 'stats')
    assert len(counts) == 2 and any(counts) == expected, done.explain()


@pytest.mark.alone
@pytest.mark.parametrize('name', [name for name in MPIS if name != 'impi'])
def test_wait_does_not_nap_between_the_parts_of_a_message(name, get_mpi, with_sluice):
    if not with_sluice:
        pytest.skip('--plain')
    mpi = get_mpi(name)
    times = {'spin': [], 'polite': []}
    for _ in range(3):
        for wait, taken in times.items():
            done = mpi.launch(3, mpi.build(PROGRAM), 'parts', env={'SLUICE_WAIT': wait})
            assert done.status == 0 and done.out.count('ok parts') == 1, done.explain()
            taken += [max(float(t) for t in re.findall(r'took ([\d.]+)', done.out))]
    # with MPICH 5 fifteen times as long if the ranks nap in turn
    assert min(times['polite']) < 2.5 * min(times['spin']), times
