# SPDX-License-Identifier: BSD-3-Clause
"""A guest under QEMU in software emulation: a stock Debian kernel, this machine's files read-only, a /tmp
of its own; or, for a kernel of arm64, a Raspberry Pi 3B or a ZCU102 with nothing but busybox and the tests.

Nothing of the kernel has to be installed here: KMOD_KERNELS names folders (a:b) into which Debian's packages
linux-image-*, linux-headers-*, linux-kbuild-* and busybox-static were unpacked (dpkg -x). A folder holds
the packages of one architecture."""
import gzip
import lzma
import os
import pathlib
import re
import shutil
import subprocess
import tarfile
import typing

from support.paths import BUILD, ROOT


class Machine(typing.NamedTuple):
    prefix: str # of its name for a kernel, which is that of the kernel otherwise
    kernels: str # that end so
    qemu: str
    package: str # of `qemu`
    elf: int # e_machine
    make: tuple # for kbuild
    modules: tuple # of the kernel, loaded first


PC = Machine('', '-amd64', 'qemu-system-x86_64', 'qemu-system-x86', 62, (),
             ('virtio_pci', '9pnet_virtio', '9p'))
# its watchdog switches it off
RASPI = Machine('', '-arm64', 'qemu-system-aarch64', 'qemu-system-arm', 183,
                ('ARCH=arm64', 'CROSS_COMPILE=aarch64-linux-gnu-'), ('bcm2835_wdt',))
# Debian has the driver of its DMA engine as a source only
ZCU102 = RASPI._replace(prefix='zcu102-', modules=())
ZCU102_DRIVER = 'drivers/dma/xilinx/zynqmp_dma.c'
CROSS_CC = 'aarch64-linux-gnu-gcc'
DTB = 'usr/lib/linux-image-{}/broadcom/bcm2837-rpi-3-b.dtb'
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
# Without 9p (debug_kernel.sh, RASPI) there is nothing but busybox and the tests.
SMALL_INIT = """#!/bin/busybox sh
/bin/busybox mkdir -p /proc /sys /dev /tmp
/bin/busybox mount -t proc proc /proc
/bin/busybox mount -t sysfs sys /sys
/bin/busybox mount -t devtmpfs dev /dev
/bin/busybox mount -t debugfs debug /sys/kernel/debug
/bin/busybox --install -s /bin
export PATH=/bin
ln -s /tests /modules /tmp
for m in $(cat /modules/order); do insmod /modules/$m || echo "GUEST no $m"; done
sh /tests/run.sh
echo "GUEST ended $?"
poweroff -f
"""


class Missing(Exception):
    """A package that a guest needs is not there."""


def roots():
    return [pathlib.Path(p) for p in [*os.environ.get('KMOD_KERNELS', '').split(':'), '/'] if p]


def machine_of(version):
    if not version.endswith(RASPI.kernels):
        return PC
    return ZCU102 if version.startswith(ZCU102.prefix) else RASPI


def release_of(version):
    """As in the names of the kernel's files."""
    return version.removeprefix(machine_of(version).prefix)


def is_static(program, machine):
    """Is it a program of the machine that needs no library?"""
    data = program.read_bytes()
    return int.from_bytes(data[18:20], 'little') == machine.elf and b'/ld-linux' not in data


def busybox(machine=PC):
    for path in [r / 'bin/busybox' for r in roots()]:
        if path.exists() and is_static(path, machine):
            return path
    raise Missing('busybox-static' + ('' if machine == PC else ':arm64'))


def kernels(machine=PC):
    """Returns {version: (root, headers)} of a machine's kernels with image, modules and headers."""
    if not shutil.which(machine.qemu):
        raise Missing(machine.package)
    found = {}
    for root in roots():
        for image in sorted(root.glob('boot/vmlinuz-*')):
            version = image.name.split('-', 1)[1]
            headers = [h for h in (pathlib.Path(f'/usr/src/linux-headers-{version}'),
                                   pathlib.Path(f'/lib/modules/{version}/build'),
                                   root / f'lib/modules/{version}/build',
                                   root / f'usr/src/linux-headers-{version}') if h.exists()]
            if version.endswith(machine.kernels) and headers and (
                    root / f'lib/modules/{version}/kernel').exists():
                found.setdefault(machine.prefix + version, (root, headers[0]))
    if not found:
        name = machine.kernels[1:]
        raise Missing(f'linux-image-{name} with linux-headers-{name}')
    return found


def board_kernels(machine):
    """Returns the versions, after a look for all that they need."""
    found = kernels(machine)
    if not shutil.which(CROSS_CC):
        raise Missing('gcc-aarch64-linux-gnu')
    if not pathlib.Path('/usr/aarch64-linux-gnu/lib/libc.a').exists():
        raise Missing('libc6-dev-arm64-cross')
    busybox(machine)
    for version, (root, headers) in found.items():
        common = pathlib.Path((headers / 'Makefile').read_text().removeprefix('include ').strip())
        if not common.exists() and len(kbuild(headers)) == 1:
            raise Missing(common.parent.name)
        if not (headers / 'scripts').exists():
            raise Missing(os.path.basename(os.path.dirname(os.readlink(headers / 'scripts'))))
        if machine == ZCU102 and not source_of(root, version).exists():
            raise Missing(source_of(root, version).name.removesuffix('.tar.xz'))
        if machine == ZCU102 and not shutil.which('dtc'):
            raise Missing('device-tree-compiler')
    return sorted(found)


def source_of(root, version):
    return root / f'usr/src/linux-source-{re.match(r"[0-9]+[.][0-9]+", release_of(version)).group()}.tar.xz'


def kbuild(headers):
    """Returns the options of make for headers, installed or only unpacked: those name the common ones in
    /usr/src."""
    common = headers.resolve().with_name(re.sub('-(amd64|arm64)$', '-common', headers.resolve().name))
    return [f'KDIR={common}', f'O={headers.resolve()}'] if common.exists() else [f'KDIR={headers}']


def installed_headers(headers, folder):
    """Returns headers, or a folder that stands for them where they are only unpacked."""
    options = dict(o.split('=', 1) for o in kbuild(headers))
    if 'O' not in options:
        return headers
    folder.mkdir()
    for part in headers.iterdir():
        (folder / part.name).symlink_to(part.resolve())
    (folder / 'Makefile').unlink()
    (folder / 'Makefile').write_text(f'KBUILD_OUTPUT={options["O"]}\ninclude {options["KDIR"]}/Makefile\n',
                                     encoding='utf-8')
    return folder


def build_modules(version, headers, options=()):
    """Compiles kernel/ for a kernel, in a copy. Returns the folder."""
    folder = BUILD / 'kmod' / version / 'kernel'
    sources = [p for part in ('kernel', 'src/goal') for p in (ROOT / part).rglob('*') if p.is_file()]
    for source in sources:
        to = folder.parent / source.relative_to(ROOT)
        to.parent.mkdir(parents=True, exist_ok=True)
        if not to.exists() or to.read_bytes() != source.read_bytes():
            shutil.copyfile(source, to)
    make = ['make', '-s', '-C', str(folder), *kbuild(headers), 'SOFTDMA=1', 'W=1',
            *machine_of(version).make, *options, 'modules']
    done = subprocess.run(make, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    # pahole describes types for debuggers
    assert 'warning' not in done.stderr.replace('warning: pahole version', ''), done.stderr
    return folder


def build_driver(version, root, headers):
    """Compiles the kernel's own driver of the board's DMA engine. Returns the module."""
    folder = BUILD / 'kmod' / version / 'driver'
    source = folder / ZCU102_DRIVER
    if not source.exists():
        with tarfile.open(source_of(root, version)) as tar:
            for member in tar:
                name = member.name.split('/', 1)[-1]
                if name in (ZCU102_DRIVER, 'drivers/dma/dmaengine.h'):
                    (folder / name).parent.mkdir(parents=True, exist_ok=True)
                    (folder / name).write_bytes(tar.extractfile(member).read())
    (source.parent / 'Kbuild').write_text(f'obj-m := {source.stem}.o\n', encoding='utf-8')
    options = dict(o.split('=', 1) for o in kbuild(headers))
    subprocess.run(['make', '-s', '-C', options.pop('KDIR'), *[f'{k}={v}' for k, v in options.items()],
                    f'M={source.parent}', *machine_of(version).make, 'modules'], check=True)
    return source.with_suffix('.ko')


OLDER_CC = """#!/bin/sh
for a; do
	shift
	case $a in -fmin-function-alignment=*) ;; *) set -- "$@" "$a" ;; esac
done
exec gcc "$@"
"""


def compile_newer(headers):
    """Compiles and links the modules for a kernel that is too new for this machine's libc and compiler:
    without objtool, and with the modpost of an older kernel."""
    modposts = [p for r in roots() for p in sorted(r.glob('usr/lib/linux-kbuild-6.*/scripts/mod/modpost'))]
    if not modposts:
        raise Missing('linux-kbuild-6.12')
    cc = BUILD / 'kmod/older-cc'
    cc.parent.mkdir(parents=True, exist_ok=True)
    cc.write_text(OLDER_CC, encoding='utf-8')
    cc.chmod(0o755)
    build_modules(headers.name.removeprefix('linux-headers-'), headers,
                  [f'CC={cc}', 'KCFLAGS=-Wno-attributes', 'objtool=true', f'MODPOST={modposts[-1]}',
                   'CONFIG_DEBUG_INFO_BTF_MODULES='])


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
    """Can the guest see this machine's files? (RASPI and the debugging kernel cannot.)"""
    return machine_of(version) == PC and any(
        (kernels()[version][0] / f'lib/modules/{version}/kernel').rglob('9p.ko*'))


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


def write_initramfs(version, script, programs):
    """Compiles the modules. Returns the folder with the initramfs."""
    root, headers = kernels(machine_of(version))[version]
    shell = busybox(machine_of(version))
    built = build_modules(version, headers)
    modules = with_dependencies(root / f'lib/modules/{release_of(version)}/kernel',
                                machine_of(version).modules)
    if machine_of(version) == ZCU102:
        driver = build_driver(version, root, headers)
        modules.append((driver.stem, driver.read_bytes()))
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
    return built


def hardware(version, nodes):
    """Returns (options of QEMU, options of the kernel)."""
    root = kernels(machine_of(version))[version][0]
    if machine_of(version) == RASPI:
        # the console is the second UART: the first one is Bluetooth's
        return (['-M', 'raspi3b', '-dtb', str(root / DTB.format(version)), '-monitor', 'none',
                 '-serial', 'null', '-serial', 'stdio', '-display', 'none'],
                'console=ttyS1,115200 maxcpus=2')
    if machine_of(version) == ZCU102:
        tree = BUILD / 'kmod' / version / 'zcu102.dtb'
        subprocess.run(['dtc', '-q', '-o', tree, ROOT / 'test/kmod/zcu102.dts'], check=True)
        return (['-M', 'xlnx-zcu102', '-smp', '2', '-m', '1024', '-dtb', str(tree), '-monitor', 'none',
                 '-serial', 'stdio', '-display', 'none'], 'console=ttyPS0,115200')
    options = ['-accel', 'tcg', '-cpu', 'max', '-smp', f'2,sockets={nodes}', '-m', '2048', '-nographic',
               '-net', 'none']
    for i in range(nodes if nodes > 1 else 0):
        options += ['-object', f'memory-backend-ram,id=m{i},size={2048 // nodes}M',
                    '-numa', f'node,nodeid={i},cpus={i},memdev=m{i}']
    if has_host_files(version):
        options += ['-virtfs', 'local,path=/,mount_tag=host,security_model=none,readonly=on,multidevs=remap']
    # no_timer_check: on a busy host the guest would see no tick and panic; watchdog_thresh: nor is a
    # CPU of the guest stuck that has none of the host's for a minute
    return options, 'console=ttyS0 random.trust_cpu=on mitigations=off no_timer_check watchdog_thresh=60'


def run(version, script, programs=(), seconds=600, append='', nodes=1):
    """Boots, runs a script of bash in the guest, returns the console. /tmp/tests has the programs,
    /tmp/modules has sluice.ko and softdma.ko. nodes: 1, or 2 NUMA nodes of a CPU each."""
    machine, built = machine_of(version), write_initramfs(version, script, programs)
    options, kernel = hardware(version, nodes)
    image = kernels(machine)[version][0] / f'boot/vmlinuz-{release_of(version)}'
    command = [machine.qemu, *options, '-no-reboot', '-kernel', str(image),
               '-initrd', str(built / 'initramfs'), '-append', f'{kernel} loglevel=4 panic=-1 {append}']
    late = ''
    with open(built / 'console.txt', 'wb') as console:  # to be looked at meanwhile
        try:
            subprocess.run(command, stdin=subprocess.DEVNULL, stdout=console, stderr=console, timeout=seconds)
        except subprocess.TimeoutExpired:
            late = f'\nGUEST ran longer than {seconds} s\n'
    return (built / 'console.txt').read_text(errors='replace').replace('\r', '') + late
