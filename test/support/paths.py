# SPDX-License-Identifier: BSD-3-Clause
"""Where things are. Everything that tests make is under build/."""
import os
import pathlib

ROOT = pathlib.Path(__file__).resolve().parent.parent.parent
BUILD = ROOT / 'build'
# Another installed tree than ./dev's own, to look at a build of one's own.
PREFIX = pathlib.Path(os.environ.get('HARNESS_PREFIX', BUILD / 'prefix'))
SLUICE = PREFIX / 'bin/sluice'
LIBRARY = PREFIX / 'lib/libsluice.so'
PROGRAMS = BUILD / 'test-programs'
SOURCES = ROOT / 'test/mpi/programs'
