# SPDX-License-Identifier: BSD-3-Clause
"""GOAL schedules: build, check, draw, simulate and run them.

    from sluice import goal

    b = goal.Builder(2)
    computed = b[0].calc(1000)
    b[0].send(8, to=1, after=[computed])
    b[1].recv(8, source=0)
    b.program().simulate(preset='infiniband').end_ns         # array([1250. , 3000.32])

    goal.pattern('ring-allreduce', 64, size='16M', type='f32').simulate(params='node.params', node_ranks=16)

Times are nanoseconds unless a name says otherwise, sizes are bytes or texts like '64K'. A Program never
changes; its methods may be called from any thread. Functions raise SluiceError with the message of the
`sluice` command.
"""
from __future__ import annotations

import dataclasses
import json
import os
import pathlib
import re
import tempfile
from collections.abc import Iterable, Mapping
from typing import Any, Union

from ._tool import SluiceError, sluice
from .results import Run, Simulation

__all__ = ['Builder', 'Label', 'Problem', 'Program', 'Rank', 'Run', 'Simulation', 'SluiceError', 'measure',
           'merge', 'pattern', 'patterns', 'trace']

Path = Union[str, 'os.PathLike[str]']
Size = Union[int, str]


@dataclasses.dataclass(frozen=True)
class Label:
    """An operation of one rank."""
    rank: int
    name: str


@dataclasses.dataclass(frozen=True)
class Problem:
    """A mistake in a program. line, column: in its text, from 1; 0: none."""
    line: int
    column: int
    message: str
    notes: tuple[str, ...]


# ---- building ----------------------------------------------------------------------------------------------


class Rank:
    """The operations of one rank. Each method adds one and returns its label. It starts when the operations
    in `after` have ended and those in `begun` have begun. cpu and nic number the rank's CPUs and network
    interfaces. Places of memory are texts such as 'user0+64' or 'scratch' (sluice-goal-text(5), "Memory")."""

    def __init__(self, rank: int):
        self.rank = rank
        self._lines: list[str] = []
        self._count = 0

    def _add(self, operation: str, after: Iterable[Label], begun: Iterable[Label], cpu: int = 0,
             nic: int = 0) -> Label:
        label = Label(self.rank, f'l{self._count}')
        self._count += 1
        parts = [f'{label.name}: {operation}']
        if cpu:
            parts.append(f'cpu {cpu}')
        if nic:
            parts.append(f'nic {nic}')
        self._lines.append(' '.join(parts))
        for word, before in ('requires', after), ('irequires', begun):
            names = [self._name(other) for other in before]
            if names:
                self._lines.append(f'{label.name} {word} {", ".join(names)}')
        return label

    def _name(self, label: Label) -> str:
        if label.rank != self.rank:
            raise ValueError(f'rank {self.rank} cannot require {label.name} of rank {label.rank}: '
                             'ranks wait for each other by messages')
        return label.name

    def send(self, size: int, to: int, tag: int = 0, *, memory: str | None = None,
             after: Iterable[Label] = (), begun: Iterable[Label] = (), cpu: int = 0, nic: int = 0) -> Label:
        """Sends size bytes to a rank. memory: where they are."""
        text = f'send {size}b to {to} tag {tag}' + (f' from {memory}' if memory else '')
        return self._add(text, after, begun, cpu, nic)

    def recv(self, size: int, source: int | None, tag: int | None = 0, *, memory: str | None = None,
             after: Iterable[Label] = (), begun: Iterable[Label] = (), cpu: int = 0, nic: int = 0) -> Label:
        """Receives size bytes from a rank. source, tag: None is any."""
        text = f'recv {size}b from {"any" if source is None else source} tag {"any" if tag is None else tag}'
        text += f' into {memory}' if memory else ''
        return self._add(text, after, begun, cpu, nic)

    def calc(self, ns: int, *, after: Iterable[Label] = (), begun: Iterable[Label] = (),
             cpu: int = 0) -> Label:
        """Computes for ns nanoseconds."""
        return self._add(f'calc {ns}', after, begun, cpu)

    def copy(self, size: int, source: str, to: str, *, after: Iterable[Label] = (),
             begun: Iterable[Label] = (), cpu: int = 0) -> Label:
        """Copies size bytes within the rank's memory."""
        return self._add(f'copy {size}b from {source} into {to}', after, begun, cpu)

    def reduce(self, op: str, dtype: str, size: int, a: str, b: str, to: str, *,
               after: Iterable[Label] = (), begun: Iterable[Label] = (), cpu: int = 0) -> Label:
        """to[i] = a[i] op b[i]. op: add, mul, max ...; dtype: i8 ... f64; size in bytes."""
        return self._add(f'{op} {dtype} {size}b from {a}, {b} into {to}', after, begun, cpu)

    def nop(self, *, after: Iterable[Label] = (), begun: Iterable[Label] = ()) -> Label:
        """Does nothing; it joins requirements."""
        return self._add('nop', after, begun)

    def text(self) -> str:
        return f'rank {self.rank} {{\n' + ''.join(f'{line}\n' for line in self._lines) + '}\n'


class Builder:
    """A program under construction: builder[r] is rank r."""

    def __init__(self, ranks: int):
        if ranks < 1:
            raise ValueError(f'a program has at least one rank, not {ranks}')
        self._ranks = [Rank(r) for r in range(ranks)]

    def __len__(self) -> int:
        return len(self._ranks)

    def __getitem__(self, rank: int) -> Rank:
        return self._ranks[rank]

    def program(self) -> Program:
        """Returns: the program so far."""
        return Program(f'num_ranks {len(self)}\n' + ''.join(rank.text() for rank in self._ranks))


# ---- programs ----------------------------------------------------------------------------------------------


def _options(options: Mapping[str, object]) -> list[str]:
    """Options of the command: name=True, name=value, name=[value, ...]; None and False are left out."""
    words = []
    for name, value in options.items():
        flag = f'-{name}' if len(name) == 1 else f'--{name.replace("_", "-")}'
        if value is None or value is False:
            continue
        for each in value if isinstance(value, (list, tuple)) else [value]:
            words += [flag] if each is True else [flag, str(each)]
    return words


class Program:
    """A schedule of all ranks: a text, or what open() and pattern() name."""

    def __init__(self, text: str):
        self._text: str | None = text
        self._words = ['-']

    @classmethod
    def _of(cls, words: list[str]) -> Program:
        program = cls.__new__(cls)
        program._text, program._words = None, words
        return program

    @classmethod
    def open(cls, path: Path) -> Program:
        """A file: a text, a compiled program, or a binary of LogGOPSim. It is read when it is used."""
        if not pathlib.Path(path).is_file():
            raise SluiceError(f'there is no file {os.fspath(path)}')
        return cls._of([os.path.abspath(path)])

    def _sluice(self, verb: str, *options: str, allowed: tuple[int, ...] = (0,)) -> str:
        """Runs a verb that takes a file."""
        if len(self._words) > 1:  # a pattern
            return Program(self.text())._sluice(verb, *options, allowed=allowed)
        return sluice('goal', verb, *self._words, *options, stdin=self._text, allowed=allowed)

    def text(self) -> str:
        """Returns: the program as text."""
        if self._text is not None:
            return self._text
        if len(self._words) > 1:
            return sluice('goal', 'gen', *self._words)
        return self._sluice('print')

    def save(self, path: Path, *, compiled: bool = False) -> None:
        """Writes the program to a file, as text or compiled."""
        if compiled:
            self._sluice('compile', '-o', os.fspath(path))
        else:
            pathlib.Path(path).write_text(self.text(), encoding='utf-8')

    def check(self, *, strict: bool = False) -> list[Problem]:
        """Returns: the mistakes; [] when there is none. strict: a deadlock without buffering is one, too."""
        told = json.loads(self._sluice('check', '--json', *_options({'strict': strict}), allowed=(0, 1)))[0]
        return [Problem(p['line'], p['column'], p['message'], tuple(p.get('notes') or ()))
                for p in told['problems']]

    def draw(self, path: Path) -> None:
        """Writes a picture; the end of the name says which kind (sluice-goal(1), DRAW)."""
        self._sluice('draw', '-o', os.fspath(path))

    def simulate(self, *, timeline: bool | str = False, times: bool = True, **options: Any) -> Simulation:
        """Computes when each rank ends. options: those of `sluice goal sim`: preset='infiniband', L=2500,
        o=..., g, G, O, S, C, above=['4K o 800'], params=FILE, model='atlahs', node_ranks=16, noise=FILE,
        path=N ... timeline: keep what each
        CPU does; a text 'A-B' names the ranks (64 without). Returns what was reached when the program
        deadlocks: look at Simulation.stuck."""
        words = [*self._words, '--json', *_options({'times': times, **options})]
        with tempfile.TemporaryDirectory(prefix='sluice-goal-') as folder:
            out = pathlib.Path(folder, 'timeline.json')
            if timeline:
                words += ['--timeline', str(out)]
            if isinstance(timeline, str):
                words += ['--timeline-ranks', timeline]
            told = sluice('goal', 'sim', *words, stdin=self._text, allowed=(0, 1))
            if not told:  # it said why on standard error
                sluice('goal', 'sim', *words, stdin=self._text)
            events = json.loads(out.read_text(encoding='utf-8')) if timeline else None
        return Simulation.of(json.loads(told), events)

    def run(self, times: int = 1, *, verify: bool = False, ops: bool = False, replay: bool = False,
            params: Path | None = None, timeout_ms: int | None = None) -> Run:
        """Runs all ranks as processes of this machine. verify: compare the data with a sequential execution;
        replay: of a traced program, computing becomes time; params: predict, too."""
        if replay and self._text is not None:
            with tempfile.TemporaryDirectory() as folder:
                file = pathlib.Path(folder) / 'replay.goal'
                self.save(file)
                return Program.open(file).run(times, verify=verify, ops=ops, replay=True, params=params,
                                              timeout_ms=timeout_ms)
        options = {'times': times, 'verify': verify, 'ops': ops, 'replay': replay, 'timeout': timeout_ms,
                   'params': os.fspath(params) if params is not None else None}
        return Run.of(json.loads(self._sluice('run', '--json', *_options(options))))


def pattern(name: str, ranks: int, size: Size = 8, **options: object) -> Program:
    """One of the usual collectives. options: root, segment, op, type, dims, periodic, rounds, calc
    (sluice-goal-sim(1), PATTERNS). Its text is made when it is needed: to simulate a million ranks takes no
    memory here."""
    words = [name, '-n', str(ranks), '-s', str(size), *_options(options)]
    if name not in patterns():
        sluice('goal', 'gen', *words)  # says what it should be
    return Program._of(words)


def patterns() -> dict[str, str]:
    """Returns: name -> a sentence about it."""
    rows = [re.split(r'\s{2,}', line) for line in sluice('goal', 'gen', '--list').splitlines()]
    return {row[0]: row[1] for row in rows}


def trace(folder: Path, *, use: Mapping[str, str] | None = None, ranks: int | None = None) -> Program:
    """A run that `sluice trace --goal` recorded. use: collective -> pattern or file that replaces it; ranks:
    extrapolate to so many (sluice-trace(1))."""
    words = [word for kind, by in (use or {}).items() for word in ('--use', f'{kind}={by}')]
    return Program(sluice('trace', 'goal', *words, *_options({'ranks': ranks}), os.fspath(folder)))


def merge(programs: Iterable[Program], *, placement: str = 'packed', ranks: int | None = None,
          seed: int = 1) -> tuple[Program, list[list[int]]]:
    """Several programs side by side on one machine, or one placed otherwise (sluice-goal(1), MERGE). Returns:
    the program, and for each given one the ranks of the machine that its ranks became, to index
    Simulation.end_ns with."""
    with tempfile.TemporaryDirectory(prefix='sluice-goal-') as folder:
        paths: list[str] = []
        for program in programs:
            paths.append(os.path.join(folder, f'{len(paths)}.goal'))
            program.save(paths[-1])
        text = sluice('goal', 'merge', *paths,
                      *_options({'placement': placement, 'ranks': ranks, 'seed': seed}))
    found = re.findall(r'^// .*: ranks ([\d,-]+)$', text, re.MULTILINE)
    return Program(text), [[rank for part in ranges.split(',') for rank in _range(part)] for ranges in found]


def _range(text: str) -> range:
    first, _, last = text.partition('-')
    return range(int(first), int(last or first) + 1)


def measure(path: Path) -> dict[str, Any]:
    """Measures messages inside this node, in some 15 seconds, and writes parameters to a file for
    simulate(params=path). Returns: the figures, as `sluice goal sim --measure --json` prints them."""
    told: dict[str, Any] = json.loads(sluice('goal', 'sim', '--measure', '--json', '--save', os.fspath(path)))
    return told
