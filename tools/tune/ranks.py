# SPDX-License-Identifier: BSD-3-Clause
"""Launches a measuring program of libexec/sluice/bench under Sluice, with the given values only."""
from launch import Failed, launch

TASKSET = ['taskset', '-c']
MS_CALIBRATE = 40


def spelled(values):
    """Returns the environment for these values: variables as such, names of the tune file in SLUICE_TEST."""
    names = [f'{n}={v}' for n, v in values.items() if not n.startswith('SLUICE')]
    return {**{n: v for n, v in values.items() if n.startswith('SLUICE')},
            **({'SLUICE_TEST': ','.join(names)} if names else {})}


class Ranks:
    """tool: this sluice; programs: where the measuring programs are; mpi: bench's HostMpi; allowed: CPUs."""

    def __init__(self, tool, programs, mpi, allowed, nice=0):
        self.tool, self.programs, self.mpi, self.allowed, self.nice = tool, programs, mpi, allowed, nice
        self.units = {}

    def run(self, program, ranks, shares_core, values, args, limit_s):
        """Returns the JSON lines, except the line that names the MPI. Raises Failed."""
        before = []
        if shares_core:
            args, before = [*args, 'shared=1'], [*TASKSET, str(self.allowed[0])]
        elif ranks <= len(self.allowed):
            args = [*args, 'pin=1', f'cpus={",".join(map(str, self.allowed))}']
        elif program == 'overlap_bench':
            args = [*args, 'shared=1']
        if self.nice:
            args = [*args, f'nice={self.nice}']
        command = self.mpi.command(ranks, [*before, self.tool, 'run'], self.mpi.program(self.programs,
                                                                                        program), args)
        lines, *_ = launch(command, {**self.mpi.env(), **spelled(values)}, max(1.0, limit_s), self.nice)
        return [x for x in lines if x['what'] not in ('run', 'hello')]

    def units_for(self, call, ranks, shares_core, args, limit_s):
        """Returns a computation as long as a call without early return; one length for all values."""
        key = (call, ranks, shares_core, *args)
        if key not in self.units:
            lines = self.run('overlap_bench', ranks, shares_core, {'SLUICE_EARLY': 'off'},
                             [f'what=calibrate-{call}', f'ms={MS_CALIBRATE}', *args], limit_s)
            found = [max(1, round(x['comm']['us'] * 1000 / x['unit_ns'])) for x in lines
                     if x['what'] == 'calibrate']
            if not found:
                raise Failed('no computation could be calibrated')
            self.units[key] = ','.join(map(str, found))
        return f'units={self.units[key]}'
