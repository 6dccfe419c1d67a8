# SPDX-License-Identifier: BSD-3-Clause
"""Compile once: a target is made again only when its command or an input has changed.

Workers of pytest-xdist share build/test-programs. A lock per target keeps them apart, and a rename
publishes each finished file.
"""
import contextlib
import fcntl
import hashlib
import os
import subprocess

from .paths import PROGRAMS, SOURCES


@contextlib.contextmanager
def locked(target):
    """No other process makes `target` meanwhile. Its folder exists."""
    target.parent.mkdir(parents=True, exist_ok=True)
    with open(f'{target}.lock', 'w', encoding='ascii') as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        yield


def compile_once(target, compiler, flags, inputs, env=None, headers=()):
    """compiler flags -o target inputs; `headers` are inputs that the command does not name."""
    argv = [str(compiler), *map(str, flags), '-o', f'{target}.new', *map(str, inputs)]
    key = hashlib.sha256(repr(argv).encode())
    for path in [*inputs, *headers]:
        if not str(path).startswith('-'):
            key.update(path.read_bytes())
    stamp = target.with_name(target.name + '.key')
    with locked(target):
        if target.exists() and stamp.exists() and stamp.read_text() == key.hexdigest():
            return target
        done = subprocess.run(argv, env=env, capture_output=True, text=True, cwd=target.parent)
        assert done.returncode == 0, f'{" ".join(argv)}\n{done.stderr}'
        os.rename(f'{target}.new', target)
        stamp.write_text(key.hexdigest())
    return target


def restrict():
    """The program that refuses system calls to a command: programs/restrict.c."""
    return compile_once(PROGRAMS / 'restrict', 'cc', ['-D_GNU_SOURCE', '-O1', '-Wall'],
                        [SOURCES / 'restrict.c'])
