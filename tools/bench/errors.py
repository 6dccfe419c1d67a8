# SPDX-License-Identifier: BSD-3-Clause
"""What ends the tool: a line for people, and an exit code."""
import argparse
import difflib
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


class Parser(argparse.ArgumentParser):
    """One line for what is wrong, with the nearest option; prog: 'sluice VERB ...'."""

    def error(self, message):
        if message.startswith('unrecognized arguments: '):
            word = message.split()[2].split('=')[0]
            known = [o for a in self._actions for o in a.option_strings]
            near = difflib.get_close_matches(word, known, 1)
            message = f"there is no option '{word}'" + (f"; did you mean '{near[0]}'?" if near else '')
        raise Misuse(f'{message}; see: {" ".join(self.prog.split()[:2])} --help')
