# SPDX-License-Identifier: BSD-3-Clause
"""Where things are. Everything that tests make is under build/."""
import pathlib

ROOT = pathlib.Path(__file__).resolve().parent.parent.parent
BUILD = ROOT / 'build'
PREFIX = BUILD / 'prefix'
SLUICE = PREFIX / 'bin/sluice'
LIBRARY = PREFIX / 'lib/libsluice.so'
PROGRAMS = BUILD / 'test-programs'
SOURCES = ROOT / 'test/mpi/programs'
