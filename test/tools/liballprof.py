# SPDX-License-Identifier: BSD-3-Clause
"""Traces as liballprof writes them: a line for each call, NAME:BEGIN:ARGUMENT:...:END."""

HEAD = """# htor's PMPI Tracer 1 Output File
# time: Thu Jan  1 00:00:00 1970
# hostname: node.(none)
# uname: Linux node 6.1.0 #1 SMP x86_64
# clockdiff: 0.000000 s (relative to rank 0)

"""
DOUBLE, BYTE = '10,8,8', '13,1,1'


class Trace:
    """The trace of one rank. Each call takes 2 us. kind: mpich, openmpi, or fortran, of Open MPI."""

    def __init__(self, rank, ranks, kind='mpich', clock=1000):
        self.rank, self.ranks, self.clock, self.lines = rank, ranks, clock, []
        self.any, self.nobody = (-2, -1) if kind == 'mpich' else (-1, -2)
        self.request_bytes = 8 if kind == 'openmpi' else 4
        world = {'mpich': 0x44000000, 'openmpi': 94055959880640, 'fortran': 0}[kind]
        self.world = self.comm(world, rank, ranks)
        self.lines.append(f'MPI_Init:-:140734047559228:140734047559216:{self.clock}')
        self.call('Comm_rank', self.world, 140734047559200)

    def comm(self, handle, rank, size):
        return f'{handle},{rank},{size}'

    def compute(self, us):
        self.clock += us

    def call(self, name, *args):
        self.lines.append(':'.join(map(str, (f'MPI_{name}', self.clock, *args, self.clock + 2))))
        self.clock += 2

    def message(self, name, count, type_, peer, tag, comm=None, *request):
        self.call(name, 94203278741984, count, type_, peer, tag, comm or self.world, *request)

    def text(self):
        return HEAD + '\n'.join([*self.lines, '# Finalize clockdiff: 0.000000',
                                 f'MPI_Finalize:{self.clock}:-', ''])

    def write(self, folder):
        (folder / f'pmpi-trace-rank-{self.rank:02}.txt').write_text(self.text())


def requests(trace):
    """Two ranks exchange: into larger buffers, under any tag, with nobody, again and again."""
    t, peer, at = trace, 1 - trace.rank, [140730830189952 + trace.request_bytes * i for i in range(4)]
    for i in range(3):
        t.message('Irecv', 1000, DOUBLE, peer, -1, None, at[0])
        t.message('Irecv', 1000, DOUBLE, t.nobody, 1, None, at[1])
        t.message('Isend', 10 + i, DOUBLE, peer, i, None, at[2])
        t.message('Isend', 5, BYTE, t.nobody, 2, None, at[3])
        t.compute(50)
        t.call('Waitall', 4, at[0], 1)
        t.compute(7)
    t.message('Send_init', 6, BYTE, peer, 8, None, at[0])
    t.message('Recv_init', 100, BYTE, peer, 8, None, at[1])
    for _ in range(2):
        t.call('Startall', 2, at[0])
        t.call('Wait', at[0], 1)
        t.call('Wait', at[1], 1)
    t.call('Sendrecv', 94203278741984, 3, BYTE, peer, 9, 94203278745984, 30, BYTE, peer, 9, t.world, 1)
    t.call('Sendrecv_replace', 94203278741984, 3, BYTE, peer, 9, peer, 9, t.world, 1)


def collectives(trace):
    """All that the tracer knows. Returns: how many calls."""
    t, n = trace, trace.ranks
    a, b, p, w = 94203278741984, 94203278841984, 140729465194256, trace.world
    counts = ','.join(str(i + 1) for i in range(n))
    ones = ','.join('1' * n)
    before = len(t.lines)
    t.call('Barrier', w)
    t.call('Bcast', a, 100, DOUBLE, n - 1, w)
    t.call('Reduce', a, b, 3, DOUBLE, 3, 0, w)
    for name in 'Allreduce', 'Scan', 'Exscan':
        t.call(name, a, b, 4, DOUBLE, 3, w)
    for name in 'Gather', 'Scatter':
        t.call(name, a, 3, DOUBLE, b, 3, DOUBLE, 1, w)
    for name in 'Allgather', 'Alltoall':
        t.call(name, a, 3, DOUBLE, b, 3, DOUBLE, w)
    t.call('Reduce_scatter_block', a, b, 2, DOUBLE, 3, w)
    t.call('Gatherv', a, t.rank + 1, DOUBLE, b, p, counts, p, counts, DOUBLE, 0, w)
    t.call('Scatterv', a, p, counts, p, counts, DOUBLE, b, t.rank + 1, DOUBLE, 0, w)
    t.call('Allgatherv', a, t.rank + 1, DOUBLE, b, p, counts, p, counts, DOUBLE, w)
    t.call('Alltoallv', a, p, ones, p, counts, DOUBLE, b, p, ones, p, counts, DOUBLE, w)
    t.call('Reduce_scatter', a, b, p, counts, DOUBLE, 3, w)
    t.call('Iallreduce', a, b, 4, DOUBLE, 3, w, 140730830189952)
    t.call('Wait', 140730830189952, 1)
    return len(t.lines) - before - 1
