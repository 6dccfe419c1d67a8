# SPDX-License-Identifier: BSD-3-Clause
"""Python right after a broadcast or gather: faulthandler, numpy, pickle, files, sockets, forks, threads.

Prints "ok early_python"; with argument "crash" it then dies by a true SIGSEGV, of which faulthandler
tells the story.
"""
import ctypes
import faulthandler
import hashlib
import io
import multiprocessing
import os
import pickle
import socket
import subprocess
import sys
import tempfile
import threading
import time
import zlib

import numpy as np
from mpi4py import MPI

if '--plain-handler' not in sys.argv:
    faulthandler.enable()
comm = MPI.COMM_WORLD
rank, size = comm.Get_rank(), comm.Get_size()
N = 300_001
buffer = np.zeros(N)
bad = []


def expected(step):
    return np.arange(float(N)) * (step + 1)


def received(step):
    """The buffer as a broadcast has just left it; one rank comes late."""
    root = step % size
    buffer[:] = expected(step) if rank == root else -1
    comm.Barrier()
    if rank == step // 2 % size:
        time.sleep(0.002)
    comm.Bcast(buffer, root)
    return buffer


def check(what, ok):
    if not ok:
        bad.append(what)
        print(f'rank {rank}: {what}', file=sys.stderr)


def use_numpy(data, want, _):
    check('sum', data.sum() == want.sum())
    check('slice', (data[::7] == want[::7]).all())
    check('dot', data[:1000].dot(data[:1000]) == want[:1000].dot(want[:1000]))
    data *= 2
    check('in place', (data == want * 2).all())


def use_pickle(data, want, _):
    check('pickle', (pickle.loads(pickle.dumps(data, protocol=5)) == want).all())
    check('bytes', bytes(data) == want.tobytes())
    check('digest', hashlib.sha256(data).digest() == hashlib.sha256(want).digest())
    check('crc', zlib.crc32(data) == zlib.crc32(want))


def use_file(data, want, step):
    with tempfile.TemporaryFile(buffering=0 if step % 2 else -1) as f:
        view = memoryview(data).cast('B')
        done = 0
        while done < len(view):
            done += f.write(view[done:])
        f.flush()
        f.seek(0)
        check('file.write', f.read() == want.tobytes())
    with tempfile.TemporaryFile() as f:
        f.write(want.tobytes()[::-1])
        f.seek(0)
        check('readinto', f.readinto(memoryview(data).cast('B')) == want.nbytes)
        check('read bytes', data.tobytes() == want.tobytes()[::-1])


def use_readinto_first(data, want, _):
    with tempfile.TemporaryFile() as f:
        f.write((want + 3).tobytes())
        f.flush()
        check('preadv', os.preadv(f.fileno(), [memoryview(data).cast('B')], 0) == want.nbytes)
    check('preadv bytes', (data == want + 3).all())


def use_socket(data, want, _):
    ours, theirs = socket.socketpair()
    got = bytearray()

    def drain():
        while len(got) < want.nbytes:
            got.extend(theirs.recv(1 << 20))
    thread = threading.Thread(target=drain)
    thread.start()
    ours.sendall(memoryview(data).cast('B'))
    thread.join()
    check('sendall', bytes(got) == want.tobytes())
    ours.close()
    theirs.close()


def use_save(data, want, _):
    out = io.BytesIO()
    np.save(out, data)
    out.seek(0)
    check('np.save', (np.load(out) == want).all())
    with tempfile.NamedTemporaryFile() as f:
        data.tofile(f.name)
        check('tofile', (np.fromfile(f.name) == want).all())


def child_sum(queue):
    queue.put(float(buffer.sum()))


def use_fork(data, want, _):
    context = multiprocessing.get_context('fork')
    queue = context.SimpleQueue()
    child = context.Process(target=child_sum, args=(queue,))
    child.start()
    check('multiprocessing', queue.get() == want.sum())
    child.join()
    check('child', child.exitcode == 0)


def use_subprocess(data, want, _):
    done = subprocess.run(['wc', '-c'], input=memoryview(data).cast('B'), capture_output=True)
    check('subprocess', int(done.stdout) == want.nbytes)


def use_threads(data, want, _):
    sums = [0.0] * 4

    def part(k):
        sums[k] = float(data[k * N // 4:(k + 1) * N // 4].sum())
    threads = [threading.Thread(target=part, args=(k,)) for k in range(4)]
    for t in threads:
        t.start()
    for t in threads:
        t.join()
    check('threads', sums == [float(want[k * N // 4:(k + 1) * N // 4].sum()) for k in range(4)])


USES = [use_numpy, use_pickle, use_file, use_readinto_first, use_socket, use_save, use_fork, use_subprocess,
        use_threads]
for warm in range(4):
    comm.Bcast(buffer, 0)
for step in range(2 * len(USES)):
    use = USES[step // 2]
    use(received(step), expected(step), step)
everything = np.zeros((size, N)) if rank == 0 else None
for step in range(4):
    mine = np.full(N, float(rank + step))
    comm.Gather(mine, everything, 0)
    mine[:] = -5
    if rank == 0:
        check('gather', (everything == (np.arange(size) + step)[:, None]).all())
total = comm.allreduce(len(bad))
if rank == 0:
    print('fail' if total else 'ok', 'early_python', flush=True)
if 'crash' in sys.argv:
    received(1)
    ctypes.string_at(0)
sys.exit(total != 0)
