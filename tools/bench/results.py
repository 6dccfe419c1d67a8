# SPDX-License-Identifier: BSD-3-Clause
"""Combines the samples of many launches into results for the JSON."""
import stats

REFERENCE = 'plain'


class Results:
    """Samples by key, side and round. seed: of the resampling."""

    def __init__(self, seed, sides):
        self.seed, self.side_order = seed, sides
        self.heads, self.cells = {}, {}

    def add(self, found, side, number):
        for s in found:
            self.heads.setdefault(s['key'], s)
            self.cells.setdefault(s['key'], {}).setdefault(side, {})[number] = s['stat']

    def side(self, key, name):
        rounds = list(self.cells[key][name].values())
        head = self.heads[key]
        mids = [r['p50'] for r in rounds]
        low, high = stats.interval(mids, self.seed)
        tails = [r['p99'] for r in rounds if r['p99'] is not None]
        best = min if head['better'] == 'less' else max
        out = {'p0': best(r['p0'] for r in rounds), 'p50': stats.median(mids),
               'p99': stats.median(tails) if tails else None, 'low': low, 'high': high,
               'launches': len(rounds), **{n: sum(r[n] for r in rounds)
                                           for n in ('samples', 'dropped', 'wrong')}}
        if 'parts' in rounds[0]:
            out['parts'] = [{'name': n, 'title': title,
                             'p50': stats.median([r['parts'][i][2] for r in rounds])}
                            for i, (n, title, _) in enumerate(rounds[0]['parts'])]
        if 'overlap' in rounds[0]:
            out['overlap_percent'] = self.overlap(key, name)
        return out

    def overlap(self, key, name):
        """Returns the share of the communication that is hidden, relative to the blocking call of the same
        round: the host MPI's own, or Sluice's."""
        shares = []
        block = self.cells[key].get('blocking' if name != REFERENCE else name, {})
        for number, r in self.cells[key][name].items():
            comm = block.get(number, r)['overlap']['comm']
            if comm:
                shares.append(100 * (1 - (r['overlap']['both'] - r['overlap']['comp']) / comm))
        return stats.median(shares) if shares else None

    def ratio(self, key, name):
        mine, reference = self.cells[key][name], self.cells[key].get(REFERENCE, {})
        pairs = [(mine[n]['p50'], reference[n]['p50']) for n in mine
                 if n in reference and mine[n]['p50'] and reference[n]['p50']]
        if self.heads[key]['better'] == 'more':
            pairs = [(b, a) for a, b in pairs]
        return stats.ratio(pairs, self.seed)

    def result(self, key):
        head = self.heads[key]
        names = [n for n in self.side_order if n in self.cells[key]]
        sides = {n: self.side(key, n) for n in names}
        ratios = {n: self.ratio(key, n) for n in names if n != REFERENCE}
        ratios = {n: r for n, r in ratios.items() if r}
        judged = [(r['value'], r['low'], r['high'], r['pairs']) for r in ratios.values()] or \
            [(s['p50'], s['low'], s['high'], s['launches']) for s in sides.values()]
        out = {k: head[k] for k in ('key', 'what', 'label', 'timed', 'ranks', 'bytes', 'unit', 'better',
                                    'parameters')}
        out.update(settled=all(stats.is_narrow(*j) for j in judged), sides=sides, ratios=ratios)
        return out

    def all(self):
        return [self.result(key) for key in self.heads]

    def unsettled(self):
        return sum(not r['settled'] for r in self.all())
