# SPDX-License-Identifier: BSD-3-Clause
"""mpi4py's suite with a broadcast under way beside each test: its own arrays are smaller than a page,
which are never guarded. Run in the suite's folder in place of its main.py.

Before each test rank after rank broadcasts 2 MiB, which nobody looks at until the test is over.
"""
import runpy
import sys
import unittest

sys.path.insert(0, '.')
run_test = unittest.TestCase.run
beside = {}


def begin(mpi):
    """A communicator and a buffer of this script's own."""
    import numpy as np
    beside['comm'] = mpi.COMM_WORLD.Dup()
    beside['data'] = np.zeros(1 << 18)
    beside['step'] = 0
    for _ in range(2):
        beside['comm'].Bcast(beside['data'], 0)


def run(self, result=None):
    mpi = sys.modules.get('mpi4py.MPI')
    if not mpi or not mpi.Is_initialized() or mpi.Is_finalized():
        return run_test(self, result)
    if not beside:
        begin(mpi)
    comm, data, step = beside['comm'], beside['data'], beside['step']
    root = step % comm.Get_size()
    data[:] = step if comm.Get_rank() == root else -1
    comm.Bcast(data, root)
    try:
        return run_test(self, result)
    finally:
        if (data != step).any():
            print(f'ERROR: broadcast {step} beside {self.id()}', file=sys.stderr, flush=True)
        beside['step'] += 1


unittest.TestCase.run = run
sys.argv[0] = 'main.py'
runpy.run_path('main.py', run_name='__main__')
