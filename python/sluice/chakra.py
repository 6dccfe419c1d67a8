# SPDX-License-Identifier: BSD-3-Clause
"""Chakra execution traces (MLCommons, schema of et_def.proto) as GOAL programs.

    from sluice import chakra
    program = chakra.read(['resnet.0.et', 'resnet.1.et'])    # a file for each rank, in order
    program.simulate(preset='infiniband').total_ns

Nodes become operations: computing and memory accesses a calc of their duration, COMM_SEND and COMM_RECV a
send and a receive (comm_size, comm_dst, comm_src, comm_tag), COMM_COLL a schedule of `sluice goal gen`,
metadata a nop. Data dependencies become requirements. Control dependencies name the caller, which has not
ended yet, and are left out, as Chakra's own feeder does. A node of the host (is_cpu_op) is computing on CPU
0, whatever its type: where it communicates, a node of the device follows. Those (is_cpu_op false) compute on
CPU 1 and communicate on CPU 2.

The n-th collective that a rank has in a process group (pg_name) meets the n-th of the others; all ranks that
have one in a group belong to it. comm_size is what a rank brings, the largest where ranks differ, at a
scatter and a broadcast what the root brings; comm_root is a number in the group (0).
"""
from __future__ import annotations

import dataclasses
import graphlib
import os
import re
from collections.abc import Iterator, Mapping, Sequence
from typing import BinaryIO

from ._tool import SluiceError
from .goal import Path, Program, pattern

METADATA, MEM_LOAD, MEM_STORE, COMP, SEND, RECV, COLLECTIVE = range(1, 8)
KINDS = ('allreduce', 'reduce', 'allgather', 'gather', 'scatter', 'bcast', 'alltoall', 'reduce-scatter',
         'reduce-scatter', 'barrier')  # by CollectiveCommType
PATTERNS = {'allreduce': 'ring-allreduce', 'reduce': 'binomial-reduce', 'allgather': 'ring-allgather',
            'gather': 'binomial-gather', 'scatter': 'binomial-scatter', 'bcast': 'binomial-bcast',
            'alltoall': 'pairwise-alltoall', 'reduce-scatter': 'ring-reduce-scatter',
            'barrier': 'dissemination-barrier'}
ROOTED = {'reduce', 'gather', 'scatter', 'bcast'}
FROM_ROOT = {'scatter', 'bcast'}
BLOCK_OF_ALL = {'alltoall', 'scatter'}  # what is brought are all blocks
TAGS = 1 << 20       # tags of messages are below; collectives take turns with those above
TAGS_END = 0xffffffff
SIZE_END = 1 << 63
DURATION_END = (1 << 64) // 1000  # of a calc, in nanoseconds


@dataclasses.dataclass
class Node:
    """id, type and data dependencies as in the schema; attributes by name: the numbers and texts."""
    id: int = 0
    type: int = 0
    after: list[int] = dataclasses.field(default_factory=list)
    duration_us: int = 0
    attributes: dict[str, int | str] = dataclasses.field(default_factory=dict)

    def is_of_host(self) -> bool:
        return bool(self.attributes.get('is_cpu_op'))

    def cpu(self) -> str:
        if self.attributes.get('is_cpu_op', 1):
            return ''
        return ' cpu 2' if self.type in (SEND, RECV, COLLECTIVE) else ' cpu 1'


# ---- protobuf ----------------------------------------------------------------------------------------------


class _Damaged(Exception):
    pass


def _varint(data: memoryview, at: int) -> tuple[int, int]:
    value = 0
    for shift in range(0, 70, 7):
        if at >= len(data):
            raise _Damaged
        value |= (data[at] & 127) << shift
        at += 1
        if data[at - 1] < 128:
            return value & (1 << 64) - 1, at
    raise _Damaged


def _fields(data: memoryview) -> Iterator[tuple[int, int | memoryview]]:
    """Yields (number, value) of a message; fixed-size numbers as their bytes."""
    at = 0
    while at < len(data):
        key, at = _varint(data, at)
        wire = key & 7
        if wire == 0:
            value, at = _varint(data, at)
            yield key >> 3, value
            continue
        size = {1: 8, 5: 4}.get(wire)
        if wire == 2:
            size, at = _varint(data, at)
        if size is None or at + size > len(data):
            raise _Damaged
        yield key >> 3, data[at:at + size]
        at += size


def _numbers(value: int | memoryview) -> Iterator[int]:
    """A repeated number, packed or not."""
    at = 0
    if isinstance(value, int):
        yield value
        return
    while at < len(value):
        number, at = _varint(value, at)
        yield number


def _attribute(data: memoryview) -> tuple[str, int | str | None]:
    name, value = '', None  # type: str, int | str | None
    for number, field in _fields(data):
        if number == 1 and not isinstance(field, int):
            name = bytes(field).decode()
        elif number in (7, 9) and isinstance(field, int):  # int32 int64
            value = field - (1 << 64) if field >> 63 else field
        elif number in (11, 13, 27) and isinstance(field, int):  # uint32 uint64 bool
            value = field
        elif number in (15, 17) and isinstance(field, int):  # sint32 sint64
            value = (field >> 1) ^ -(field & 1)
        elif number in (19, 21, 23, 25) and not isinstance(field, int):  # fixed32 ... sfixed64
            value = int.from_bytes(field, 'little', signed=number > 21)
        elif number == 29 and not isinstance(field, int):
            value = bytes(field).decode()
    return name, value


def _node(data: memoryview) -> Node:
    node = Node()
    for number, field in _fields(data):
        if number == 5:
            node.after += _numbers(field)
        elif number == 10 and not isinstance(field, int):
            name, value = _attribute(field)
            if value is not None:
                node.attributes[name] = value
        elif isinstance(field, int) and number in (1, 3, 7):
            setattr(node, {1: 'id', 3: 'type', 7: 'duration_us'}[number], field)
    return node


def _message(file: BinaryIO) -> tuple[int, memoryview | None]:
    """Returns: bytes read of the file, and the next message; None: there is none."""
    head, data = b'', bytearray()
    while not head or head[-1] > 127:
        byte = file.read(1)
        if not byte and not head:
            return 0, None
        if not byte or len(head) == 10:
            raise _Damaged
        head += byte
    size = _varint(memoryview(head), 0)[0]
    while len(data) < size:  # a damaged size takes no more memory than the file has
        piece = file.read(min(size - len(data), 1 << 20))
        if not piece:
            raise _Damaged
        data += piece
    return len(head) + size, memoryview(data)


def nodes(path: Path) -> list[Node]:
    """Returns: the nodes of a file, in its order, which is read piece by piece. Raises SluiceError: the file
    is damaged; OSError: it cannot be read."""
    begin, found = 0, []
    try:
        with open(path, 'rb') as file:
            read, data = _message(file)
            if data is None:
                raise _Damaged
            for _ in _fields(data):  # the first message describes the file
                pass
            while data is not None:
                begin += read
                read, data = _message(file)
                if data is not None:
                    found.append(_node(data))
    except (_Damaged, UnicodeDecodeError):
        raise SluiceError(f'{os.fspath(path)}: no Chakra trace, or damaged, at byte {begin}') from None
    return found


# ---- GOAL --------------------------------------------------------------------------------------------------


@dataclasses.dataclass
class _Trace:
    """One rank. groups: process group -> its collectives, in order."""
    path: str
    nodes: list[Node]
    lines: list[str] = dataclasses.field(default_factory=list)
    groups: dict[str, list[Node]] = dataclasses.field(default_factory=dict)

    def __post_init__(self) -> None:
        for node in self.nodes:
            if node.type == COLLECTIVE and not node.is_of_host():
                self.groups.setdefault(str(node.attributes.get('pg_name', '')), []).append(node)

    def fail(self, node: Node, message: str) -> SluiceError:
        return SluiceError(f'{self.path}: node {node.id}: {message}')

    def number(self, node: Node, name: str, end: int, default: int | None = None) -> int:
        """Returns: an attribute from 0 to below end."""
        value = node.attributes.get(name, default)
        if not isinstance(value, int):
            raise self.fail(node, f'it has no number {name}')
        if not 0 <= value < end:
            raise self.fail(node, f'{name} is {value}; 0 to {end - 1} are possible')
        return value

    def check(self) -> None:
        """Can the nodes be executed in some order?"""
        known: set[int] = set()
        for node in self.nodes:
            if node.id in known:
                raise self.fail(node, 'another node has this number')
            known.add(node.id)
        for node in self.nodes:
            for other in node.after:
                if other not in known:
                    raise self.fail(node, f'it depends on node {other}, which is not there')
        try:
            graphlib.TopologicalSorter({node.id: node.after for node in self.nodes}).prepare()
        except graphlib.CycleError as error:
            cycle = error.args[1]
            more = ' ...' if len(cycle) > 8 else ''
            raise SluiceError(f'{self.path}: node {cycle[0]}: it depends on itself, by the nodes '
                              f'{" ".join(map(str, cycle[:8]))}{more}') from None


def _operation(trace: _Trace, node: Node, ranks: int) -> str:
    if not METADATA <= node.type <= COLLECTIVE:
        raise trace.fail(node, f'type {node.type} is not known')
    if node.type in (COMP, MEM_LOAD, MEM_STORE) or node.is_of_host() and node.type != METADATA:
        if node.duration_us >= DURATION_END:
            raise trace.fail(node, f'duration_micros is {node.duration_us}; 0 to {DURATION_END - 1} are '
                             'possible')
        return f'calc {node.duration_us * 1000}{node.cpu()}'
    if node.type in (SEND, RECV):
        size, tag = trace.number(node, 'comm_size', SIZE_END), trace.number(node, 'comm_tag', TAGS, 0)
        peer = f'to {trace.number(node, "comm_dst", ranks)}' if node.type == SEND else \
            f'from {trace.number(node, "comm_src", ranks)}'
        return f'{"send" if node.type == SEND else "recv"} {size}b {peer} tag {tag}{node.cpu()}'
    return f'nop{node.cpu()}'


def _kind(trace: _Trace, node: Node) -> str:
    return KINDS[trace.number(node, 'comm_type', len(KINDS))]


class _Collectives:
    """Schedules of `sluice goal gen`, rank by rank, each made once. next_tag: the first tag of the next
    one."""

    def __init__(self, use: Mapping[str, str]):
        self.patterns = {**PATTERNS, **use}
        self.next_tag = TAGS
        self.made: dict[tuple[str, int, int, int], list[list[str]]] = {}

    def lines(self, kind: str, ranks: int, size: int, root: int) -> list[list[str]]:
        key = kind, ranks, size, root
        if key not in self.made:
            options = {'root': root} if kind in ROOTED else {}
            text = pattern(self.patterns[kind], ranks, size, **options).text()
            self.made[key] = [[line for line in block.splitlines() if line.startswith('l')]
                              for block in text.split('rank ')[1:]]
        return self.made[key]

    def tags(self, schedule: list[list[str]]) -> int:
        """Returns: the first of as many tags as the schedule has."""
        every = (tag for lines in schedule for line in lines for tag in re.findall(r' tag (\d+)', line))
        count = 1 + max(map(int, every), default=0)
        first = self.next_tag if self.next_tag + count <= TAGS_END else TAGS
        self.next_tag = first + count
        return first


def _expand(trace: _Trace, node: Node, schedule: list[str], members: Sequence[int], first_tag: int) -> None:
    """Adds one rank's part of a collective between the operations nI, which it requires, and eI, its end."""
    prefix = f'c{node.id}_'
    for line in schedule:
        line = re.sub(r'\bl(\d+)', rf'{prefix}\1', line)
        line = re.sub(r' match \d+', '', line)
        line = re.sub(r' (to|from) (\d+) tag (\d+)',
                      lambda m: f' {m[1]} {members[int(m[2])]} tag {first_tag + int(m[3])}', line)
        label, colon, _ = line.partition(':')
        trace.lines.append(line + node.cpu() if colon else line)
        if colon:
            trace.lines += [f'{label} requires n{node.id}', f'e{node.id} requires {label}']


def _expand_group(traces: Sequence[_Trace], group: str, made: _Collectives) -> None:
    """Expands all collectives of a group."""
    members = [r for r, trace in enumerate(traces) if group in trace.groups]
    counts = {len(traces[r].groups[group]) for r in members}
    if len(counts) > 1:
        raise SluiceError(f"process group '{group}': the ranks have different numbers of collectives: "
                          f'{min(counts)} to {max(counts)}')
    for n, meeting in enumerate(zip(*(traces[r].groups[group] for r in members))):
        kinds = {_kind(traces[r], node) for r, node in zip(members, meeting)}
        if len(kinds) > 1:
            raise SluiceError(f"process group '{group}': collective {n} is {' and '.join(sorted(kinds))}")
        kind = kinds.pop()
        roots = {traces[r].number(node, 'comm_root', len(members), 0)
                 for r, node in zip(members, meeting) if kind in ROOTED and 'comm_root' in node.attributes}
        if len(roots) > 1:
            raise SluiceError(f"process group '{group}': collective {n}: comm_root is "
                              f'{" and ".join(map(str, sorted(roots)))}')
        root = roots.pop() if roots else 0
        bring = [(members[root], meeting[root])] if kind in FROM_ROOT else list(zip(members, meeting))
        size = max(traces[r].number(node, 'comm_size', SIZE_END, 0 if kind == 'barrier' else None)
                   for r, node in bring)
        size = size // len(members) if kind in BLOCK_OF_ALL else size
        try:
            schedule = made.lines(kind, len(members), size, root)
        except SluiceError as error:
            raise traces[bring[0][0]].fail(bring[0][1], str(error)) from None
        tag = made.tags(schedule)
        for at, (rank, node) in enumerate(zip(members, meeting)):
            _expand(traces[rank], node, schedule[at], members, tag)


def read(paths: Sequence[Path], *, use: Mapping[str, str] | None = None) -> Program:
    """Reads a trace for each rank. use: pattern of `sluice goal gen` by collective, such as {'allreduce':
    'doubling-allreduce'}. Messages that no rank sends or receives are mistakes of the program, which
    Program.check() tells. Raises SluiceError: a file is damaged, a number of it is not possible, or the ranks
    do not agree; OSError: a file cannot be read; ValueError: an argument is wrong."""
    if isinstance(paths, (str, os.PathLike)):
        raise ValueError('expected a list of traces, one for each rank')
    unknown = sorted(set(use or {}) - set(PATTERNS))
    if unknown:
        raise ValueError(f'no collective {unknown[0]}; there are {", ".join(PATTERNS)}')
    traces = [_Trace(os.fspath(path), nodes(path)) for path in paths]
    if not traces:
        raise ValueError('no trace')
    for trace in traces:
        trace.check()
        is_collective = {node.id for group in trace.groups.values() for node in group}
        for node in trace.nodes:
            trace.lines.append(f'n{node.id}: {_operation(trace, node, len(traces))}')
            if node.id in is_collective:
                trace.lines += [f'e{node.id}: nop{node.cpu()}', f'e{node.id} requires n{node.id}']
            for other in dict.fromkeys(node.after):
                trace.lines.append(f'n{node.id} requires {"e" if other in is_collective else "n"}{other}')
    made = _Collectives(use or {})
    for group in sorted({group for trace in traces for group in trace.groups}):
        _expand_group(traces, group, made)
    blocks = (f'rank {r} {{\n' + '\n'.join(trace.lines) + '\n}\n' for r, trace in enumerate(traces))
    return Program(f'num_ranks {len(traces)}\n' + ''.join(blocks))
