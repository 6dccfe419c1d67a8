#!/usr/bin/env python3
# SPDX-License-Identifier: BSD-3-Clause
"""clang-tidy over the sources that a Meson build compiles, several at a time; what is said goes to
stdout, once each.

Usage: check_tidy.py BUILD_DIR JOBS [PART_OF_A_NAME...]   exit 0 clean, 1 something to fix, 2 misuse
"""
import concurrent.futures
import json
import os
import pathlib
import subprocess
import sys
import tempfile

ROOT = pathlib.Path(__file__).resolve().parent.parent
OURS = ('src/', 'tools/', 'bench/', 'test/unit/')
# gcc's words that clang does not know
UNKNOWN = {'-fno-semantic-interposition', '-Wno-stringop-truncation', '-Wno-stringop-overflow'}


def commands(build):
    """The compile commands of our own sources, one for each file, as clang takes them."""
    seen = {}
    for entry in json.loads((build / 'compile_commands.json').read_text()):
        path = pathlib.Path(os.path.normpath(os.path.join(entry['directory'], entry['file'])))
        if not path.is_relative_to(ROOT) or not str(path.relative_to(ROOT)).startswith(OURS):
            continue
        if path.suffix == '.c':
            words = [word for word in entry['command'].split(' ') if word not in UNKNOWN]
            seen.setdefault(path, {**entry, 'command': ' '.join(words)})
    return seen


def tidy(path, database):
    done = subprocess.run(['clang-tidy', '--quiet', '-p', database, path], capture_output=True, text=True)
    lines = [line for line in done.stdout.splitlines() if line.strip()]
    return [] if done.returncode == 0 else lines or [f'{path}: {done.stderr.strip()[-400:]}']


def main():
    if len(sys.argv) < 3:
        print(__doc__.strip(), file=sys.stderr)
        return 2
    build, jobs, parts = pathlib.Path(sys.argv[1]), int(sys.argv[2]), sys.argv[3:]
    entries = commands(build)
    paths = sorted(p for p in entries if not parts or any(part in str(p) for part in parts))
    said = set()
    with tempfile.TemporaryDirectory() as database, concurrent.futures.ThreadPoolExecutor(jobs) as pool:
        (pathlib.Path(database) / 'compile_commands.json').write_text(json.dumps(list(entries.values())))
        for count, lines in enumerate(pool.map(lambda p: tidy(p, database), paths), 1):
            if '\n'.join(lines) not in said:
                print('\n'.join(lines))
            said.add('\n'.join(lines))
            if sys.stderr.isatty():
                print(f'\r{count}/{len(paths)} ', end='', file=sys.stderr, flush=True)
    bad = len(said - {''})
    print(f'clang-tidy: {len(paths)} files, {bad} with something to fix')
    return 1 if bad else 0


if __name__ == '__main__':
    sys.exit(main())
