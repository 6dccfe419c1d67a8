# SPDX-License-Identifier: BSD-3-Clause
"""sluice tune with a real MPI: it launches, understands what it launched, and programs find what it wrote."""
import json
import subprocess

from support.paths import SLUICE


def test_one_option_is_measured_and_its_file_is_in_force(get_mpi, tmp_path):
    mpi = get_mpi('mpich')
    env = {**mpi.env(), 'XDG_CONFIG_HOME': str(tmp_path)}
    argv = [SLUICE, 'tune', '--quick', '--json', '--mpi', mpi.libdir.parent, '-n', '2', '--only',
            'SLUICE_GUARD_KIND',
            '--time', '10']
    done = subprocess.run([str(a) for a in argv], env=env, capture_output=True, text=True, timeout=120)
    assert done.returncode == 0, done.stderr
    result = json.loads(done.stdout)
    assert result['mpi'].startswith('MPICH')
    assert [o['verdict'] in ('better', 'default', 'undecided')
            for o in result['options']] == [True] * len(result['options'])
    assert list(tmp_path.glob('sluice/*.tune')) == [tmp_path / 'sluice' / result['file'].rpartition('/')[2]]
    info = json.loads(subprocess.run([SLUICE, 'info', '--json'], env=env, capture_output=True, text=True,
                                     timeout=60,
                                     check=True).stdout)
    assert info['tuned'][0]['state'] == 'in force' and info['tuned'][0]['values'] == len(result['values'])
