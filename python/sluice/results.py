# SPDX-License-Identifier: BSD-3-Clause
"""Results of simulations and runs, as arrays."""
from __future__ import annotations

import dataclasses
import typing
from typing import Any

try:
    import numpy as np
    import numpy.typing as npt
except ImportError as error:
    raise ImportError("sluice.goal needs numpy: pip install 'sluice[goal]'") from error

if typing.TYPE_CHECKING:
    from matplotlib.axes import Axes

Floats = npt.NDArray[np.float64]
PS_PER_NS = 1000.0
COLORS = {'calc': '#9e9e9e', 'send': '#1f77b4', 'receive': '#2ca02c'}
PARTS = {'L': 'latency', 'o': 'overhead', 'O': 'overhead of bytes', 'g': 'gaps', 'G': 'bytes',
         'local': 'computing', 'noise': 'noise', 'waiting': 'waiting', 'before': 'not recorded'}


@dataclasses.dataclass(frozen=True)
class Interval:
    """An occupation of a CPU: kind is 'send', 'receive' or an operation such as 'calc'."""
    rank: int
    cpu: int
    kind: str
    begin_ns: float
    end_ns: float
    text: str


@dataclasses.dataclass(frozen=True)
class Step:
    """A step of the critical path. rank and op: its operation; at_rank: where the CPU was occupied."""
    kind: str
    cause: str
    begin_ns: float
    end_ns: float
    rank: int
    op: int
    at_rank: int
    text: str


@dataclasses.dataclass(frozen=True)
class Simulation:
    """A result of `sluice goal sim`. end_ns: [ranks] when each rank ended. path_ns: the critical path's
    time by cause; path: its steps, first to last. complete: False when something is stuck, or the schedule
    takes longer than 53 days; stuck: 20 operations, and how many more there are. intervals: with timeline
    only. json: all that the command printed."""
    complete: bool
    total_ns: float
    end_ns: Floats
    messages: int
    message_bytes: int
    path_ns: dict[str, float]
    path: list[Step]
    stuck: list[str]
    intervals: list[Interval]
    json: dict[str, Any]

    @classmethod
    def of(cls, told: dict[str, Any], timeline: dict[str, Any] | None) -> Simulation:
        path = told.get('critical_path') or {}
        steps = [Step(s['kind'], s['cause'], s['begin_ps'] / PS_PER_NS, s['end_ps'] / PS_PER_NS, s['rank'],
                      s['op'], s.get('at_rank', s['rank']), s['operation'])
                 for s in path.get('steps_last_first', ())]
        return cls(complete=told['complete'], total_ns=told['end_ps'] / PS_PER_NS,
                   end_ns=np.array(told.get('rank_end_ps', ()), dtype=np.float64) / PS_PER_NS,
                   messages=told['messages'], message_bytes=told['message_bytes'],
                   path_ns={PARTS[k]: path[f'{k}_ps'] / PS_PER_NS for k in PARTS if f'{k}_ps' in path},
                   path=steps[::-1],
                   stuck=[*(f'rank {s["rank"]}: {s["operation"]}' for s in told['stuck']),
                          *([f'and {told["stuck_more"]} more'] if told['stuck_more'] else [])],
                   intervals=_intervals(timeline), json=told)

    def plot(self, ax: Axes | None = None) -> Axes:
        """Draws what each CPU did, a row for each (matplotlib). Needs simulate(timeline=True)."""
        if not self.intervals:
            raise ValueError('there is no timeline: simulate(timeline=True)')
        if ax is None:
            from matplotlib import pyplot  # pylint: disable=import-outside-toplevel
            ax = pyplot.subplots()[1]
        rows = sorted({(i.rank, i.cpu) for i in self.intervals})
        for (rank, cpu), y in zip(rows, range(len(rows))):
            mine = [i for i in self.intervals if (i.rank, i.cpu) == (rank, cpu)]
            ax.broken_barh([(i.begin_ns / 1e3, (i.end_ns - i.begin_ns) / 1e3) for i in mine], (y - .4, .8),
                           facecolors=[COLORS.get(i.kind, '#ff7f0e') for i in mine])
        ax.set_yticks(range(len(rows)),
                      [f'rank {rank}' if not cpu else f'rank {rank} cpu {cpu}' for rank, cpu in rows])
        ax.invert_yaxis()
        ax.set_xlabel('us')
        return ax


def _intervals(timeline: dict[str, Any] | None) -> list[Interval]:
    events = timeline['traceEvents'] if timeline else []
    return [Interval(e['pid'], e['tid'],
                     e['cat'] if e['cat'] in COLORS else e['name'].rpartition(': ')[2].split()[0],
                     e['ts'] * 1e3, (e['ts'] + e['dur']) * 1e3, e['name'])
            for e in events if e['ph'] == 'X']  # 'label (line 7): calc 3000'


@dataclasses.dataclass(frozen=True)
class Run:
    """A result of `sluice goal run`: [ranks] from the beginning of a run, when the last rank had come, to
    the end of the rank. predicted_us: NaN without params; traced_us: NaN without replay. all: the same to the
    end of the last rank; None for one run. json: all that the command printed."""
    times: int
    verified: bool
    least_us: Floats
    low_us: Floats
    median_us: Floats
    high_us: Floats
    predicted_us: Floats
    traced_us: Floats
    all: dict[str, float] | None
    json: dict[str, Any]

    @classmethod
    def of(cls, told: dict[str, Any]) -> Run:
        def column(name: str) -> Floats:
            return np.array([r.get(name, np.nan) for r in told['results']], dtype=np.float64)

        return cls(times=told['times'], verified=told['verified'], least_us=column('least_us'),
                   low_us=column('low_us'), median_us=column('median_us'), high_us=column('high_us'),
                   predicted_us=column('predicted_us'), traced_us=column('traced_us'),
                   all=told.get('all'), json=told)
