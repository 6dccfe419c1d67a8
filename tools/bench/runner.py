# SPDX-License-Identifier: BSD-3-Clause
"""Runs scenarios in rounds of launches: all sides of a kind in turn, in an order that rotates."""
import random
import time

import measured
from errors import Stop, say
from launch import Failed, launch
from results import Results
from units import bytes_text

FAILS_MOST = 2    # failures of one kind before it is given up
TASKSET = ['taskset', '-c']
# The position of the stack, which depends on the length of the environment, changes the time of an MPI's own
# small calls by up to a tenth: each launch has another length, so that no side has an advantage.
PAD_BYTES = 4096


class Side:
    """options: of Sluice; None: a program without Sluice."""

    def __init__(self, name, title, options):
        self.name, self.title, self.options = name, title, options


def sides_for(info):
    """Returns the sides for this machine: each working engine besides the default one."""
    works = {t['name']: t['works'] for t in info['trials']}
    out = [Side('plain', 'plain MPI', None),
           Side('blocking', 'Sluice, blocking', {'SLUICE_EARLY': 'off'})]
    if works.get('guard'):
        out.append(Side('early', 'Sluice, early return', {'SLUICE_EARLY': 'auto'}))
        if works.get('engine'):
            out.append(Side('early-thread', 'Sluice, early return, copies by threads of each rank',
                            {'SLUICE_EARLY': 'auto', 'SLUICE_WORKER_KIND': 'thread'}))
            out += [Side(f'early-{e["name"]}', f'Sluice, early return, engine {e["name"]}',
                         {'SLUICE_EARLY': 'auto', 'SLUICE_ENGINE': e['name']})
                    for e in info.get('engines', []) if e['works'] and e['name'] not in ('sw', 'fault')]
    return out


class State:
    """Measurements of a scenario."""

    def __init__(self, scenario, results):
        self.scenario, self.results = scenario, results
        self.rounds, self.whole_rounds, self.seconds = 0, 0, 0.0

    def wants_more(self):
        s = self.scenario
        if self.rounds < s.rounds:
            return True
        return self.rounds < s.most and self.seconds < s.seconds and self.results.unsettled() > 0

    def document(self, has_failed):
        s, found = self.scenario, self.results.all()
        return {'name': s.name, 'title': s.title, 'about': s.about, 'plot': s.plot, 'rounds': self.rounds,
                'warmup': s.warmup, 'settled': bool(found) and all(r['settled'] for r in found),
                'complete': bool(found) and self.whole_rounds >= s.rounds and not has_failed,
                'seconds': self.seconds, 'results': found}


class Runner:
    """setup: main.Setup. Keeps its measurements whatever happens."""

    def __init__(self, setup, progress):
        self.s, self.progress = setup, progress
        self.failures, self.states = [], []
        self.fails, self.units = {}, {}

    # ---- one launch

    def limit_s(self, until):
        return max(1.0, min(self.s.limit_s, until - time.monotonic())) if until else self.s.limit_s

    def holders(self, job, ranks):
        """Returns the number of processes that hold the data of a launch."""
        return self.s.cpus if job.is_machine else ranks

    def launch(self, job, ranks, side, args, until):
        if job.is_machine:
            return launch([f'{self.s.programs}/{job.program}', *args], None, self.limit_s(until), self.s.nice)
        env = {**self.s.mpi.env(), 'BENCH_PAD': '.' * random.randrange(PAD_BYTES)}
        if job.shares_core or (ranks > self.s.cpus and job.program == 'overlap_bench'):
            args = [*args, 'shared=1']
        if ranks <= self.s.cpus and not job.shares_core:
            args = [*args, 'pin=1', f'cpus={",".join(map(str, self.s.allowed))}']
        if self.s.nice:
            args = [*args, f'nice={self.s.nice}']
        before = [*TASKSET, str(self.s.allowed[0])] if job.shares_core else []
        if side.options is None:
            env['SLUICE'] = 'off'
        else:
            env.update(side.options)
            before += [self.s.tool, 'run']
        command = self.s.mpi.command(ranks, before, self.s.mpi.program(self.s.programs, job.program), args)
        return launch(command, env, self.limit_s(until), self.s.nice)

    def calibrated(self, job, ranks, until):
        """Calibrates computation to the duration of the blocking collective: units for each size, equal on
        all sides."""
        who = [a for a in job.args if a.startswith('who=')]
        sizes = [a for a in job.arguments(self.holders(job, ranks), self.s.memory) if a.startswith('sizes=')]
        key = (job.calibrate, ranks, job.shares_core, *sizes, *who)
        if key not in self.units:
            args = [f'what=calibrate-{job.calibrate}', *who, 'ms=60', *sizes]
            lines, *_ = self.launch(job, ranks, self.s.side('blocking'), args, until)
            self.units[key] = ','.join(str(max(1, round(x['comm']['us'] * 1000 / x['unit_ns'])))
                                       for x in lines if x['what'] == 'calibrate')
        return [f'units={self.units[key]}']

    def one(self, scenario, job, ranks, side, until):
        """Returns the samples of one launch, or None when it failed."""
        try:
            args = job.arguments(self.holders(job, ranks), self.s.memory)
            if job.calibrate:
                args += self.calibrated(job, ranks, until)
            lines, seconds, _ = self.launch(job, ranks, side, args, until)
        except Failed as e:
            if until and time.monotonic() >= until:
                return None  # out of time, no failure
            kind = (scenario.name, id(job), ranks, side.name)
            self.fails[kind] = self.fails.get(kind, 0) + 1
            self.failures.append({'scenario': scenario.name, 'side': side.name, 'ranks': ranks,
                                  'why': str(e)})
            return None
        self.progress.done((scenario.name, id(job), ranks, side.name), seconds)
        found, lost = measured.samples(lines, job)
        if lost:
            self.failures.append({'scenario': scenario.name, 'side': side.name, 'ranks': ranks,
                                  'why': f'{measured.DISTURBED}: {", ".join(lost)}'})
        return found

    # ---- rounds

    def kinds(self, scenario):
        """Returns (job, ranks, side) of one round."""
        for job in scenario.jobs:
            for ranks in job.ranks:
                for side in self.s.sides_of(job):
                    yield job, ranks, side

    def planned(self, scenario, rounds):
        return {(scenario.name, id(j), r, s.name): rounds for j, r, s in self.kinds(scenario)}

    def one_round(self, state, until):
        """Returns False when time was up before the end of the round."""
        scenario = state.scenario
        for job in scenario.jobs:
            for ranks in job.ranks:
                if job.sizes and not job.sizes_for(self.holders(job, ranks), self.s.memory):
                    continue  # reported before the first round
                sides = self.s.sides_of(job)
                turn = state.rounds % len(sides)
                for side in sides[turn:] + sides[:turn]:
                    kind = (scenario.name, id(job), ranks, side.name)
                    if until and time.monotonic() + self.progress.took.get(kind, 0) > until:
                        return False
                    if self.fails.get(kind, 0) >= FAILS_MOST:
                        continue
                    self.progress.show(f'{scenario.name}, round {state.rounds + 1}, {ranks} ranks, '
                                       f'{side.name}')
                    found = self.one(scenario, job, ranks, side, until)
                    if found:
                        state.results.add(found, side.name, state.rounds)
        return True

    def next_round(self, state, until):
        began = time.monotonic()
        try:
            state.whole_rounds += self.one_round(state, until)
        finally:
            state.rounds += 1
            state.seconds += time.monotonic() - began

    def report_omitted(self, scenarios):
        for s in scenarios:
            for job in s.jobs:
                for ranks in job.ranks:
                    omitted = [bytes_text(n) for n in job.sizes
                               if n not in job.sizes_for(self.holders(job, ranks), self.s.memory)]
                    if omitted:
                        say(f'{s.name} with {ranks} ranks omits {", ".join(omitted)}: this machine has '
                            f'{bytes_text(self.s.memory)}')

    def run_all(self, scenarios, until):
        """Runs each round over all scenarios that need one more, so that a disturbance affects all of them
        and an early end leaves some of each. until: monotonic time, or None."""
        self.report_omitted(scenarios)
        names = [s.name for s in self.s.sides] + ['machine']
        self.states = [State(s, Results(self.s.seed, names)) for s in scenarios]
        waiting = list(self.states)
        while waiting:
            for state in waiting:
                if state.rounds >= state.scenario.rounds:
                    self.progress.more(self.planned(state.scenario, 1))
                self.next_round(state, until)
            waiting = [s for s in waiting if s.whole_rounds == s.rounds and s.wants_more()]

    def documents(self):
        failed = {f['scenario'] for f in self.failures}
        return [s.document(s.scenario.name in failed) for s in self.states]


def preflight(setup):
    """Launches two ranks that only report, and sets the MPI's version. Raises Stop when that fails."""
    command = setup.mpi.command(2, [], setup.mpi.program(setup.programs, 'collective_bench'), ['what='])
    env = {**setup.mpi.env(), 'SLUICE': 'off'}
    try:
        lines, *_ = launch(command, env, 60)
    except Failed as e:
        raise Stop(f'{" ".join(setup.mpi.launcher)} cannot run two ranks: {e}') from e
    runs = [x for x in lines if x['what'] == 'run']
    if not runs or runs[0]['ranks'] != 2:
        raise Stop(f'{" ".join(setup.mpi.launcher)} does not launch ranks of {setup.mpi.library}: '
                   'the ranks do not find each other; see --mpi and --launcher')
    setup.mpi.version = runs[0]['mpi'] if not setup.mpi.version else setup.mpi.version
