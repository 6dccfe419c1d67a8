# SPDX-License-Identifier: BSD-3-Clause
import pytest

from support import build
from support import mpi as mpis
from support.behaviours import Runner


@pytest.fixture(scope='session')
def get_mpi():
    """get_mpi('openmpi'): that MPI, or the test is skipped with the reason."""
    def get(name):
        mpi = mpis.ALL[name]
        if mpi.missing():
            pytest.skip(mpi.missing())
        return mpi
    return get


@pytest.fixture(scope='session')
def restrict():
    return build.restrict()


@pytest.fixture(scope='session')
def runner(request):
    """Knows which behaviours this session asks for, so that -k runs no others."""
    wanted = {}
    for item in request.session.items:
        params = getattr(item, 'callspec', None)
        program = getattr(item.function, 'program', None) # others run theirs by themselves
        if params and program and 'behaviour' in params.params:
            wanted.setdefault(program, set()).add(params.params['behaviour'])
    return Runner(wanted)
