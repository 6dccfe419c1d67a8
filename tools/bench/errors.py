# SPDX-License-Identifier: BSD-3-Clause
"""What ends the tool: a line for people, and an exit code."""
import sys

DONE, FAILED, MISUSE, INTERRUPTED = 0, 1, 2, 130


class Stop(Exception):
    """The whole run ends; the text says why and what to do."""

    def __init__(self, text, code=FAILED):
        super().__init__(text)
        self.code = code


class Misuse(Stop):
    def __init__(self, text):
        super().__init__(text, MISUSE)


def say(text):
    print(f'sluice: bench: {text}', file=sys.stderr, flush=True)
