# SPDX-License-Identifier: BSD-3-Clause
"""One launch of a measuring program: its JSON lines, or the reason of its failure."""
import json
import os
import signal
import subprocess
import time

PATIENCE_S = 3  # for a launcher to end its ranks after a signal


class Failed(Exception):
    """A failed launch; the text gives the reason in one line."""


def set_nice(value):
    """Sets the niceness of a new session and of its processes: the kernel shares time among sessions
    (autogroup), then among the processes of each."""
    os.nice(value)
    try:
        with open('/proc/self/autogroup', 'w', encoding='ascii') as f:
            f.write(str(value))
    except OSError:
        pass


def end(process):
    """Terminates the launcher, which ends its ranks, also those in sessions of their own."""
    for sign in (signal.SIGTERM, signal.SIGKILL):
        try:
            os.killpg(process.pid, sign)
        except ProcessLookupError:
            break
        try:
            process.communicate(timeout=PATIENCE_S)
            break
        except subprocess.TimeoutExpired:
            continue


def reason(text, code):
    """Returns the most informative line of stderr: the last one of a measuring program, else the first."""
    lines = [line.strip() for line in text.splitlines() if line.strip()]
    ours = [line for line in lines if '_bench-' in line.split(':')[0]]
    if ours or lines:
        return (ours or lines)[0][:200]
    return f'killed by signal {-code}' if code < 0 else f'exit code {code} without a message'


def lines_of(text):
    out = []
    for line in text.splitlines():
        if line.startswith('{'):
            try:
                out.append(json.loads(line))
            except ValueError as e:
                raise Failed(f'output that is not JSON: {line[:80]}') from e
    return out


def launch(command, env, limit_s, nice=0):
    """Returns (JSON lines, seconds, stderr). Raises Failed. An interruption ends the ranks and propagates."""
    began = time.monotonic()
    try:
        process = subprocess.Popen(command, env=env, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE,
                                   stderr=subprocess.PIPE, text=True, errors='replace',
                                   start_new_session=True,
                                   preexec_fn=(lambda: set_nice(nice)) if nice else None)
    except OSError as e:
        raise Failed(f'{command[0]}: {e.strerror}') from e
    try:
        out, err = process.communicate(timeout=limit_s)
    except subprocess.TimeoutExpired as e:
        end(process)
        raise Failed(f'still running after {limit_s:.0f} s') from e
    except BaseException:
        end(process)
        raise
    if process.returncode:
        raise Failed(reason(err, process.returncode))
    return lines_of(out), time.monotonic() - began, err.strip()
