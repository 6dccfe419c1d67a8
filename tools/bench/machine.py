# SPDX-License-Identifier: BSD-3-Clause
"""The measured machine, and its load by other programs."""
import os
import resource
from pathlib import Path

SETTINGS = (
    ('transparent huge pages', '/sys/kernel/mm/transparent_hugepage/enabled'),
    ('huge pages of shared memory', '/sys/kernel/mm/transparent_hugepage/shmem_enabled'),
    ('CPU governor', '/sys/devices/system/cpu/cpu0/cpufreq/scaling_governor'),
    ('turbo off', '/sys/devices/system/cpu/intel_pstate/no_turbo'),
    ('SMT', '/sys/devices/system/cpu/smt/control'),
    ('NUMA balancing', '/proc/sys/kernel/numa_balancing'),
    ('clock', '/sys/devices/system/clocksource/clocksource0/current_clocksource'),
)
OTHERS_MOST, STEAL_MOST = 5.0, 2.0  # percent of the CPU time


def setting(path):
    try:
        text = Path(path).read_text(encoding='ascii').strip()
    except OSError:
        return None
    if '[' in text:  # for example: always [madvise] never
        return text[text.index('[') + 1:text.index(']')]
    return text


class Watch:
    """CPU time of the machine and of the launches since its creation."""

    def __init__(self):
        self.load = os.getloadavg()[0]
        self.began = self.ticks()

    @staticmethod
    def ticks():
        """Returns seconds: busy, stolen, total and own CPU time."""
        with open('/proc/stat', encoding='ascii') as f:
            user, nice, system, idle, wait, irq, soft, steal = map(int, f.readline().split()[1:9])
        own = sum(u.ru_utime + u.ru_stime for u in map(resource.getrusage,
                                                       (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN)))
        hz = os.sysconf('SC_CLK_TCK')
        busy = user + nice + system + irq + soft
        return busy / hz, steal / hz, (busy + steal + idle + wait) / hz, own

    def report(self):
        busy, steal, whole, own = (b - a for a, b in zip(self.began, self.ticks()))
        known = whole > 0
        return {
            'before': round(self.load, 2), 'after': round(os.getloadavg()[0], 2),
            'others_percent': round(100 * max(0, busy - own) / whole, 1) if known else None,
            'steal_percent': round(100 * steal / whole, 1) if known else None,
        }


def disturbed(load):
    """Returns a sentence when other programs used the cores, else None."""
    said = []
    if (load['others_percent'] or 0) > OTHERS_MOST:
        said.append(f'other programs used {load["others_percent"]:.0f} % of the CPUs')
    if (load['steal_percent'] or 0) > STEAL_MOST:
        said.append(f'the hypervisor took {load["steal_percent"]:.0f} %')
    return ' and '.join(said) if said else None


def describe(info, watch):
    m = info['machine']
    load = watch.report()
    return {
        'name': os.uname().nodename, 'cpu': m['cpu'] or '', 'arch': os.uname().machine,
        'kernel': os.uname().release, 'packages': m['packages'], 'numa_nodes': m['numa_nodes'],
        'cores': m['cores'], 'threads': m['pus'], 'allowed': m['allowed'] or '',
        'memory_bytes': m['memory_bytes'],
        'caches': [{'name': c['name'], 'count': c['count'], 'threads': c['pus'], 'bytes': c['bytes']}
                   for c in m['caches']],
        'settings': {name: text for name, path in SETTINGS if (text := setting(path)) is not None},
        'load': load, 'disturbed': disturbed(load),
    }


def sluice(info):
    return {
        'version': info['version'],
        'options': [{k: str(o[k]) for k in ('name', 'value', 'default', 'source')}
                    for o in info['options']],
        'trials': [{'name': t['name'], 'works': t['works'],
                    'text': (t.get('note') if t['works'] else t['reason']) or t['what']}
                   for t in info['trials']],
    }
