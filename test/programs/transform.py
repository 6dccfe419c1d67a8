# SPDX-License-Identifier: BSD-3-Clause
"""Transforms of a distributed array by mpi4py-fft, there and back: transform.py 64x64x64 slab|pencil"""
import sys

import numpy
from mpi4py import MPI
from mpi4py_fft import PFFT, newDistArray

shape = [int(n) for n in sys.argv[1].split('x')]
for kind in (float, complex):
    fft = PFFT(MPI.COMM_WORLD, shape, dtype=kind, slab=sys.argv[2] == 'slab')
    there = newDistArray(fft, False)
    whole = numpy.random.default_rng(1).random(shape)
    there[:] = whole[there.local_slice()]
    before = there.copy()
    for turn in range(3):
        hat = fft.forward(there)
        back = fft.backward(hat)
        assert numpy.allclose(back, before), f'rank {MPI.COMM_WORLD.rank}: turn {turn}'
        sums = MPI.COMM_WORLD.gather(f'{abs(hat).sum():.10e} {hat.shape}')
        there[:] = back
    if sums:
        print(kind.__name__, *sums, sep='\n')
