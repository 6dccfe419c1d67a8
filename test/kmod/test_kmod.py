# SPDX-License-Identifier: BSD-3-Clause
"""sluice.ko in a guest, for each kernel found: its rules, a slow, a faulty and a hanging device, random
kills, the conformance suite of engines, and two ranks of MPI. Emulation gives counts, never times.

Run alone: ./dev check kmod. Not part of ./dev check: it needs QEMU and a kernel (guest.py)."""
import os
import re
import shlex

import guest
import pytest

from support.build import compile_once
from support.mpi import need
from support.paths import BUILD, PROGRAMS, SLUICE

HERE = guest.ROOT / 'test/kmod'
UNIT = BUILD / 'dev/test/unit/unit_engine'
KILLS = int(os.environ.get('KMOD_KILLS', '200'))
pytestmark = [pytest.mark.complete, pytest.mark.alone]

try:
    VERSIONS = sorted(guest.kernels())
    guest.busybox()
    ABSENT = None
except guest.Missing as missing:
    VERSIONS, ABSENT = ['none'], f'{missing} is not installed'

PRELUDE = """
cd /tmp
step() { echo "BEGIN $1"; shift; timeout 300 "$@" 2>&1; echo "RC $?"; }
load() { $busybox insmod /tmp/modules/softdma.ko "$@"; $busybox insmod /tmp/modules/sluice.ko $sluice; }
unload() { $busybox rmmod sluice; $busybox rmmod softdma; echo "UNLOADED $(ls /dev/sluice 2>/dev/null)"; }
stat() { step stat /tmp/tests/client stat; }
habit() { echo "$2" > /sys/module/softdma/parameters/$1; }
dirt() { echo BEGIN dmesg; dmesg | grep -E "$bad"; }
bad='WARN|BUG|Oops|stack-protector|blocked for more|refcount|Bad page|general protection'
"""


def script(*lines):
    return PRELUDE + f'busybox={shlex.quote(str(guest.busybox()))}\n' + '\n'.join(lines) + '\ndirt\n'


def steps(console):
    """Returns [(name, output, status)]; the console comes along in each message."""
    found = re.findall(r'BEGIN (\S+)\n(.*?)RC (\d+)', console, re.S)
    return [(name, out, int(rc)) for name, out, rc in found]


def check(console, wanted):
    done = steps(console)
    assert [name for name, _, _ in done] == wanted, console[-6000:]
    for name, out, rc in done:
        assert rc == 0, f'{name}: {out[-3000:]}'
    assert 'GUEST ended' in console, console[-3000:]
    dirty = console.split('BEGIN dmesg\n')[1].split('GUEST ended')[0].strip()
    assert not dirty, console[-6000:]
    counts = [dict((k, int(v)) for k, v in re.findall(r'(\w+)=(\d+)', line))
              for line in re.findall(r'STAT (.*)', console)]
    for one in counts:
        assert one['pins'] == one['unpins'] and one['descriptors'] >= one['callbacks'], counts
        print(' '.join(f'{k}={v}' for k, v in one.items()))
    for line in re.findall(r'(?:CLIENT|BCAST|\d+ ok,).*', console):
        print(line)
    return counts


@pytest.fixture(name='version', params=VERSIONS)
def fixture_version(request):
    if ABSENT:
        pytest.skip(ABSENT)
    return request.param


@pytest.fixture(name='client', scope='session')
def fixture_client():
    return compile_once(PROGRAMS / 'kmod/client', 'cc', ['-static', '-O1', '-g', '-Wall', '-Wextra'],
                        [HERE / 'client.c'], headers=[guest.ROOT / 'kernel/include/uapi/sluice_kmod.h'])


def test_rules_and_habits_of_devices(version, client):
    """Rules of the interface on a plain device, on one that works in the opposite order and refuses now and
    then, on one that needs alignment and reports nothing, with one page an item; then a slow and a hanging
    device, and a plain one again."""
    console = guest.run(version, script(
        'load', 'step rules /tmp/tests/client rules', 'habit null_every 5', 'habit reorder Y',
        'step rules /tmp/tests/client rules', 'stat', 'unload',
        'sluice=pages_per_item=1; load align=6 silent=Y', 'step rules /tmp/tests/client rules', 'stat',
        'unload',
        'sluice=; load', 'habit delay_us 20000', 'step cancel /tmp/tests/client cancel', 'habit delay_us 0',
        'habit hang_every 3', 'step hang /tmp/tests/client hang', 'habit hang_every 0',
        'step rules /tmp/tests/client rules', 'stat', 'unload'), [client])
    counts = check(console, ['rules', 'rules', 'stat', 'rules', 'stat', 'cancel', 'hang', 'rules', 'stat'])
    assert counts[1]['cpu_bytes'] > 0 and counts[2]['cancelled'] > 0
    assert console.count('UNLOADED \n') == 3, console[-3000:]


def test_bounce_buffers(version, client):
    console = guest.run(version, script('load', 'step rules /tmp/tests/client rules', 'stat', 'unload'),
                        [client], append='swiotlb=force')
    check(console, ['rules', 'stat'])


def test_random_kills_leave_no_page_pinned(version, client):
    console = guest.run(version, script(
        'load', 'habit reorder Y', 'habit error_every 7', f'step random /tmp/tests/client random {KILLS}',
        'stat', 'unload'), [client])
    counts = check(console, ['random', 'stat'])
    assert counts[0]['pins'] > 0 and counts[0]['stale'] > 0


def test_engine_suite_and_two_ranks(version, client):
    """The engine kmod of Sluice over the real module: its own suite, `sluice info`, and MPI."""
    mpi = need('mpich')
    program = mpi.build(HERE / 'bcast.c', name='kmod-bcast')
    env = {**mpi.own_env, 'LD_LIBRARY_PATH': str(mpi.libdir), 'SLUICE_ENGINE': 'kmod',
           'SLUICE_WORKER_KIND': 'thread', 'SLUICE_EARLY': 'on', 'SLUICE_EARLY_MIN': '1',
           'SLUICE_REGION_ADOPT_AFTER': '1', 'SLUICE_DECIDE': 'table', 'SLUICE_COLL_THRESHOLD': '1',
           'SLUICE_STATS': '/tmp/stats', 'XDG_CONFIG_HOME': '/nonexistent', 'HYDRA_IFACE': 'lo'}
    words = ' '.join(f'{k}={shlex.quote(v)}' for k, v in env.items())
    console = guest.run(version, script(
        'load', f'step info env SLUICE_ENGINE=kmod {SLUICE} info', 'stat',
        f'step unit env UNIT_ENGINE_ONLY=kmod {UNIT} engine_', 'stat',
        f'step bcast env {words} {mpi.mpiexec} -launcher fork -hosts localhost -n 2 {SLUICE} run {program}',
        'step stats cat $(ls /tmp/stats*)', 'stat', 'unload'), [client])
    counts = check(console, ['info', 'stat', 'unit', 'stat', 'bcast', 'stats', 'stat'])
    by_name = {name: out for name, out, _ in steps(console)}
    assert re.search(r'kmod +yes', by_name['info']), by_name['info']
    assert ' 0 failed' in by_name['unit'], by_name['unit']
    assert 'BCAST 0 wrong bytes' in by_name['bcast'], by_name['bcast']
    assert counts[2]['dma_bytes'] > counts[1]['dma_bytes'], by_name['stats']
