# SPDX-License-Identifier: BSD-3-Clause
"""sluice.ko in a guest, for each kernel found: its rules, a slow, a faulty and a hanging device, random
kills, the conformance suite of engines, and two ranks of MPI. Emulation gives counts, never times.

Run alone: ./dev check kmod. Not part of ./dev check: it needs QEMU and a kernel (guest.py)."""
import json
import os
import pathlib
import re
import shlex
import shutil
import subprocess

import guest
import pytest

from mpi.test_early import C_PROGRAMS, EARLY, FOREIGN, GUARDS, KINDS
from support.behaviours import LINE, behaviours
from support.build import compile_once
from support.mpi import need
from support.options import spelled
from support.paths import BUILD, PROGRAMS, SLUICE

HERE = guest.ROOT / 'test/kmod'
UNIT = BUILD / 'dev/test/unit/unit_engine'
CLIENT = [HERE / 'client.c', HERE / 'client_habits.c']
HEADERS = [HERE / 'client.h', HERE / 'device.h', guest.ROOT / 'kernel/include/uapi/sluice_kmod.h']
KILLS = int(os.environ.get('KMOD_KILLS', '200'))
FIRST = int(os.environ.get('KMOD_FIRST', '0')) # seed of the first child: 10,000 may be killed in pieces
# a guest ends after 600 s and shows its console
pytestmark = [pytest.mark.complete, pytest.mark.alone, pytest.mark.timeout(900)]

try:
    VERSIONS = sorted(guest.kernels())
    guest.busybox()
    ABSENT = None
except guest.Missing as missing:
    VERSIONS, ABSENT = ['none'], f'{missing} is not installed'



def board_versions(machine):
    """Parameters of a test: each kernel with the reason why it cannot be tried."""
    try:
        return [(version, None) for version in guest.board_kernels(machine)]
    except guest.Missing as missing:
        return [('none', f'{missing} is not installed')]


PRELUDE = """
cd /tmp
step() { echo "BEGIN $1"; shift; timeout ${limit:-300} "$@" 2>&1; echo "RC $?"; }
# the module stays while somebody has it open
busy() { exec 3<>/dev/sluice; $busybox rmmod sluice 2>/dev/null; rc=$?; exec 3>&-; return $((rc == 0)); }
load() { $busybox insmod /tmp/modules/softdma.ko "$@"; $busybox insmod /tmp/modules/sluice.ko $sluice; }
alone() { $busybox insmod /tmp/modules/sluice.ko $sluice; }
gone() { echo "UNLOADED $(ls /dev/sluice 2>/dev/null)"; }
unload_alone() { scan; $busybox rmmod sluice; gone; }
unload() { scan; $busybox rmmod sluice; $busybox rmmod softdma; gone; }
stat() { step stat /tmp/tests/client stat; }
habit() { echo "$2" > /sys/module/softdma/parameters/$1; }
leaks=/sys/kernel/debug/kmemleak
# while the module is there, as the kernel forgets its names; an object must be older than 5 s
scan() {
	[ -e $leaks ] || return
	sleep 6; echo scan > $leaks; sleep 1; echo scan > $leaks
	grep -e '[[]sluice[]]' -e '[[]softdma[]]' $leaks >> /tmp/leaked
}
dirt() { echo BEGIN dmesg; dmesg | grep -E "$bad"; [ ! -e $leaks ] || cat /tmp/leaked; }
faults='WARN|BUG|Oops|stack-protector|blocked for more|refcount|Bad page|general protection|INFO: trying'
faults="$faults|Unable to handle|bcm2835-dma" # its driver writes nothing but complaints
faults="$faults|Channel .* has errors" # zynqmp_dma's
bad="$faults|Call [Tt]race"
# debug_kernel.sh: every call with each of its allocations and copies refused in turn
fail() {
	[ -e /proc/self/fail-nth ] || return
	for kind in failslab fail_page_alloc; do echo N > /sys/kernel/debug/$kind/ignore-gfp-wait; done
	for kind in failslab fail_page_alloc fail_usercopy; do echo 1 > /sys/kernel/debug/$kind/verbose; done
	bad=$faults # the kernel shows a trace of some refused pages
	step fails /tmp/tests/client fails
}
"""


def script(*lines, busybox=None):
    box = shlex.quote(str(busybox or guest.busybox()))
    return PRELUDE + f'busybox={box}\n' + '\n'.join(lines) + '\ndirt\n'


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
                        CLIENT, headers=HEADERS)


@pytest.fixture(name='goal', scope='session')
def fixture_goal():
    src = guest.ROOT / 'src'
    inputs = [HERE / 'goal.c', src / 'goal/build.c', src / 'goal/verify.c',
              *sorted((src / 'goal/gen').glob('*.c'))]
    flags = ['-static', '-O1', '-g', '-Wall', '-Wextra', f'-I{src}']
    return compile_once(PROGRAMS / 'kmod/goal', 'cc', flags, inputs, headers=HEADERS)


def test_rules_and_habits_of_devices(version, client):
    """Rules of the interface on a plain device, on one that works in the opposite order and refuses now and
    then, and on one that needs alignment and reports nothing, with one page an item."""
    console = guest.run(version, script(
        'load', 'echo BEGIN busy; busy; echo RC $?', 'step rules /tmp/tests/client rules',
        'habit null_every 5', 'habit reorder Y',
        'step rules /tmp/tests/client rules', 'stat', 'unload',
        'sluice=pages_per_item=1; load align=6 silent=Y', 'step rules /tmp/tests/client rules', 'stat',
        'unload'), [client])
    counts = check(console, ['busy', 'rules', 'rules', 'stat', 'rules', 'stat'])
    assert counts[1]['cpu_bytes'] > 0
    assert console.count('UNLOADED \n') == 2, console[-3000:]


def test_cancelling_and_a_device_that_hangs(version, client):
    """A slow device gives back what it has not begun; one that hangs is stopped, and works again."""
    console = guest.run(version, script(
        'load', 'habit delay_us 20000', 'step cancel /tmp/tests/client cancel', 'habit delay_us 0',
        'habit hang_every 3', 'step hang /tmp/tests/client hang', 'habit hang_every 0',
        'step rules /tmp/tests/client rules', 'stat', 'unload'), [client])
    counts = check(console, ['cancel', 'hang', 'rules', 'stat'])
    assert counts[0]['cancelled'] > 0
    assert console.count('UNLOADED \n') == 1, console[-3000:]


def test_more_habits_of_devices(version, client):
    """A device that takes nothing while it works, and is slow; one that holds few descriptors, shared with
    the kernel's own users; one that cannot be stopped, which ends its copies after its process was killed."""
    console = guest.run(version, script(
        'load lazy=Y mb_s=2000', 'step rules /tmp/tests/client rules', 'stat', 'unload',
        'load room=2 shared=Y', 'step rules /tmp/tests/client rules', 'stat', 'unload',
        'load no_terminate=Y', 'habit hang_every 1', 'step stuck /tmp/tests/client stuck',
        'step rules /tmp/tests/client rules', 'stat', 'unload'), [client])
    counts = check(console, ['rules', 'stat', 'rules', 'stat', 'stuck', 'rules', 'stat'])
    assert all(one['dma_bytes'] > 0 for one in counts)
    assert console.count('UNLOADED \n') == 3, console[-3000:]


def test_two_numa_nodes(version, client):
    """A device of node 1, and a pool of workers a node, which copy to their own node's memory first."""
    if not guest.has_host_files(version):
        pytest.skip('this kernel knows no NUMA')
    console = guest.run(version, script(
        'load node=1', 'step device /tmp/tests/client nodes',
        f'step info env SLUICE_ENGINE=kmod {SLUICE} info', 'stat', 'unload',
        'sluice=workers=2; alone', 'step pools /tmp/tests/client nodes',
        'step rules /tmp/tests/client rules', f'step random /tmp/tests/client random {KILLS // 4}', 'stat',
        'unload_alone'), [client], nodes=2)
    check(console, ['device', 'info', 'stat', 'pools', 'rules', 'random', 'stat'])
    by_name = {name: out for name, out, _ in steps(console)}
    assert 'CLIENT nodes: 1 1\n' in by_name['device'] and 'CLIENT nodes: 0 1\n' in by_name['pools'], console
    assert re.search(r'node 1:.*kmod 2', by_name['info']), by_name['info']


def test_dkms_builds_it_from_its_own_tree(version, tmp_path):
    if not shutil.which('dkms'):
        pytest.skip('dkms is not installed')
    tree = tmp_path / 'source/sluice-0.1'
    headers = guest.installed_headers(guest.kernels()[version][1], tmp_path / 'headers')
    subprocess.run(['make', '-s', '-C', guest.ROOT / 'kernel', 'dkms-tree', f'DKMS_TREE={tree}'], check=True)
    where = ['--sourcetree', tmp_path / 'source', '--dkmstree', tmp_path / 'dkms']
    (tmp_path / 'dkms').mkdir()
    for verb in (['add'], ['build', '-k', version, '--kernelsourcedir', headers]):
        done = subprocess.run(['dkms', *verb, 'sluice/0.1', *where], capture_output=True, text=True)
        assert done.returncode == 0, done.stdout + done.stderr
    assert list((tmp_path / 'dkms').rglob('sluice.ko*'))


def test_compiles_for_newer_kernels():
    """Folders of KMOD_NEWER, into which a later Debian's linux-headers-* and linux-kbuild-* were unpacked."""
    found = [h for folder in os.environ.get('KMOD_NEWER', '').split(':') if folder
             for h in sorted(pathlib.Path(folder).glob('usr/src/linux-headers-*-amd64'))]
    if not found:
        pytest.skip('KMOD_NEWER names no headers')
    for headers in found:
        guest.compile_newer(headers)
        print(f'{headers.name}: compiled and linked')


def test_schedules_end_in_the_kernel_while_all_ranks_compute(version, client, goal):
    """GOAL programs of 2, 3 and 8 ranks without any DMA channel, what RUN refuses, and damaged blocks."""
    run = '/tmp/tests/goal'
    ranks = [2, 3, 8]
    console = guest.run(version, script(
        'alone', *[f'step of{n} {run} collectives {n}' for n in ranks], 'stat', f'step refuses {run} refuses',
        f'step random {run} random {KILLS // 4}', 'stat', 'unload_alone'), [client, goal])
    counts = check(console, ['of2', 'of3', 'of8', 'stat', 'refuses', 'random', 'stat'])
    assert counts[0]['runs'] == 30 * sum(ranks) and counts[0]['messages'] > counts[0]['runs']
    assert console.count('UNLOADED \n') == 1, console[-3000:]


def test_workers_copy_where_no_dma_channel_is_there(version, client):
    """On-load workers: the rules of the interface without a device; off by default; devices come first."""
    console = guest.run(version, script(
        'sluice=workers=3; alone', 'step rules /tmp/tests/client rules',
        'step cancel /tmp/tests/client cancel',
        f'step random /tmp/tests/client random {KILLS // 4}', 'stat', 'unload_alone',
        'sluice=workers=2; load', 'step rules /tmp/tests/client rules', 'stat', 'unload',
        'sluice=; alone', 'step none /tmp/tests/client none', 'unload_alone'), [client])
    counts = check(console, ['rules', 'cancel', 'random', 'stat', 'rules', 'stat', 'none'])
    assert counts[0]['onload_bytes'] > 0 and counts[0]['descriptors'] == 0
    assert counts[1]['onload_bytes'] == 0 and counts[1]['descriptors'] > 0


def test_refused_allocations(version, client):
    """Only on a kernel with fault injection: a call whose n-th allocation, or copy from or to the program,
    is refused fails with the reason and leaves nothing behind."""
    if guest.has_host_files(version):
        pytest.skip('this kernel has no fault injection; test/kmod/debug_kernel.sh builds one')
    console = guest.run(version, script('load', 'fail', 'step rules /tmp/tests/client rules', 'stat',
                                        'unload'), [client])
    check(console, ['fails', 'rules', 'stat'])


def test_bounce_buffers(version, client):
    console = guest.run(version, script('load', 'step rules /tmp/tests/client rules', 'stat', 'unload'),
                        [client], append='swiotlb=force')
    check(console, ['rules', 'stat'])


@pytest.mark.timeout(900 + KILLS)
def test_random_kills_leave_no_page_pinned(version, client):
    disjoint = '' if guest.has_host_files(version) else 'disjoint' # the kernel of debug_kernel.sh
    console = guest.run(version, script(
        f'limit={300 + KILLS}; load', 'habit reorder Y', 'habit error_every 7',
        f'step random /tmp/tests/client random {KILLS} {FIRST} {disjoint}', 'stat', 'unload'), [client],
                        seconds=600 + KILLS)
    counts = check(console, ['random', 'stat'])
    assert counts[0]['pins'] > 0 and counts[0]['stale'] > 0


def check_board(version, driver, between=':'):
    """Another processor, and a device with a driver that nobody here wrote. between: a command."""
    client = compile_once(PROGRAMS / 'kmod/arm64/client', guest.CROSS_CC,
                          ['-static', '-O1', '-g', '-Wall', '-Wextra'], CLIENT, headers=HEADERS)
    console = guest.run(version, script(
        'alone', 'echo BEGIN busy; busy; echo RC $?', 'step rules /tmp/tests/client rules', 'stat',
        'step cancel /tmp/tests/client cancel', 'stat',
        f'step random /tmp/tests/client random {KILLS // 8}', 'stat',
        f'sluice="pages_per_item=1 driver={driver}"; unload_alone; {between}; alone',
        'step rules /tmp/tests/client rules', 'stat', 'unload_alone',
        'sluice=driver=softdma; alone', 'step none /tmp/tests/client none', 'unload_alone',
        busybox='/bin/busybox'), [client])
    counts = check(console, ['busy', 'rules', 'stat', 'cancel', 'stat', 'random', 'stat', 'rules', 'stat',
                             'none'])
    assert counts[0]['dma_bytes'] > counts[0]['cpu_bytes'] > 0
    assert counts[1]['cancelled'] > 0 and counts[2]['stale'] > counts[1]['stale']
    assert console.count('UNLOADED \n') == 3, console[-3000:]


@pytest.mark.parametrize('version, absent', board_versions(guest.RASPI))
def test_driver_of_a_raspberry_pi(version, absent):
    if absent:
        pytest.skip(absent)
    check_board(version, 'bcm2835-dma')


@pytest.mark.parametrize('version, absent', board_versions(guest.ZCU102))
def test_driver_of_a_zcu102(version, absent):
    """A device that is not coherent with the caches, then one that is; each starts up to 32 descriptors
    together."""
    if absent:
        pytest.skip(absent)
    driver = 'xilinx-zynqmp-dma'
    check_board(version, driver, f'echo fd500000.dma > /sys/bus/platform/drivers/{driver}/unbind')


def need_host_files(version):
    if not guest.has_host_files(version):
        pytest.skip('this kernel has no 9p')


def mpi_step(mpi, program, name, ranks, **options):
    """A step that runs a program of MPI, and its counters. Every call returns early."""
    env = {**mpi.own_env, 'LD_LIBRARY_PATH': str(mpi.libdir), 'PATH': f'{mpi.bindir}:/usr/bin:/bin',
           'SLUICE_ENGINE': 'kmod',
           'SLUICE_WORKER_KIND': 'thread', 'SLUICE_EARLY': 'on', 'SLUICE_EARLY_MIN': '1',
           'SLUICE_REGION_ADOPT_AFTER': '1', 'SLUICE_DECIDE': 'table', 'SLUICE_COLL_THRESHOLD': '1',
           'SLUICE_STATS': f'/tmp/stats-{name}', 'XDG_CONFIG_HOME': '/nonexistent', 'HYDRA_IFACE': 'lo',
           **options}
    words = ' '.join(f'{k}={shlex.quote(v)}' for k, v in env.items())
    launcher = '-launcher fork -hosts localhost' if mpi.abi == 'mpich' else ''
    start = f'{mpi.mpiexec} {launcher} -n {ranks} {SLUICE} run {program}'
    return f'step {name} env {words} {start}; step stats-{name} cat $(ls /tmp/stats-{name}*)'


@pytest.mark.parametrize('append', ['', 'swiotlb=force'])
def test_engine_suite_and_two_ranks(version, client, append):
    """The engine kmod of Sluice over the real module: its own suite, `sluice info`, and two MPIs; also where
    every copy goes through bounce buffers."""
    need_host_files(version)
    hosts = [need('mpich'), need('openmpi')]
    programs = [mpi.build(HERE / 'bcast.c', name='kmod-bcast') for mpi in hosts]
    console = guest.run(version, script(
        'load', f'step info env SLUICE_ENGINE=kmod {SLUICE} info', 'stat',
        f'step unit env UNIT_ENGINE_ONLY=kmod {UNIT} engine_', 'stat',
        *[line for mpi, program in zip(hosts, programs)
          for line in (mpi_step(mpi, program, mpi.name, 2), 'stat')], 'unload'), [client],
                        append=append)
    counts = check(console, ['info', 'stat', 'unit', 'stat', 'mpich', 'stats-mpich', 'stat', 'openmpi',
                             'stats-openmpi', 'stat'])
    by_name = {name: out for name, out, _ in steps(console)}
    assert re.search(r'kmod +yes', by_name['info']), by_name['info']
    assert ' 0 failed' in by_name['unit'], by_name['unit']
    for i, mpi in enumerate(hosts, 1):
        assert 'BCAST 0 wrong bytes' in by_name[mpi.name], by_name[mpi.name]
        assert counts[i + 1]['dma_bytes'] > counts[i]['dma_bytes'], by_name[f'stats-{mpi.name}']


def test_info_gives_one_reason_for_each_step_that_failed(version, client):
    need_host_files(version)
    user = 'setpriv --reuid 65534 --regid 65534 --clear-groups env HOME=/tmp SLUICE_ENGINE=kmod'
    info = f'{user} {SLUICE} info'
    root_info = f'env SLUICE_ENGINE=kmod {SLUICE} info'
    console = guest.run(version, script(
        f'step unloaded {info}', 'alone', f'step no-channel {root_info}', 'unload_alone', 'load',
        f'step denied {info}', 'chmod 666 /dev/sluice',
        f'step memlock bash -c "ulimit -l 4; {info}"', f'step works {info}', 'mv /dev/sluice /dev/moved',
        f'step container {info}', 'mv /dev/moved /dev/sluice', 'stat', 'unload'), [client])
    reasons = {'unloaded': 'there is no /dev/sluice: the module sluice is not loaded',
               'no-channel': 'the kernel has no free DMA channel that copies memory',
               'denied': '/dev/sluice cannot be opened: Permission denied (a udev rule gives access)',
               'memlock': 'a copy of a page failed: Cannot allocate memory '
                          '(pinned pages count against ulimit -l)',
               'container': 'there is no /dev/sluice: the module sluice is loaded, but a container needs '
                            'the device, too'}
    check(console, [*list(reasons)[:4], 'works', 'container', 'stat'])
    for name, out, _ in steps(console):
        wanted = f'kmod +no .*\n +{re.escape(reasons[name])}\n' if name in reasons else 'kmod +yes'
        assert name == 'stat' or re.search(wanted, out), f'{name}: {out}'


def test_figures_of_the_benchmark(version, client):
    """bench/run kmod: its JSON, and what it says without the module."""
    need_host_files(version)
    bench = f'{guest.ROOT}/bench/run kmod --quick --ranks 1,2 --json /tmp/figures.json'
    console = guest.run(version, script(
        f'step absent bash -c "! {bench}"', 'load', f'step bench {bench}', 'echo BEGIN json; '
        f'cat /tmp/figures.json; echo RC $?', 'stat', 'unload'), [client])
    check(console, ['absent', 'bench', 'json', 'stat'])
    by_name = {name: out for name, out, _ in steps(console)}
    assert by_name['absent'] == ('bench: kmod: found: there is no /dev/sluice: the module sluice is not '
                                 'loaded\n')
    figures = json.loads(by_name['json'])
    assert figures['is_model'] and figures['check']['engine'] == 'kmod', figures
    assert {r['what'] for r in figures['records']} == {'tables', 'copy', 'ranks'}, figures
    assert 'THIS IS A MODEL' in by_name['bench'] and 'Traceback' not in by_name['bench'], by_name['bench']


@pytest.mark.parametrize('guard', GUARDS)
@pytest.mark.parametrize('program', C_PROGRAMS)
def test_early_return_is_never_seen(version, client, program, guard):
    """The programs of test/mpi/test_early.py, with copies by the module, on a device that takes a
    millisecond a descriptor, so that buffers are still guarded when they are touched."""
    need_host_files(version)
    mpi = need('mpich')
    names = [name for name, ranks in behaviours(program) if ranks <= 2]
    env = spelled({**EARLY, 'SLUICE_GUARD_KIND': guard, 'HARNESS_FOREIGN': FOREIGN[guard],
                   'HARNESS_TRIALS': '3', **(KINDS if program == 'early_kinds.c' else {})})
    console = guest.run(version, script(
        'load', 'habit delay_us 1000', 'stat',
        mpi_step(mpi, f'{mpi.build(program)} {" ".join(names)}', 'early', 2, **env), 'stat', 'unload'),
                        [client])
    counts = check(console, ['stat', 'early', 'stats-early', 'stat'])
    out = {name: out for name, out, _ in steps(console)}['early']
    told = [(kind, name) for kind, name, _ in LINE.findall(out) if kind in ('ok', 'fail', 'skip')]
    assert sorted(name for _, name in told) == sorted(names), out
    assert {kind for kind, _ in told} in ({'ok'}, {'ok', 'skip'}), out
    assert counts[-1]['copies'] > counts[0]['copies'], counts


def per_mib(before, after):
    """Counts of what happened between two statistics, and how many a MiB that the device copied."""
    one = {k: after[k] - before[k] for k in after}
    mib = max(one['dma_bytes'] / 2**20, 1)
    counts = [f'{k} {one[k]} ({one[k] / mib:.1f} a MiB)'
              for k in ('pins', 'descriptors', 'callbacks', 'enters', 'copies')]
    print(f'SHAPE {mib:.0f} MiB by the device', *counts, f"{one['cancelled']} copies came back", sep=', ')
    return one


@pytest.mark.parametrize('ranks', [2, 4])
def test_shapes_of_the_paper(version, client, ranks):
    """Broadcast, gather and allgather, without and with the engine, one page an item; then on a device so
    slow that the program touches what is still on its way, and takes back what the device has not begun."""
    need_host_files(version)
    mpi = need('mpich')
    program = mpi.build(HERE / 'bcast.c', name='kmod-bcast')
    console = guest.run(version, script(
        'sluice=pages_per_item=1; load', 'stat',
        mpi_step(mpi, program, 'without', ranks, SLUICE_ENGINE='none'), 'stat',
        mpi_step(mpi, program, 'with', ranks), 'stat', 'habit delay_us 1000',
        mpi_step(mpi, program, 'slow', ranks), 'stat', 'unload'), [client])
    counts = check(console, ['stat', 'without', 'stats-without', 'stat', 'with', 'stats-with', 'stat', 'slow',
                             'stats-slow', 'stat'])
    for name, out, _ in steps(console):
        assert name not in ('without', 'with', 'slow') or 'BCAST 0 wrong bytes' in out, out
    plain, fast, slow = [per_mib(counts[i], counts[i + 1]) for i in range(3)]
    assert plain['copies'] == 0
    assert fast['descriptors'] * 4096 >= fast['dma_bytes'] > 0
    assert slow['cancelled'] > 0


def test_ranks_do_not_switch_where_programs_cannot_set_fs(version, client):
    """Not the module's: the guest is the only kernel without FSGSBASE here. The ranks still share an address
    space, and the job says in one line that the kernel schedules them."""
    need_host_files(version)
    mpi = need('mpich')
    console = guest.run(version, script(
        mpi_step(mpi, f'{mpi.build("endpoints.c")} messages own_globals processes', 'ranks', 2,
                 SLUICE_ENGINE='auto', SLUICE_ENDPOINTS='2', SLUICE_ENDPOINTS_SWITCH='user'),
        f'step info {SLUICE} info'), [client], append='nofsgsbase')
    out = {name: out for name, out, rc in steps(console) if rc == 0}
    assert all(f'ok {name}\n' in out['ranks'] for name in ('messages', 'own_globals', 'processes')), console
    parents = re.findall(r'parent (\d+)', out['ranks'])
    assert len(parents) == 2 and len(set(parents)) == 1, console
    reason = 'this kernel does not let programs set FS'
    assert out['ranks'].count(f'ranks do not switch: {reason}') == 1 and reason in out['info'], console
