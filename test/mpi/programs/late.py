# SPDX-License-Identifier: BSD-3-Clause
"""mpi4py: the MPI library is loaded long after the start, by dlopen. Prints "ok late"."""
import sys

import numpy as np

data = np.arange(200000.0)  # memory from before MPI was there
from mpi4py import MPI  # noqa: E402

comm = MPI.COMM_WORLD
rank, size = comm.Get_rank(), comm.Get_size()
bad = 0
for round in range(8):
    root = round % size
    data[:] = np.arange(200000.0) + round if rank == root else 0
    comm.Bcast(data, root)
    bad += int((data != np.arange(200000.0) + round).sum())
    mine = np.full(100000, rank, dtype='i4')
    everything = np.zeros((size, 100000), dtype='i4') if rank == root else None
    comm.Gather(mine, everything, root)
    if rank == root:
        bad += int((everything != np.arange(size)[:, None]).sum())
    thing = comm.bcast({'round': round, 'text': 'x' * 300000} if rank == root else None, root)
    bad += thing['round'] != round or len(thing['text']) != 300000
    things = comm.gather(np.full(50000, rank), root)
    if rank == root:
        bad += sum(int((t != r).sum()) for r, t in enumerate(things))
    columns = np.zeros((500, 400))
    column = MPI.DOUBLE.Create_vector(500, 1, 400).Commit()
    columns[:, 3] = np.arange(500.0) if rank == root else -1
    comm.Bcast([columns[0, 3:], 1, column], root)
    bad += int((columns[:, 3] != np.arange(500.0)).sum())
    column.Free()
total = comm.allreduce(bad)
if rank == 0:
    print('fail' if total else 'ok', 'late')
sys.exit(total != 0)
