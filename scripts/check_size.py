#!/usr/bin/env python3
# SPDX-License-Identifier: BSD-3-Clause
"""Check that the code of libsluice.so stays small: every MPI process maps it.

Usage: check_size.py [LIBRARY]   exit 0 within the limit, 1 above it
"""
import pathlib
import re
import subprocess
import sys

HERE = pathlib.Path(__file__).resolve().parent.parent
# A little above what the tree has. Lower it whenever the code has become smaller.
MAX_TEXT_BYTES = 790_000


def main():
    library = sys.argv[1] if len(sys.argv) > 1 else HERE / 'build/dev/src/mpi/libsluice.so'
    done = subprocess.run(['size', '-A', library], capture_output=True, text=True, check=True)
    text = int(re.search(r'^\.text\s+(\d+)', done.stdout, re.M).group(1))
    print(f'size: .text of {library} has {text} bytes, {MAX_TEXT_BYTES} are allowed')
    return 1 if text > MAX_TEXT_BYTES else 0


if __name__ == '__main__':
    sys.exit(main())
