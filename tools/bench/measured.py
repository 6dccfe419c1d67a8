# SPDX-License-Identifier: BSD-3-Clause
"""Converts the JSON lines of the measuring programs into samples."""
from units import bytes_text

DISTURBED = 'other programs disturbed every sample'
NAMES = {'bcast': 'broadcast', 'gather': 'gather', 'allreduce': 'allreduce', 'ibcast': 'Ibcast',
         'igather': 'Igather', 'ialltoall': 'Ialltoall', 'iallreduce': 'Iallreduce',
         'sendrecv': 'message there and back', 'barrier': 'barrier'}
NONBLOCKING = ('ibcast', 'igather', 'ialltoall', 'iallreduce')


def stat(p0, p50, p99, samples, dropped=0, wrong=0, **more):
    return {'p0': p0, 'p50': p50, 'p99': p99, 'samples': samples, 'dropped': dropped, 'wrong': wrong,
            **more}


def sample(what, label, timed, ranks, size, values, **more):
    """more: unit, better, parameters, and whatever else makes the key unique."""
    extra = ''.join(f'/{k}={v}' for k, v in sorted(more.get('parameters', {}).items()))
    return {'key': f'{what}/{timed}/{ranks}/{size or 0}{extra}', 'what': what, 'label': label,
            'timed': timed, 'ranks': ranks, 'bytes': size, 'unit': more.get('unit', 'us'),
            'better': more.get('better', 'less'), 'parameters': more.get('parameters', {}),
            'stat': values}


def name_of(what):
    return NAMES.get(what, what)


def from_collective(line, job):
    """Samples of latency, small, first: 'bcast', 'call-bcast', 'small-bcast', 'first-bcast', 'first-
    bcast-10'."""
    if line['what'] in ('maps-bcast', 'maps-gather'):
        return from_maps(line)
    prefix, _, what = line['what'].rpartition('-') if '-' in line['what'] else ('', '', line['what'])
    timed = job.timed or {'call': 'call', 'small': 'call', '': 'use'}.get(prefix, prefix)
    if prefix.startswith('first'):
        what, timed = ('bcast' if 'bcast' in line['what'] else 'gather',
                       'ten uses' if line['what'].endswith('-10') else 'first use')
    size = line['bytes'] if what != 'barrier' else None
    values = stat(line['p0_us'], line['p50_us'], line['p99_us'],
                  line['samples'] * line['calls_per_sample'], 0, line['mismatches'])
    label = name_of(what) + (f' of {bytes_text(size)}' if size else '')
    return [sample(what, label, timed, line['ranks'], size, values)]


def from_maps(line):
    what, out = line['what'].partition('-')[2], []
    for name, title in (('maps', 'mappings'), ('descriptors', 'open descriptors')):
        count = line[f'{name}_after'] - line[f'{name}_before']
        out.append(sample(
            what, f'{title} more after {name_of(what)}s of {line["buffers"]} buffers of '
            f'{bytes_text(line["bytes"])}', name, line['ranks'], line['bytes'],
            stat(max(0, count), max(0, count), None, 1, 0, line['mismatches']), unit='count',
            parameters={'buffers': line['buffers']}))
    out.append(sample(what, f'{name_of(what)} in a fresh buffer of {bytes_text(line["bytes"])}, and its free',
                      'fresh', line['ranks'], line['bytes'],
                      stat(line['p0_us'], line['p50_us'], line['p99_us'], line['buffers'], 0,
                           line['mismatches']), parameters={'buffers': line['buffers']}))
    return out


def part_stat(part, wrong=0, **more):
    """Statistics of a part in overlap_bench or synthetic_bench."""
    return stat(part['p0_us'], part['us'], part['p99_us'], part['samples'], part['dropped'], wrong, **more)


def from_overlap(line, job):
    kind, _, what = line['what'].partition('-')
    core = {'cores': 'one'} if job.shares_core else {}
    where = f', {line["ranks"]} ranks on one core' if core else ''
    if kind == 'late':
        if not line['late']['samples']:
            return []
        delay = line['delay_us'] / 1000
        return [sample(what, f'{name_of(what)} of {bytes_text(line["bytes"])}, root {delay:g} ms late',
                       'late root', line['ranks'], line['bytes'],
                       part_stat(line['late'], line['mismatches']), parameters={'late_ms': delay})]
    if not all(line.get(p, {}).get('samples') for p in ('comm', 'comp', 'both')):
        return []
    parts = [(p, title, line[p]['us']) for p, title in
             (('call', 'the call'), ('comp', 'computation'),
              ('use', 'wait and use' if what in NONBLOCKING else 'until used'))
             if p in line]
    values = part_stat(line['both'], line['mismatches'], parts=parts,
                       overlap={p: line[p]['us'] for p in ('comm', 'comp', 'both')})
    who = {'computes': 'one'} if line['who'] == 'one' else {}
    return [sample(what, f'{name_of(what)} of {bytes_text(line["bytes"])} and as much computation'
                   + where + (', of the rank that waits for data' if who else ''),
                   'use', line['ranks'], line['bytes'], values, parameters={**core, **who})]


def from_synthetic(line, job):
    if not line['total']['samples']:
        return []
    order = round((line['bytes'] / 4) ** 0.5)
    parts = [(p, title, line[p]['us'] / 1000) for p, title in
             (('bcast_compute', 'Bcast + computation'), ('gather_init', 'Gather + initialisation'))]
    total = {k: v / 1000 if k.endswith('us') else v for k, v in line['total'].items()}
    return [sample('synthetic', f'{order} x {order}, {line["iterations"]} iterations', 'all',
                   line['ranks'], line['bytes'], part_stat(total, line['mismatches'], parts=parts),
                   unit='ms', parameters={'order': order, 'iterations': line['iterations']})]


def from_machine(line, job):
    values = stat(line['p0'], line['p50'], line.get('p99'), line['samples'])
    return [sample(line['what'], line['label'], line['timed'], line['movers'], line['bytes'] or None,
                   values, unit=line['unit'], better=line['better'])]


READERS = {'collective_bench': from_collective, 'overlap_bench': from_overlap,
           'synthetic_bench': from_synthetic, 'machine_bench': from_machine}


def samples(lines, job):
    """Returns the samples of one launch, and the names of results without an undisturbed sample."""
    found, lost = [], []
    for line in lines:
        if line['what'] in ('run', 'hello'):
            continue
        some = READERS[job.program](line, job)
        found += some
        if not some:
            lost.append(f'{line["what"]} of {bytes_text(line["bytes"])}')
    return found, lost
