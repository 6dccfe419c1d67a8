# SPDX-License-Identifier: BSD-3-Clause
"""The questions: for each option, the other values that might be better, and the launches that show it."""
from units import short_bytes

K, M, NEVER = 1 << 10, 1 << 20, 1 << 40
LLC_SHARE = 3 / 16  # of the last-level cache, from which os/copy.c bypasses it by default
LLC_UNKNOWN = 32 * M


class Candidate:
    """Values by option, and the launches that show their effect: (program, what, args, sizes)."""

    def __init__(self, values, jobs):
        self.values, self.jobs = values, jobs

    def __str__(self):
        return ' '.join(f'{n.replace("SLUICE_", "")}={v}' for n, v in self.values.items())


class Question:
    """One option (with options that depend on it), its description, and the candidates."""

    def __init__(self, name, about, candidates, shares_core=False):
        self.name, self.about, self.candidates = name, about, candidates
        self.shares_core = shares_core  # all ranks share one core; the other cores are free


def used(sizes, read_all=False):
    """Broadcasts and gathers with use of the data; read_all: of every byte."""
    args = ['use=all'] if read_all else []
    return [('collective_bench', 'bcast,gather', args, sizes)]


def returned(sizes):
    """Gain and cost of an early return: use at once, and use after a computation."""
    out = []
    for what in ('bcast', 'gather'):
        out += [('overlap_bench', f'touch-{what}', [], sizes), ('overlap_bench', f'overlap-{what}',
                                                                ['who=one'], sizes)]
    return out


def again(sizes):
    """Fresh buffers, used ten times and freed: ten uses must repay the mapping."""
    return [('collective_bench', 'first-bcast,first-gather', [], sizes)]


def threshold(quick):
    """A threshold below the default lowers region_adopt_min, the least mapped buffer, with it."""
    default, out = 64 * K, []
    for value in (8 * K, 16 * K, 32 * K) if not quick else (16 * K, 32 * K):
        sizes = [s for s in (8 * K, 12 * K, 16 * K, 24 * K, 32 * K, 48 * K) if value <= s < default]
        both = {'SLUICE_COLL_THRESHOLD': short_bytes(value), 'region_adopt_min': short_bytes(value)}
        alone = {'SLUICE_COLL_THRESHOLD': short_bytes(value)}
        out += [Candidate(v, used(sizes) + again(sizes[:1])) for v in ([both] if quick else [both, alone])]
    for value in (128 * K, 256 * K):
        sizes = [s for s in (64 * K, 96 * K, 128 * K, 192 * K) if default <= s < value]
        out.append(Candidate({'SLUICE_COLL_THRESHOLD': short_bytes(value)}, used(sizes) + again(sizes[:1])))
    return Question('SLUICE_COLL_THRESHOLD', 'smallest call that Sluice executes', out)


def fragment(quick):
    sizes = [256 * K, 1 * M, 4 * M, 16 * M] if not quick else [1 * M, 4 * M]
    return Question('xfer_fragment', 'bytes that one mover claims at a time',
                    [Candidate({'xfer_fragment': short_bytes(v)}, used(sizes))
                     for v in (32 * K, 64 * K, 128 * K, 256 * K, 512 * K)])


def copy(kernels, quick):
    sizes = [256 * K, 1 * M, 4 * M, 16 * M] if not quick else [1 * M, 4 * M]
    return Question('xfer_copy', 'instructions that copy, at every size',
                    [Candidate({'xfer_copy': k}, used(sizes, True)) for k in kernels])


def past_cache(llc, kernels, quick):
    default = int((llc or LLC_UNKNOWN) * LLC_SHARE)
    out = []
    for value in (4 * M, 8 * M, 16 * M, 32 * M):
        sizes = [s for s in (4 * M, 8 * M, 16 * M, 32 * M) if value <= s < default]
        if sizes:
            out.append(Candidate({'xfer_past_cache': short_bytes(value)},
                                 used(sizes[:1] + sizes[-1:] if quick else sizes, True)))
    sizes = [s for s in (8 * M, 16 * M, 32 * M, 64 * M) if s >= default]
    if sizes:
        out.append(Candidate({'xfer_past_cache': '1T'}, used(sizes[:1] if quick else sizes, True)))
    return Question('xfer_past_cache', 'smallest copy that bypasses the caches',
                    out if 'nontemporal' in kernels else [])


def early_min(shares):
    default, out = 512 * K, []
    for value in (1 * M, 2 * M, 4 * M):
        sizes = [s for s in (512 * K, 1 * M, 2 * M) if default <= s < value]
        out.append(Candidate({'SLUICE_EARLY_MIN': short_bytes(value)}, returned(sizes)))
    return Question('SLUICE_EARLY_MIN', 'smallest call that may return early', out, shares)


def engine(engines, quick):
    """A device that SLUICE_ENGINE=auto does not take: only a measurement on this machine tells."""
    sizes = [512 * K, 1 * M, 4 * M, 16 * M] if not quick else [1 * M, 4 * M]
    return Question('SLUICE_ENGINE', 'copy engine that moves data behind the program',
                    [Candidate({'SLUICE_ENGINE': e['name']}, returned(sizes)) for e in engines
                     if e['name'] == 'dsa' and e['works'] and not e['chosen']])


def guard(kinds, chosen, quick, shares):
    sizes = [1 * M, 4 * M, 16 * M] if not quick else [4 * M]
    return Question('SLUICE_GUARD_KIND', 'guard of memory while its data moves',
                    [Candidate({'SLUICE_GUARD_KIND': k}, returned(sizes)) for k in kinds if k != chosen],
                    shares)


def worker_kind(has_process, quick, shares):
    sizes = [1 * M, 4 * M, 16 * M] if not quick else [4 * M]
    return Question('SLUICE_WORKER_KIND', 'software workers as a process of the job or as threads',
                    [Candidate({'SLUICE_WORKER_KIND': 'thread'}, returned(sizes))] if has_process else [],
                    shares)


def workers(spare, quick, shares):
    sizes = [4 * M, 16 * M] if not quick else [16 * M]
    numbers = [n for n in (1, 2, 3, 4, 6, 8, 12, 16) if n <= spare and n != min(spare, 4)]
    return Question('SLUICE_WORKERS', 'number of software workers',
                    [Candidate({'SLUICE_WORKERS': str(n)}, returned(sizes)) for n in numbers], shares)


def all_of(info, cpus, ranks, quick):
    """Returns the useful questions, and the reasons against others: ([Question], {option: reason})."""
    shares = cpus - ranks < 1  # no core is free for a worker unless ranks share one
    kernels = [k.strip() for k in info['machine']['copy_kernels'].split(',')]
    llc = max([c['bytes'] for c in info['machine']['caches'] if c['name'] in ('L3', 'L4', 'last level')],
              default=0)
    guards = [g['name'] for g in info['guards'] if g['works']]
    chosen = next((g['name'] for g in info['guards'] if g['chosen']), None)
    can_copy = any(e['works'] and e['chosen'] for e in info['engines'])
    has_process = any(w['works'] for w in info['workers'] if w['name'] == 'process')
    spare = 1 if shares else cpus - ranks
    asked = [threshold(quick), fragment(quick), copy(kernels, quick), past_cache(llc, kernels, quick)]
    late = [early_min(shares), guard(guards, chosen, quick, shares),
            worker_kind(has_process, quick, shares), workers(spare, quick, shares)]
    device = engine(info['engines'], quick)
    skipped = {}
    if cpus < 2:
        skipped = {q.name: 'this machine has one CPU' for q in [device, *late]}
    elif not chosen:
        skipped = {q.name: 'no guard works here, and no call returns early' for q in [device, *late]}
    elif not can_copy:
        asked.append(device)
        skipped = {q.name: 'no engine works here' for q in late}
    else:
        asked += [device, *late]
    for q in asked:
        if not q.candidates:
            skipped[q.name] = 'this machine has no other value'
    return [q for q in asked if q.candidates], skipped
