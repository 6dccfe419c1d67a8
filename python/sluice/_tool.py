# SPDX-License-Identifier: BSD-3-Clause
"""The `sluice` command of this installation."""
from __future__ import annotations

import pathlib
import shutil
import subprocess


class SluiceError(Exception):
    """The `sluice` command refused or failed; the text is what it said."""


def path() -> str:
    """The command beside this package (PREFIX/lib/*/*/sluice and PREFIX/bin/sluice), else that of PATH."""
    beside = pathlib.Path(__file__).resolve().parents[4] / 'bin' / 'sluice'
    found = str(beside) if beside.is_file() else shutil.which('sluice')
    if not found:
        raise SluiceError(f'there is no command {beside}, and no sluice in PATH')
    return found


def sluice(*args: object, stdin: str | None = None, allowed: tuple[int, ...] = (0,)) -> str:
    """Runs the command. Returns its standard output. Raises SluiceError for an exit status that is not
    allowed, with what it wrote to standard error."""
    done = subprocess.run([path(), *map(str, args)], input=stdin, capture_output=True, check=False,
                          encoding='utf-8', errors='backslashreplace')
    if done.returncode not in allowed:
        raise SluiceError(done.stderr.strip() or f'sluice {args[0]} ended with status {done.returncode}')
    return done.stdout
