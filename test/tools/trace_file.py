# SPDX-License-Identifier: BSD-3-Clause
"""Writes trace files of runs that never were, by src/trace/format.h."""
import struct

HEADER, CHUNK, RECORD = 131072, 65536, 64
PER_CHUNK = CHUNK // RECORD - 1
SITES = 4  # those from 2 on are lines of pencil.py
LINES = 1 << 63
VERSION = 7
NAMES = (b'MPI_Bcast', b'a reason, with <b>marks</b> & </script>', b'this communicator has one rank',
         b'the calls so far were too few or too short to pay for setting up shared memory: see SLUICE_DECIDE',
         b"a trial: its time is compared with that of Sluice's calls (SLUICE_DECIDE)",
         b'the host MPI was faster in the last trial (SLUICE_DECIDE)')
ALONE, UNPAID, TIMED, SLOWER = range(3, 7)


def chunk(kind, thread, turn, body, begin):
    head = struct.pack('<IIIIQQ16s16x', kind, thread, turn, 0, begin, begin, b'application')
    return (head + body).ljust(CHUNK, b'\0')


def records(rank, thread, calls, begin):
    """calls: (begin, end, bytes, outcome), and perhaps site and reason (1 + index in NAMES)"""
    for number in range((len(calls) + PER_CHUNK - 1) // PER_CHUNK):
        part = calls[number * PER_CHUNK:(number + 1) * PER_CHUNK]
        yield chunk(1, thread, number + 1, b''.join(
            struct.pack('<QQQQIIIHHHBBBBHBBHHH', *call[:3], 0, number, 0, 0, *(call[4:5] or [1]), 0, 0,
                        *(call[5:6] or [2]), 2, call[3] | 1 << 3, 0, 0, 0, 1, rank, 2, 0)
            for call in part), begin)


def totals(thread, begin, calls=0, size=0, small_calls=0, small_bytes=0, sampled=0, sampled_ticks=0, ticks=0,
           admitted=0):
    site_0 = bytes(RECORD)
    return chunk(2, thread, 0, site_0 + struct.pack('<7QII', calls, size, small_calls, small_bytes, sampled,
                                                    sampled_ticks, ticks, admitted, 0), begin)


def write_process(folder, rank, calls, *, begin=10, end=10**10, ended=True, host=b'node', more=(),
                  program=b'/home/user/application'):
    """A process from `begin` to `end`, by the clock of its machine. calls: of its main thread; `more`: chunks
    besides."""
    chunks = [*records(rank, 1000 + rank, calls, begin), *more]
    head = bytearray(HEADER)
    struct.pack_into('<8sIIIIiiIIIIIHH', head, 0, b'SluiceT\n', VERSION, HEADER, len(chunks), len(chunks),
                     rank, 1000 + rank, 1, ended, 0, len(NAMES), 0, 0, 0)
    # first, start and end, in ticks (1 ns each) and by the clock; then the time of day
    struct.pack_into('<7Q', head, 56, begin, begin, begin, begin, *(2 * [end if ended else 0]), 10**18)
    struct.pack_into('<256s64s32s', head, 136, program, host, b'sluice')
    sites = 4096 + 64 * 256
    struct.pack_into('<QQHHI', head, sites + 24 * 1, 1, 0x1234, 0, 1, 0)
    struct.pack_into('<Q248s', head, 4096, LINES, b'/home/user/pencil.py')
    for line in range(2, SITES + 1):
        struct.pack_into('<QQHHI', head, sites + 24 * line, line, LINES + line, 1, 1, 0)
    texts = sites + 1024 * 24
    for index, text in enumerate(NAMES, 1):
        struct.pack_into('<QI116s', head, texts + 128 * index, index, 1, text)
    with open(folder / f'rank-{rank}.{1000 + rank}.sluice', 'wb') as out:
        out.write(head)
        for part in chunks:
            out.write(part)
