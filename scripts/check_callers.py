#!/usr/bin/env python3
# SPDX-License-Identifier: BSD-3-Clause
"""Check that every function with external linkage in src/ and tools/ has a caller in the product:
a use in src/, tools/, bench/ or the public headers, not only in test/.

The names come from the objects of a build, the uses from the sources: an indented line, a macro or a
table names the function, while a definition or prototype begins in column one.
scripts/callers-allowed lists the exceptions with their reasons.

Usage: check_callers.py [--root DIR] [BUILD_DIR]   exit 0 clean, 1 something to fix, 2 misuse
"""
import argparse
import ctypes
import pathlib
import re
import subprocess
import sys

HERE = pathlib.Path(__file__).resolve().parent.parent
PRODUCT = ('src', 'tools', 'bench')
ENDINGS = {'.c', '.h', '.S', '.inc', '.py', '.table', '.build', '.map', '.sym'}
COMMENT_OR_STRING = re.compile(r'/\*.*?\*/|//[^\n]*|"(?:\\.|[^"\\\n])*"', re.S)
# Names that the generated front end defines or calls.
GENERATED = re.compile(r'P?MPI_|choose_P?MPI_|request_[A-Z]|large_[A-Z]|wrap_[A-Z]|observe_')
# Code that is compiled once per ABI has the ABI's name at its end.
ABI = re.compile(r'_(?:mpich|ompi|std)$')


def defined(build):
    """Returns the functions with external linkage in the objects of src/ and tools/."""
    objects = [path for place in ('src', 'tools') for path in (build / place).rglob('*.o')]
    done = subprocess.run(['nm', '--defined-only', *objects], capture_output=True, text=True, check=True)
    found = set()
    for line in done.stdout.splitlines():
        fields = line.split()
        if len(fields) == 3 and fields[1] == 'T':
            found.add(ABI.sub('', fields[2]))
    libc = ctypes.CDLL(None)  # a function of the C library's name is interposed: programs call it
    return {name for name in found if not GENERATED.match(name) and not hasattr(libc, name)}


def exported(root):
    """Returns the functions that public headers declare: programs call them."""
    text = ''.join(path.read_text() for path in (root / 'include').rglob('*.h'))
    return set(re.findall(r'\b(\w+)\(', text))


def uses(root):
    """Returns the names on lines that are no definition and no prototype."""
    found = set()
    for place in PRODUCT:
        for path in (root / place).rglob('*'):
            if path.suffix not in ENDINGS:
                continue
            text = path.read_text(errors='replace').replace('\\t', ' ').replace('\\n', ' ')
            if path.suffix in ('.c', '.h', '.inc'):
                text = COMMENT_OR_STRING.sub(' ', text)
            for line in text.split('\n'):
                if path.suffix not in ('.c', '.h') or line[:1] in '\t #}':
                    found.update(re.findall(r'\w+', line))
                elif '=' in line or re.match(r'[A-Z_]+\(', line):  # a table, a macro call
                    found.update(re.findall(r'\w+', line))
                else:  # the body of a function on one line
                    found.update(re.findall(r'\w+', line.partition('{')[2]))
    return found


def main():
    parser = argparse.ArgumentParser(description=__doc__,
                                     formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument('--root', default=HERE, type=pathlib.Path)
    parser.add_argument('build', nargs='?', type=pathlib.Path)
    args = parser.parse_args()
    allowed = {}
    for line in (args.root / 'scripts/callers-allowed').read_text().splitlines():
        name, colon, reason = line.partition(':')
        if colon and not line.startswith('#'):
            allowed[name.strip()] = reason.strip()
    names = defined(args.build or args.root / 'build/dev')
    without = sorted(names - uses(args.root) - exported(args.root) - {'main'})
    problems = [f'{name}: no caller in the product' for name in without if name not in allowed]
    problems += [f'scripts/callers-allowed: {name} is not needed' for name in sorted(allowed)
                 if name not in without]
    print('\n'.join(problems) or f'callers: each of {len(names)} functions has one')
    return 1 if problems else 0


if __name__ == '__main__':
    sys.exit(main())
