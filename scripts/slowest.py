#!/usr/bin/env python3
# SPDX-License-Identifier: BSD-3-Clause
"""Print the slowest tests of pytest's JUnit files and the sum of each test file.

A test that shares its MPI job with others is charged for the whole job when it comes first.

Usage: slowest.py COUNT JUNIT.xml...   exit 0 printed, 2 misuse
"""
import pathlib
import sys
import xml.etree.ElementTree as ET


def durations(path):
    """Yields (seconds, test file, test) of each test in a JUnit file."""
    for case in ET.parse(path).getroot().iter('testcase'):
        if case.get('name') is None:  # an interrupted run
            continue
        name = case.get('name').rsplit('@', 1)[0]
        yield float(case.get('time')), case.get('classname').replace('.', '/'), name


def main():
    if len(sys.argv) < 2 or not sys.argv[1].isdigit():
        print(__doc__.strip(), file=sys.stderr)
        return 2
    cases = [case for name in sys.argv[2:] if pathlib.Path(name).exists() for case in durations(name)]
    by_file = {}
    for seconds, file, _ in cases:
        count, total = by_file.get(file, (0, 0.0))
        by_file[file] = count + 1, total + seconds
    print('seconds  tests  file')
    for file, (count, total) in sorted(by_file.items(), key=lambda entry: -entry[1][1]):
        if total >= 1:
            print(f'{total:7.1f}  {count:5}  {file}.py')
    print(f'seconds  the {sys.argv[1]} slowest of {len(cases)} tests')
    for seconds, file, name in sorted(cases, reverse=True)[:int(sys.argv[1])]:
        print(f'{seconds:7.1f}  {file}.py::{name}')
    return 0


if __name__ == '__main__':
    sys.exit(main())
