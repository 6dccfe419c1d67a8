# SPDX-License-Identifier: BSD-3-Clause
"""Run a command with a time limit, and know every process that it started.

Each run carries a token in its environment; processes are found again by it in /proc, whatever session
or process group a launcher has put them in.
"""
import os
import pathlib
import shlex
import shutil
import signal
import subprocess
import time
import uuid

from .options import spelled

TOKEN = 'HARNESS_RUN'


class Result:
    """Results of a finished command: exit status, output, leftover processes (already ended)."""

    def __init__(self, argv, env, status, out, err, seconds, stacks, leftovers):
        self.argv, self.env, self.status = argv, env, status
        self.out, self.err, self.seconds = out, err, seconds
        self.timed_out, self.stacks, self.leftovers = stacks is not None, stacks, leftovers

    def command(self):
        """The line that runs this alone, for the message of a failing test."""
        words = [f'{k}={shlex.quote(v)}' for k, v in sorted(self.env.items())]
        return ' '.join(['env'] + words + [shlex.quote(str(a)) for a in self.argv])

    def explain(self):
        verdict = 'time limit' if self.timed_out else f'exit status {self.status}'
        return (f'{verdict} after {self.seconds:.1f} s\nrun alone: {self.command()}\n'
                f'stdout: {tail(self.out)}\nstderr: {tail(self.err)}'
                + (f'\nat the limit: {self.stacks}' if self.timed_out else ''))


def tail(text, limit=6000):
    return text if len(text) <= limit else '...' + text[-limit:]


def processes_with(token):
    """Pids whose environment carries the token, but for zombies."""
    found = []
    needle = f'{TOKEN}={token}'.encode()
    for entry in pathlib.Path('/proc').iterdir():
        if not entry.name.isdigit() or int(entry.name) == os.getpid():
            continue
        try:
            if needle in (entry / 'environ').read_bytes():
                found.append(int(entry.name))
        except OSError:
            continue
    return found


def describe(pid):
    try:
        words = pathlib.Path(f'/proc/{pid}/cmdline').read_bytes().replace(b'\0', b' ')
        return f'{pid} {words.decode(errors="replace").strip()}'
    except OSError:
        return str(pid)


def stacks_of(token):
    """The run's processes, with the stacks of their threads where there is a gdb: hangs are rare."""
    text = []
    for pid in processes_with(token):
        text.append(describe(pid))
        if not shutil.which('gdb'):
            continue
        try:
            done = subprocess.run(['gdb', '-p', str(pid), '-batch', '-nx', '-ex', 'thread apply all bt 16'],
                                  capture_output=True, text=True, errors='replace', timeout=20, check=False)
            text.append(tail(done.stdout[done.stdout.find('\nThread '):]))
        except subprocess.TimeoutExpired:
            text.append('gdb took longer than 20 s')
    return '\n'.join(text)


def end_all(token, grace=2.0):
    """Wait a moment for the run's processes to end, end the rest; returns what had to be ended."""
    deadline = time.monotonic() + grace
    left = processes_with(token)
    while left and time.monotonic() < deadline:
        time.sleep(0.05)
        left = processes_with(token)
    names = [describe(pid) for pid in left]
    for pid in left:
        try:
            os.kill(pid, signal.SIGKILL)
        except ProcessLookupError:
            pass
    return names


def run(argv, env, timeout, cwd=None, show_env=None):
    """Run argv with the whole environment `env`; show_env is the part worth showing to people."""
    token = uuid.uuid4().hex
    start = time.monotonic()
    child = subprocess.Popen([str(a) for a in argv], env={**spelled(env), TOKEN: token}, cwd=cwd, text=True,
                             errors='replace', stdin=subprocess.DEVNULL, stdout=subprocess.PIPE,
                             stderr=subprocess.PIPE, start_new_session=True)
    stacks = None
    try:
        out, err = child.communicate(timeout=timeout)
    except subprocess.TimeoutExpired:
        seconds = time.monotonic() - start
        stacks = stacks_of(token)
        end_all(token, grace=0)
        out, err = child.communicate()
    else:
        seconds = time.monotonic() - start
    leftovers = end_all(token, grace=3.0 if stacks is None else 0)
    return Result(argv, spelled(show_env or {}), child.returncode, out, err, seconds, stacks, leftovers)
