# SPDX-License-Identifier: BSD-3-Clause
"""Asks one question: all candidates briefly, then the best one against the default in pairs of launches.

A value is better only when every pair says so, in sum over all sizes and calls, when the middle of the pairs
is clear of noise, and when no single size has become slower. What chooses a candidate is not what confirms
it: the pairs are measured anew.
"""
import math
import time

import stats
from launch import Failed
from units import bytes_text, short_bytes

PAIRS = 6           # all of one sign by chance: one in 64
SCREENS = 2         # launches of each candidate before the pairs
WORTH = 1.02        # least median speed-up of the pairs that is worth a line in a file
LOOKS_BETTER = 1.01 # least speed-up in the screening for a measurement in pairs
CONFIRMS = 3        # most candidates to measure in pairs, best first
HOPELESS = 0.97     # a candidate with less speed-up in the first launch gets no other
SLOWER = 0.98       # a candidate with a lower median at any size counts as slower
NOT_MEASURED = 'not measured'


CALLS = {'bcast': 'broadcast', 'gather': 'gather'}


class OutOfTime(Exception):
    pass


def geometric(values):
    return math.exp(sum(math.log(v) for v in values) / len(values))


def time_of(line):
    """Returns (case, median time in us) of a line of a measuring program; None for a line without a
    wanted case."""
    kind, _, rest = line['what'].rpartition('-')
    if kind == 'first' or line['what'] == 'calibrate':
        return None  # only the ten uses after the first count
    how, call, us = 'until used', rest, line.get('p50_us', 0)
    if kind.startswith('first-'):
        how, call = 'ten uses of a fresh buffer', kind[len('first-'):]
    elif kind == 'touch':
        how, us = 'used at once', line['comm']['us']
    elif kind == 'overlap':
        how, us = 'with as much computation', line['both']['us']
    what = f'{CALLS[call]} of {bytes_text(line["bytes"])}, {how}, {line["ranks"]} ranks'
    if line['mismatches']:
        raise Failed(f'{what}: wrong contents')
    return (what, us) if us > 0 else None


def gain(values):
    """Returns the gain of a candidate; a gain at more sizes counts more."""
    return sum(math.log(v) for v in values)


def ratios(default, mine):
    """Returns the speed-up over the default by case."""
    return {k: default[k] / mine[k] for k in default if k in mine and mine[k] > 0}


class Asker:
    """run: ranks.Ranks; progress(question, text) is called before each launch."""

    def __init__(self, run, ranks, ms, progress):
        self.run, self.ranks, self.ms, self.progress = run, ranks, ms, progress
        self.longest = 0.0

    def arguments(self, spec, ranks, shares_core, limit_s):
        _, what, more, sizes = spec
        kind, _, call = what.rpartition('-')
        args = ['sizes=' + ','.join(short_bytes(n) for n in sizes), *more]
        units = [self.run.units_for(call, ranks, shares_core, args, limit_s)] if kind == 'overlap' else []
        return [f'what={what}', *args, f'ms={self.ms}', 'warmup=5', *units]

    def launch(self, question, jobs, values, until):
        """Returns the median times of these launches in us, by case."""
        out = {}
        for spec in jobs:
            for ranks in self.ranks:
                began = time.monotonic()
                if until - began <= self.longest * 1.2:
                    raise OutOfTime
                try:
                    args = self.arguments(spec, ranks, question.shares_core, until - began)
                    lines = self.run.run(spec[0], ranks, question.shares_core, values, args,
                                         until - time.monotonic())
                except Failed:
                    if time.monotonic() >= until:
                        raise OutOfTime from None
                    raise
                self.longest = max(self.longest, time.monotonic() - began)
                out.update(x for x in (time_of(line) for line in lines) if x)
        return out

    def screen(self, question, until, found):
        """Fills found['candidates'], best first."""
        tried = [([], c) for c in question.candidates]
        left = tried
        for _ in range(SCREENS):
            default = {}
            for got, c in left:
                key = repr(c.jobs)
                self.progress(question, f'{c}')
                if key not in default:
                    default[key] = self.launch(question, c.jobs, {}, until)
                mine = ratios(default[key], self.launch(question, c.jobs, c.values, until))
                if mine:
                    got.append(mine)
            left = [(got, c) for got, c in reversed(left) if got and geometric(got[-1].values()) >= HOPELESS]
        scored = [(sum(gain(m.values()) for m in got) / len(got),
                   geometric([v for m in got for v in m.values()]), c)
                  for got, c in tried if got]
        scored.sort(key=lambda x: -x[0])
        found['candidates'] = [{'values': c.values, 'ratio': round(r, 4)} for _, r, c in scored]
        return [(r, c) for _, r, c in scored]

    def confirm(self, question, candidate, until):
        """Returns (whether better with confidence, figures)."""
        whole, by_key = [], {}
        for number in range(PAIRS):
            self.progress(question, f'{candidate}, pair {number + 1} of {PAIRS}')
            got = {}
            for values in ({}, candidate.values) if number % 2 == 0 else (candidate.values, {}):
                got[bool(values)] = self.launch(question, candidate.jobs, values, until)
            mine = ratios(got[False], got[True])
            for key, ratio in mine.items():
                by_key.setdefault(key, []).append(ratio)
            whole.append(geometric(mine.values()) if mine else 0.0)
            worst = min(by_key, key=lambda k: stats.median(by_key[k]), default=None)
            least = stats.median(by_key[worst]) if worst else 0.0
            # not all pairs agree any more, which no further one can change; or it is clear where it is slower
            if whole[-1] <= 1.0 or (len(whole) >= PAIRS // 2 and least < HOPELESS):
                break
        figures = {'values': candidate.values, 'ratio': round(stats.median(whole), 4),
                   'low': round(min(whole), 4),
                   'high': round(max(whole), 4), 'pairs': len(whole),
                   'worst': worst and {'what': worst, 'ratio': round(least, 4)}}
        return (len(whole) == PAIRS and min(whole) > 1.0 and stats.median(whole) >= WORTH and least >= SLOWER,
                figures)

    def ask(self, question, until):
        """Returns the file's text about this option."""
        found = {'option': question.name, 'about': question.about, 'verdict': 'default', 'values': {},
                 'candidates': [], 'pairs': [], 'why': ''}
        try:
            scored = self.screen(question, until, found)
            found['why'] = 'no other value seemed better'
            for ratio, candidate in scored[:CONFIRMS]:
                if ratio < LOOKS_BETTER:
                    continue
                found['why'] = 'no other value was better in every pair of launches and slower at no size'
                is_better, figures = self.confirm(question, candidate, until)
                found['pairs'].append(figures)
                if is_better:
                    found['verdict'], found['values'] = 'better', candidate.values
                    found['why'] = 'better in every pair of launches and slower at no size'
                    break
        except OutOfTime:
            found['verdict'], found['why'] = 'undecided', 'the time ran out'
        except Failed as e:
            found['verdict'], found['why'] = 'undecided', f'{NOT_MEASURED}: {e}'
        return found
