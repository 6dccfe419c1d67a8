# SPDX-License-Identifier: BSD-3-Clause
"""Progress on stderr: the present launch and the remaining time."""
import sys
import time

from units import minutes

EVERY_S = {True: 0.2, False: 15}  # on a terminal, elsewhere


class Progress:
    """planned: launches by kind (any key). A kind is expected to take as long as the last time, and before
    its first launch as long as the mean of all."""

    def __init__(self, planned, quiet, deadline=None):
        self.planned, self.took = dict(planned), {}
        self.quiet, self.deadline, self.shown = quiet, deadline, 0.0
        self.tty = sys.stderr.isatty()

    def more(self, planned):
        for kind, n in planned.items():
            self.planned[kind] = self.planned.get(kind, 0) + n

    def done(self, kind, seconds):
        self.took[kind] = seconds
        if self.planned.get(kind):
            self.planned[kind] -= 1

    def left_s(self):
        if not self.took:
            return None
        mean = sum(self.took.values()) / len(self.took)
        left = sum(n * self.took.get(kind, mean) for kind, n in self.planned.items())
        if self.deadline is not None:
            left = min(left, self.deadline - time.monotonic())
        return max(0, left)

    def show(self, text):
        now = time.monotonic()
        if self.quiet or now - self.shown < EVERY_S[self.tty]:
            return
        self.shown = now
        left = self.left_s()
        if left is not None:
            text += f'; about {minutes(left)} left'
        if self.tty:
            print(f'\r{text:<78.78}', end='', file=sys.stderr, flush=True)
        else:
            print(f'sluice: bench: {text}', file=sys.stderr, flush=True)

    def clear(self):
        if self.tty and not self.quiet:
            print(f'\r{"":<78}\r', end='', file=sys.stderr, flush=True)
