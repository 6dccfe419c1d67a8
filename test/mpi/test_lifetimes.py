# SPDX-License-Identifier: BSD-3-Clause
"""Communicators by the thousand; requests that are freed, cancelled, abandoned. Run alone: ./dev
check mpi -k lifetimes"""
import pytest

from support.behaviours import cases

KINDS = ['ALLGATHER', 'ALLREDUCE', 'NONBLOCKING']
TAKEN = {'SLUICE_COLL_THRESHOLD': '1', **{f'coll:{kind}': 'on' for kind in KINDS}}
CONFIGS = {'taken': TAKEN, 'default': {}}


@pytest.mark.parametrize('mpi, ranks, config, behaviour',
                         cases('lifetimes.c', ['mpich', 'openmpi'], [2], ['taken']) +
                         cases('lifetimes.c', ['impi', 'abi', 'debian-mpich', 'debian-openmpi'], [2],
                               ['taken'],
                               pytest.mark.complete) +
                         cases('lifetimes.c', ['mpich', 'openmpi', 'impi'], [3], ['taken', 'default'],
                               pytest.mark.complete))
def test_lifetimes(mpi, ranks, config, behaviour, get_mpi, runner, with_sluice):
    """Calls that the standard forbids have the result that they have without Sluice; freeing happens,
    as in some libraries."""
    ours = runner.check(get_mpi(mpi), 'lifetimes.c', ranks, behaviour, sluice=with_sluice,
                        env=CONFIGS[config])
    if behaviour in ('a_collective_is_freed_while_it_is_active', 'a_collective_cannot_be_cancelled'):
        plain = runner.check(get_mpi(mpi), 'lifetimes.c', ranks, behaviour, sluice=False)
        allowed = set(plain.said_by(behaviour)) | {'rank 0: free: class 0'}
        assert ours.said_by(behaviour) and set(ours.said_by(behaviour)) <= allowed


test_lifetimes.program = 'lifetimes.c'
