#!/usr/bin/env python3
# SPDX-License-Identifier: BSD-3-Clause
"""Check what every source file must have: the licence line, at most 600 lines, C functions of at most
60 lines, no trailing blanks, tabs for indentation in C, lines of at most 100 columns in C and 110
elsewhere (a tab counts 8).

Usage: check_source.py [--root DIR]   exit 0 clean, 1 something to fix, 2 misuse
"""
import argparse
import pathlib
import re
import subprocess
import sys

HERE = pathlib.Path(__file__).resolve().parent.parent
MAX_FILE, MAX_FUNCTION, MAX_COLUMNS, MAX_COLUMNS_ELSEWHERE = 600, 60, 100, 110
LICENCE = 'SPDX-License-Identifier: BSD-3-Clause'
C_ENDINGS = {'.c', '.h', '.cc', '.cpp', '.S'}
OTHER_ENDINGS = {'.py', '.sh', '.f', '.f90', '.build', '.pml'}
PLACES = ('src', 'include', 'tools', 'python', 'test', 'bench', 'examples', 'scripts', 'dev', '.ci')


def sources(root):
    """Returns the files that git knows or would add; without git, all files."""
    try:
        out = subprocess.run(['git', 'ls-files', '-co', '--exclude-standard', '--', *PLACES], cwd=root,
                             check=True, capture_output=True, text=True).stdout.splitlines()
    except (OSError, subprocess.CalledProcessError):
        trees = [root / place for place in PLACES]
        out = [str(p.relative_to(root)) for tree in trees for p in
               ([tree] if tree.is_file() else tree.rglob('*')) if p.is_file()]
    return sorted({root / name for name in out if (root / name).is_file()})


def is_source(path):
    if path.suffix in C_ENDINGS | OTHER_ENDINGS:
        return True
    with open(path, 'rb') as f:
        return f.read(2) == b'#!'


def functions(lines):
    """Yields (name, first line, length) of each C function in kernel layout: braces in column one."""
    start = None
    for number, line in enumerate(lines, 1):
        if line.startswith('{') and start is None:
            start = number
        elif line.startswith('}') and start is not None:
            if line.rstrip() == '}':
                head = next((h for h in reversed(lines[:start - 1]) if '(' in h and h[:1].strip()), '?')
                name = re.search(r'(\w+)\s*\(', head)
                yield (name.group(1) if name else head.strip()), start, number - start + 1
            start = None


def check_c(lines, at, problems):
    for name, first, length in functions(lines):
        if length > MAX_FUNCTION:
            problems.append(f'{at}:{first}: {name}() has {length} lines, {MAX_FUNCTION} are allowed')
    for number, line in enumerate(lines, 1):
        if re.match(r' {4,}\S', line) and not re.match(r' +\*', line):
            problems.append(f'{at}:{number}: indented with blanks instead of tabs')


def check(path, root):
    problems, at = [], path.relative_to(root)
    columns = MAX_COLUMNS if path.suffix in C_ENDINGS else MAX_COLUMNS_ELSEWHERE
    lines = path.read_text(errors='replace').split('\n')
    if path.name != 'meson.build' and not any(LICENCE in line for line in lines[:3]):
        problems.append(f'{at}:1: no "{LICENCE}"')
    if len(lines) - 1 > MAX_FILE:
        problems.append(f'{at}: {len(lines) - 1} lines, {MAX_FILE} are allowed')
    for number, line in enumerate(lines, 1):
        if len(line.expandtabs(8)) > columns:
            problems.append(f'{at}:{number}: {len(line.expandtabs(8))} columns, {columns} are allowed')
        if line != line.rstrip():
            problems.append(f'{at}:{number}: blanks at the end')
    if path.suffix in C_ENDINGS - {'.S'}:
        check_c(lines, at, problems)
    return problems


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument('--root', default=HERE, type=pathlib.Path)
    args = parser.parse_args()
    files = [p for p in sources(args.root) if is_source(p)]
    problems = [line for p in files for line in check(p, args.root)]
    print('\n'.join(problems) or f'source: {len(files)} files keep to the rules')
    return 1 if problems else 0


if __name__ == '__main__':
    sys.exit(main())
