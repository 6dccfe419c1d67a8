# SPDX-License-Identifier: BSD-3-Clause
"""A guest under QEMU in software emulation: a stock Debian kernel, this machine's files read-only, a /tmp
of its own.

Nothing of the kernel has to be installed here: KMOD_KERNELS names a folder into which Debian's packages
linux-image-*, linux-headers-*, linux-kbuild-* and busybox-static were unpacked (dpkg -x)."""
import gzip
import lzma
import os
import pathlib
import re
import shutil
import subprocess

from support.paths import BUILD, ROOT

NEEDED = ('virtio_pci', '9pnet_virtio', '9p')
INIT = """#!/bin/busybox sh
/bin/busybox mkdir -p /proc /sys /dev /host
/bin/busybox mount -t proc proc /proc
/bin/busybox mount -t sysfs sys /sys
/bin/busybox mount -t devtmpfs dev /dev
/bin/busybox ip link set lo up
for m in $(/bin/busybox cat /modules/order); do /bin/busybox insmod /modules/$m || echo "GUEST no $m"; done
/bin/busybox mount -t 9p -o trans=virtio,version=9p2000.L,ro,cache=loose,msize=512000 host /host
for d in dev proc sys; do /bin/busybox mount --rbind /$d /host/$d; done
/bin/busybox mount -t tmpfs tmp /host/tmp
/bin/busybox mkdir -p /host/dev/shm
/bin/busybox mount -t tmpfs shm /host/dev/shm
/bin/busybox cp -r /modules /tests /host/tmp
/bin/busybox chroot /host /bin/bash /tmp/tests/run.sh
echo "GUEST ended $?"
/bin/busybox poweroff -f
"""
# For a kernel without 9p (debug_kernel.sh): there is nothing but busybox and the tests.
SMALL_INIT = """#!/bin/busybox sh
/bin/busybox mkdir -p /proc /sys /dev /tmp
/bin/busybox mount -t proc proc /proc
/bin/busybox mount -t sysfs sys /sys
/bin/busybox mount -t devtmpfs dev /dev
/bin/busybox mount -t debugfs debug /sys/kernel/debug
/bin/busybox --install -s /bin
export PATH=/bin
ln -s /tests /modules /tmp
sh /tests/run.sh
echo "GUEST ended $?"
poweroff -f
"""


class Missing(Exception):
    """A package that a guest needs is not there."""


def roots():
    return [pathlib.Path(p) for p in (os.environ.get('KMOD_KERNELS'), '/') if p]


def busybox():
    for path in [r / 'bin/busybox' for r in roots()]:
        if path.exists() and b'/lib64/ld-linux' not in path.read_bytes():
            return path
    raise Missing('busybox-static')


def kernels():
    """Returns {version: (root, headers)} of the kernels with image, modules and headers."""
    if not shutil.which('qemu-system-x86_64'):
        raise Missing('qemu-system-x86')
    found = {}
    for root in roots():
        for image in sorted(root.glob('boot/vmlinuz-*')):
            version = image.name.split('-', 1)[1]
            headers = [h for h in (pathlib.Path(f'/usr/src/linux-headers-{version}'),
                                   pathlib.Path(f'/lib/modules/{version}/build'),
                                   root / f'lib/modules/{version}/build') if h.exists()]
            if headers and (root / f'lib/modules/{version}/kernel').exists():
                found.setdefault(version, (root, headers[0]))
    if not found:
        raise Missing('linux-image-amd64 with linux-headers-amd64')
    return found


def build_modules(version, headers):
    """Compiles kernel/ for a kernel, in a copy. Returns the folder."""
    folder = BUILD / 'kmod' / version / 'kernel'
    sources = [p for part in ('kernel', 'src/goal') for p in (ROOT / part).rglob('*') if p.is_file()]
    for source in sources:
        to = folder.parent / source.relative_to(ROOT)
        to.parent.mkdir(parents=True, exist_ok=True)
        if not to.exists() or to.read_bytes() != source.read_bytes():
            shutil.copyfile(source, to)
    make = ['make', '-s', '-C', str(folder), f'KDIR={headers}', 'SOFTDMA=1', 'W=1', 'modules']
    done = subprocess.run(make, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    assert 'warning' not in done.stderr, done.stderr
    return folder


def read_module(path):
    data = path.read_bytes()
    return lzma.decompress(data) if path.suffix == '.xz' else data


def with_dependencies(tree, names):
    """Returns [(name, bytes)] in the order of loading."""
    files = {p.name.split('.')[0].replace('-', '_'): p for p in tree.rglob('*.ko*')}
    order = []

    def add(name):
        if name not in files or name in [n for n, _ in order]:
            return  # built in
        data = read_module(files[name])
        for needed in re.search(rb'\0depends=([^\0]*)\0', b'\0' + data).group(1).decode().split(','):
            add(needed.replace('-', '_'))
        order.append((name, data))

    for name in names:
        add(name)
    return order


def has_host_files(version):
    """Can the guest see this machine's files? (The debugging kernel cannot.)"""
    return bool(list((kernels()[version][0] / f'lib/modules/{version}/kernel').rglob('9p.ko*')))


def cpio(files):
    """Packs {path: (mode, bytes)} as an initramfs."""
    out = bytearray()
    for number, (path, (mode, data)) in enumerate([*files.items(), ('TRAILER!!!', (0, b''))], 1):
        name = path.encode() + b'\0'
        fields = [number, mode, 0, 0, 1, 0, len(data), 0, 0, 0, 0, len(name), 0]
        out += b'070701' + b''.join(b'%08X' % f for f in fields) + name
        out += b'\0' * (-len(out) % 4) + data
        out += b'\0' * (-len(out) % 4)
    return gzip.compress(bytes(out), 1)


def run(version, script, programs=(), seconds=600, append=''):
    """Boots, runs a script of bash in the guest, returns the console. /tmp/tests has the programs,
    /tmp/modules has sluice.ko and softdma.ko."""
    root, headers = kernels()[version]
    shell = busybox()
    built = build_modules(version, headers)
    modules = with_dependencies(root / f'lib/modules/{version}/kernel', NEEDED)
    files = {name: (0o40755, b'') for name in ('bin', 'modules', 'tests', 'dev')}
    files['bin/busybox'] = (0o100755, shell.read_bytes())
    files['init'] = (0o100755, (INIT if has_host_files(version) else SMALL_INIT).encode())
    files['modules/order'] = (0o100644, ''.join(f'{name}.ko\n' for name, _ in modules).encode())
    for name, data in modules:
        files[f'modules/{name}.ko'] = (0o100644, data)
    for name in ('sluice', 'softdma'):
        files[f'modules/{name}.ko'] = (0o100644, (built / name / f'{name}.ko').read_bytes())
    files['tests/run.sh'] = (0o100755, script.encode())
    for program in programs:
        files[f'tests/{program.name}'] = (0o100755, program.read_bytes())
    (built / 'initramfs').write_bytes(cpio(files))
    # no_timer_check: on a busy host the guest would see no tick and panic
    command = ['qemu-system-x86_64', '-accel', 'tcg', '-cpu', 'max', '-smp', '2',
               '-m', '2048', '-nographic', '-no-reboot', '-kernel', str(root / f'boot/vmlinuz-{version}'),
               '-initrd', str(built / 'initramfs'), '-net', 'none',
               '-append', f'console=ttyS0 loglevel=4 panic=-1 random.trust_cpu=on mitigations=off '
               f'no_timer_check {append}']
    if has_host_files(version):
        command += ['-virtfs', 'local,path=/,mount_tag=host,security_model=none,readonly=on,multidevs=remap']
    late = ''
    with open(built / 'console.txt', 'wb') as console:  # to be looked at meanwhile
        try:
            subprocess.run(command, stdin=subprocess.DEVNULL, stdout=console, stderr=console, timeout=seconds)
        except subprocess.TimeoutExpired:
            late = f'\nGUEST ran longer than {seconds} s\n'
    return (built / 'console.txt').read_text(errors='replace').replace('\r', '') + late
