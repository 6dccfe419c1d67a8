# SPDX-License-Identifier: BSD-3-Clause
"""Sluice's own ABI headers agree with each MPI's mpi.h. Run alone: ./dev check mpi -k abi_header"""
import hashlib
import subprocess
import sys

import pytest

from support.build import locked
from support.mpi import ALL
from support.paths import PROGRAMS, ROOT

HEADER_OF = {'mpich': 'mpich', 'openmpi': 'ompi', 'standard': 'std'}
FRONT = ROOT / 'src/mpi/front'
ABI = ROOT / 'src/mpi/abi'


@pytest.fixture(scope='session')
def made():
    """Folder with the headers that the build makes from functions.table."""
    folder = PROGRAMS / 'made'
    folder.mkdir(parents=True, exist_ok=True)
    with locked(folder):
        for what, name in (('slots', 'functions.h'), ('signatures', 'signatures.h')):
            subprocess.run([sys.executable, FRONT / 'generate.py', what, FRONT / 'functions.table',
                            folder / f'{name}.new'], check=True)
            (folder / f'{name}.new').rename(folder / name)
    return folder


# MPICH 3.4 has no sessions
@pytest.mark.parametrize('name', [name for name in ALL if name != 'mpich-3.4'])
def test_abi_header(name, get_mpi, made):
    mpi = get_mpi(name)
    headers = [ABI / f'{HEADER_OF[mpi.abi]}.h', ABI / 'predefined.h', made / 'signatures.h']
    key = hashlib.sha256(b''.join(h.read_bytes() for h in headers)).hexdigest()[:8]
    program = mpi.build('abi_check.c', name=f'abi_check-{key}', extra=[
        f'-DABI_HEADER="mpi/abi/{HEADER_OF[mpi.abi]}.h"', '-Werror=incompatible-pointer-types',
        f'-I{ROOT}/src', f'-I{made}'])
    done = mpi.launch(1, program, sluice=False)
    assert 'ok abi' in done.out, done.explain()
