#!/usr/bin/env python3
# SPDX-License-Identifier: BSD-3-Clause
"""Check that src/goal can be built without a libc, as in a kernel: with the compiler's own headers
and two that a kernel has under other names, and with no undefined symbol but the four functions
that compilers call. All files but those of COMPUTES are built without floating-point and vector
registers.

Usage: check_freestanding.py [--root DIR] [--cc CC]   exit 0 clean, 1 something to fix, 2 misuse
"""
import argparse
import pathlib
import platform
import subprocess
import sys
import tempfile

HERE = pathlib.Path(__file__).resolve().parent.parent
ALLOWED = {'memcpy', 'memmove', 'memset', 'memcmp'}
# A kernel has these as <linux/errno.h> and <linux/string.h>.
HEADERS = {
    'errno.h': '#define ENOSPC 28\n#define EINVAL 22\n#define ELOOP 40\n',
    'string.h': '#include <stddef.h>\nvoid *memcpy(void *, const void *, size_t);\n'
                'void *memmove(void *, const void *, size_t);\nvoid *memset(void *, int, size_t);\n'
                'int memcmp(const void *, const void *, size_t);\n',
}
COMPUTES = ('kernels_', 'local')  # with floating point
OTHERS = {'x86_64': 'kernels_generic.c'}  # the file for other processors


def sources(root):
    out = sorted((root / 'src/goal').glob('*.c'))
    if platform.machine() != 'x86_64':
        return [f for f in out if not f.name.startswith(('kernels_avx', 'kernels_x86'))]
    return [f for f in out if f.name != OTHERS['x86_64']]


def run(command):
    return subprocess.run([str(c) for c in command], capture_output=True, text=True)


def build(root, cc, where):
    """Problems, and the objects."""
    own = run([cc, '-print-file-name=include']).stdout.strip()
    flags = ['-std=gnu11', '-O1', '-Wall', '-Wextra', '-Wno-unused-parameter', '-Werror', '-ffreestanding',
             '-fno-stack-protector', '-nostdinc', '-isystem', own, '-isystem', where, f'-I{root}/src']
    problems, objects = [], []
    for name, text in HEADERS.items():
        (where / name).write_text(text)
    for source in sources(root):
        objects.append(where / (source.stem + '.o'))
        more = [] if source.name.startswith(COMPUTES) else ['-mgeneral-regs-only']
        done = run([cc, *flags, *more, '-c', source, '-o', objects[-1]])
        if done.returncode:
            problems.append(f'src/goal/{source.name}: {done.stderr.strip()}')
    return problems, objects


def symbols(objects, kind):
    done = run(['nm', '-P', kind, *objects])
    return {line.split()[0] for line in done.stdout.splitlines() if len(line.split()) > 1}


def main():
    args = argparse.ArgumentParser(description=__doc__.split('\n', maxsplit=1)[0])
    args.add_argument('--root', type=pathlib.Path, default=HERE)
    args.add_argument('--cc', default='cc')
    args = args.parse_args()
    with tempfile.TemporaryDirectory() as where:
        problems, objects = build(args.root, args.cc, pathlib.Path(where))
        if not problems:
            missing = symbols(objects, '-u') - symbols(objects, '--defined-only') - ALLOWED
            problems = [f'src/goal calls {name}, which needs a libc'
                        for name in sorted(missing)]
    print('\n'.join(problems) or f'freestanding: {len(objects)} files need no libc')
    return bool(problems)


if __name__ == '__main__':
    sys.exit(main())
