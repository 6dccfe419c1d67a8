# SPDX-License-Identifier: BSD-3-Clause
import pytest

import cli
from support.mpi import need


@pytest.fixture(scope='session', autouse=True)
def installed():
    if not cli.SLUICE.exists():
        pytest.fail(f'{cli.SLUICE} is not there; run ./dev build')


@pytest.fixture(scope='session')
def tools(tmp_path_factory):
    """A folder for compiled helpers, with the fake MPI installation `mpi` in it."""
    folder = tmp_path_factory.mktemp('tools')
    cli.fake_mpi(folder / 'mpi')
    return folder


@pytest.fixture(params=['mpich', 'openmpi'])
def mpi(request):
    return need(request.param)
