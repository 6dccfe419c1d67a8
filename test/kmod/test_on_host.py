# SPDX-License-Identifier: BSD-3-Clause
"""Files of sluice.ko compiled for user space, under AddressSanitizer and UndefinedBehaviorSanitizer.

Schedules: damaged programs, failing allocations, ranks that leave. Copies: pins, queues and a device of the
test's own, which ends copies in any order, fails and hangs, while processes change their memory, cancel
and die."""
import re
import subprocess

from support.build import compile_once
from support.paths import PROGRAMS, ROOT

HERE = ROOT / 'test/kmod/host'
KERNEL = ROOT / 'kernel/sluice'
FLAGS = ['-std=gnu11', '-O1', '-g', '-Wall', '-fsanitize=address,undefined', '-fno-sanitize-recover=all',
         f'-I{HERE}', f'-I{ROOT}/src']


def stand_ins(folder):
    """Makes a header for each one of the kernel that the sources include."""
    for source in KERNEL.glob('*.[ch]'):
        for name in re.findall(r'#include <((?:linux|asm)/\S+)>', source.read_text()):
            (folder / name).parent.mkdir(parents=True, exist_ok=True)
            (folder / name).write_text('#include "kernel.h"\n')
    return folder


def run(name, inputs, rounds):
    folder = stand_ins(PROGRAMS / 'kmod/stand-ins')
    program = compile_once(PROGRAMS / 'kmod' / name, 'cc', [*FLAGS, f'-I{folder}'],
                           [HERE / f'{name}.c', *inputs],
                           headers=[*HERE.glob('*.h'), *sorted(KERNEL.glob('*.[ch]'))])
    done = subprocess.run([program, str(rounds)], capture_output=True, text=True, timeout=120)
    print(done.stdout)
    assert done.returncode == 0, done.stdout + done.stderr


def test_schedules_of_the_module_survive_damage_under_sanitizers():
    src = ROOT / 'src'
    run('host', [KERNEL / 'run.c', *[src / f'goal/{n}.c' for n in (
        'build', 'verify', 'interp', 'local', 'kernels_base', 'kernels_generic')],
        *sorted((src / 'goal/gen').glob('*.c'))], 300)


def test_copies_of_the_module_are_right_under_sanitizers():
    run('copies', [KERNEL / f'{n}.c' for n in ('region', 'channel', 'context')], 200)
