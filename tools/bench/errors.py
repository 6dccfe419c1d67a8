# SPDX-License-Identifier: BSD-3-Clause
"""Errors that end the tool: a message and an exit code."""
import argparse
import difflib
import os
import sys

DONE, FAILED, MISUSE, INTERRUPTED = 0, 1, 2, 130


class Stop(Exception):
    """Ends the whole run; the text gives the reason and the remedy."""

    def __init__(self, text, code=FAILED):
        super().__init__(text)
        self.code = code


class Misuse(Stop):
    def __init__(self, text):
        super().__init__(text, MISUSE)


def say(text):
    print(f'sluice: bench: {text}', file=sys.stderr, flush=True)


def run_main(run, say, interrupted):
    """Exits with the result of run(), or with a message for the exception that ended it."""
    try:
        try:
            code = run()
        except SystemExit as e:  # by --help
            code = e.code
        sys.stdout.flush()
    except Stop as e:
        say(e)
        code = e.code
    except OSError as e:
        if not isinstance(e, BrokenPipeError):
            say(f'cannot write: {e.strerror}')
        os.dup2(os.open(os.devnull, os.O_WRONLY), 1)  # the interpreter would flush again
        code = FAILED
    except KeyboardInterrupt:
        say(interrupted)
        code = INTERRUPTED
    sys.exit(code)


class Parser(argparse.ArgumentParser):
    """An argument parser with one-line errors that suggest the nearest option; prog: 'sluice VERB ...'."""

    def error(self, message):
        if message.startswith('unrecognized arguments: '):
            word = message.split()[2].split('=')[0]
            known = [o for a in self._actions for o in a.option_strings]
            near = difflib.get_close_matches(word, known, 1)
            message = f"there is no option '{word}'" + (f"; did you mean '{near[0]}'?" if near else '')
        raise Misuse(f'{message}; see: {" ".join(self.prog.split()[:2])} --help')
