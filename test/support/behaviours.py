# SPDX-License-Identifier: BSD-3-Clause
"""The behaviours of a test program (programs/check.h) as tests.

One job runs all of a program's behaviours that are wanted; each test looks at its own line. When a job
dies, what had not been reported yet is run alone, so that the one to blame is known.
"""
import re

import pytest

from .paths import SOURCES

ENTRY = re.compile(r'^BEHAVIOUR\((\w+), (\d+)\)', re.M)
LINE = re.compile(r'^(ok|fail|skip|say|note|#) (\w+)(?:: (.*))?$', re.M)
ADDRESS = re.compile(r'0x[0-9a-f]+|\(nil\)')


def behaviours(program):
    """(name, least number of ranks) in the order of the source."""
    return [(name, int(n)) for name, n in ENTRY.findall((SOURCES / program).read_text())]


class Report:
    """The output of one job."""

    def __init__(self, result):
        self.result, self.verdicts, self.said, self.why, self.notes = result, {}, {}, {}, {}
        for kind, name, text in LINE.findall(result.out):
            if kind == 'say':
                self.said.setdefault(name, []).append(ADDRESS.sub('ADDRESS', text))
            elif kind == 'note':
                self.notes.setdefault(name, []).append(text)
            elif kind == '#':
                self.why.setdefault(name, []).append(text)
            else:
                self.verdicts[name] = (kind, text)

    def said_by(self, name):
        return sorted(self.said.get(name, []))


class Runner:
    """Runs programs, each job once a session."""

    def __init__(self, wanted):
        self.wanted, self.jobs = wanted, {}

    def job(self, mpi, program, ranks, sluice, env, names, timeout, before=()):
        key = (mpi.name, program, ranks, sluice, *sorted(env.items()), *before, *names)
        if key not in self.jobs:
            path = mpi.build(program)
            self.jobs[key] = Report(mpi.launch(ranks, path, *names, sluice=sluice, env=env,
                                               timeout=timeout, before=before))
        return self.jobs[key]

    def report(self, mpi, program, ranks, name, sluice=True, env=None, timeout=100, before=()):
        """The report of the job in which `name` ran; alone when the common job did not get to it."""
        env = env or {}
        known = [n for n, least in behaviours(program) if least <= ranks]
        names = [n for n in known if n in self.wanted.get(program, known)] or [name]
        report = self.job(mpi, program, ranks, sluice, env, names, timeout, before)
        if name not in report.verdicts and len(names) > 1:
            report = self.job(mpi, program, ranks, sluice, env, [name], timeout, before)
        return report

    def check(self, mpi, program, ranks, name, **how):
        """The behaviour held; the job ended well and left nothing."""
        report = self.report(mpi, program, ranks, name, **how)
        kind, text = report.verdicts.get(name, ('fail', 'no verdict'))
        if kind == 'skip':
            pytest.skip(text)
        assert kind == 'ok', '\n'.join(report.why.get(name, [text]) + [report.result.explain()])
        assert not report.result.leftovers, report.result.leftovers
        return report


def cases(program, mpis, ranks, configs, marks=()):
    """pytest parameters (mpi, ranks, config, behaviour)."""
    return [pytest.param(mpi, n, config, name, id=f'{name}-{mpi}-{n}-{config}', marks=marks)
            for mpi in mpis for n in ranks for config in configs
            for name, least in behaviours(program) if least <= n]
