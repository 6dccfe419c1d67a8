# SPDX-License-Identifier: BSD-3-Clause
"""Scenario files, in sections of `name = value`.

[scenario]      title, about, plot (lines, bars, stacks, table), warmup: for reports
                rounds: minimum of launches of every side; most: maximum, while the spread is wide;
                seconds: begin no further round after this time; quick_rounds: maximum with --quick
[job NAME]      one kind of launch; the name is a label
    program     a measuring program beside this tool; what, sizes, args: its arguments
    timed       the meaning of the time, where the program does not say
    ranks       numbers, and: half, all (of the CPUs), twice; at least 2 each
    cores       one: all ranks share a core, so that the others are free
    calibrate   a collective of overlap_bench: compute as long as that call
    machine     yes: runs alone, without MPI, and measures limits of this machine
    sides       the sides to run; all by default
    quick_...   another value with --quick; an empty one omits the job
"""
import configparser
from pathlib import Path

from errors import Stop
from units import parse_sizes, short_bytes

PLOTS = ('lines', 'bars', 'stacks', 'table')
OF_SCENARIO = {'title', 'about', 'plot', 'warmup', 'rounds', 'most', 'seconds', 'quick_rounds'}
OF_JOB = {'program', 'what', 'timed', 'ranks', 'sizes', 'args', 'cores', 'calibrate', 'machine', 'sides'}
RANKS_MOST = 256  # limit of the measuring programs
COPIES = 4        # of a rank's data in a launch: its own, root's, and those of adoption
ORDER = ('limits', 'latency', 'overlap', 'nonblocking', 'synthetic', 'small', 'first', 'late', 'maps')


def one_line(text):
    return ' '.join(text.split())


class Job:
    """One kind of launch, for all numbers of ranks."""

    def __init__(self, values, ranks_of):
        self.program, self.timed = values.get('program', ''), values.get('timed', '')
        self.what = values.get('what', '').split()
        self.sizes = sorted(set(parse_sizes(values.get('sizes', ''))))
        self.args = values.get('args', '').split()
        self.shares_core = values.get('cores') == 'one'
        self.calibrate = values.get('calibrate', '')
        self.is_machine = values.get('machine') == 'yes'
        self.sides = values.get('sides', '').split()
        self.ranks = [1] if self.is_machine else ranks_of(values.get('ranks', '2').split())

    def sizes_for(self, ranks, memory_bytes):
        """Returns the sizes with which all ranks use at most half of the memory."""
        return [n for n in self.sizes if n * ranks * COPIES <= memory_bytes / 2]

    def arguments(self, ranks, memory_bytes):
        out = [f'what={",".join(self.what)}'] if self.what else []
        if self.sizes:
            out.append('sizes=' + ','.join(map(short_bytes, self.sizes_for(ranks, memory_bytes))))
        return out + self.args


class Scenario:
    def __init__(self, name, values, jobs, quick):
        self.name = name
        self.title, self.about = one_line(values['title']), one_line(values['about'])
        self.plot, self.warmup = values['plot'], one_line(values['warmup'])
        self.rounds = int(values['rounds'])
        self.most = int(values.get('most', self.rounds))
        self.seconds = float(values.get('seconds', 600))
        if quick:
            self.rounds, self.most = 1, int(values.get('quick_rounds', 1))
        self.jobs = jobs


def ranks_of(cpus, wanted):
    """Returns a function from words to numbers of ranks; `wanted` numbers replace them all."""
    words = {'half': cpus // 2, 'all': cpus, 'twice': 2 * cpus}

    def find(names):
        numbers = wanted or [words[n] if n in words else int(n) for n in names]
        return list(dict.fromkeys(min(RANKS_MOST, max(2, n)) for n in numbers))
    return find


def job_values(section, quick):
    """Applies --quick's values; returns None when the job is omitted."""
    out = {k: v for k, v in section.items() if not k.startswith('quick_')}
    for name, value in section.items():
        if quick and name.startswith('quick_'):
            if not value.strip():
                return None
            out[name[len('quick_'):]] = value
    return out


def check(path, section, allowed):
    for name in section:
        if name.replace('quick_', '', 1) not in allowed and name not in allowed:
            raise Stop(f'{path}: [{section.name}] has no "{name}"')


def read(path, find_ranks, quick):
    """Reads a Scenario; raises Stop with the error."""
    parser = configparser.ConfigParser(interpolation=None, delimiters=('=',))
    try:
        parser.read_string(Path(path).read_text(encoding='utf-8'), source=str(path))
        for name in parser.sections():
            check(path, parser[name], OF_SCENARIO if name == 'scenario' else OF_JOB)
        jobs = [job_values(parser[n], quick) for n in parser.sections() if n.startswith('job ')]
        found = Scenario(Path(path).stem, parser['scenario'],
                         [Job(v, find_ranks) for v in jobs if v is not None], quick)
    except OSError as e:
        raise Stop(f'{path}: {e.strerror}') from e
    except (configparser.Error, KeyError, ValueError) as e:
        raise Stop(f'{path}: not a scenario: {one_line(str(e))}') from e
    if found.plot not in PLOTS:
        raise Stop(f'{path}: plot is one of {", ".join(PLOTS)}')
    return found


def names_in(folder):
    """Returns all names in their order of execution."""
    names = sorted(p.stem for p in Path(folder).glob('*.ini'))
    return [n for n in ORDER if n in names] + [n for n in names if n not in ORDER]
