# SPDX-License-Identifier: BSD-3-Clause
"""The table of times at the end of ./dev check programs. Times are shown, never judged."""
import pathlib
import sys

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent))


def rows(terminalreporter):
    for kind in ('passed', 'failed'):
        for report in terminalreporter.stats.get(kind, []):
            yield from (value for name, value in report.user_properties if name == 'times')


def pytest_terminal_summary(terminalreporter):
    found = list(rows(terminalreporter))
    if not found:
        return
    ways = list(dict.fromkeys(way for _, times in found for way in times))
    terminalreporter.section('seconds plain and under Sluice, and plain by Sluice')
    terminalreporter.write_line(f'{"program":32}' + ''.join(f'{way:>18}' for way in ways))
    for name, times in found:
        cells = [f'{times[way]:.2f} ({times["plain"] / times[way]:.2f})' if way in times else '-'
                 for way in ways]
        terminalreporter.write_line(f'{name:32}' + ''.join(f'{cell:>18}' for cell in cells))
