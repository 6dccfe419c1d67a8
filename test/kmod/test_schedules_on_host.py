# SPDX-License-Identifier: BSD-3-Clause
"""The part of sluice.ko that executes schedules, compiled for user space: damaged programs, failing
allocations, ranks that leave, under AddressSanitizer and UndefinedBehaviorSanitizer."""
import re
import subprocess

from support.build import compile_once
from support.paths import PROGRAMS, ROOT

HERE = ROOT / 'test/kmod/host'
KERNEL = ROOT / 'kernel/sluice'


def stand_ins(folder):
    """Makes a header for each one of the kernel that the sources include."""
    for source in ['sluice.h', 'run.h', 'run.c', 'group.c']:
        for name in re.findall(r'#include <((?:linux|asm)/\S+)>', (KERNEL / source).read_text()):
            (folder / name).parent.mkdir(parents=True, exist_ok=True)
            (folder / name).write_text('#include "kernel.h"\n')
    return folder


def test_schedules_of_the_module_survive_damage_under_sanitizers():
    src = ROOT / 'src'
    folder = stand_ins(PROGRAMS / 'kmod/stand-ins')
    inputs = [HERE / 'host.c', KERNEL / 'run.c', *[src / f'goal/{n}.c' for n in (
        'build', 'verify', 'interp', 'local', 'kernels_base', 'kernels_generic')],
        *sorted((src / 'goal/gen').glob('*.c'))]
    flags = ['-std=gnu11', '-O1', '-g', '-Wall', '-fsanitize=address,undefined', '-fno-sanitize-recover=all',
             f'-I{folder}', f'-I{HERE}', f'-I{src}']
    program = compile_once(PROGRAMS / 'kmod/host', 'cc', flags, inputs,
                           headers=[HERE / 'kernel.h', *sorted(KERNEL.glob('*.[ch]'))])
    done = subprocess.run([program, '300'], capture_output=True, text=True, timeout=120)
    print(done.stdout)
    assert done.returncode == 0, done.stdout + done.stderr
