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
    ways = list(dict.fromkeys(way for _, times, _ in found for way in times))
    terminalreporter.section('seconds (plain by Sluice), collectives that Sluice executed')
    terminalreporter.write_line(f'{"program":26}' + ''.join(f'{way:>22}' for way in ways))
    for name, times, counts in found:
        cells = [cell_of(way, times, counts) for way in ways]
        terminalreporter.write_line(f'{name:26}' + ''.join(f'{cell:>22}' for cell in cells))


def cell_of(way, times, counts):
    if way not in times or way == 'plain':
        return f'{times[way]:.2f}' if way in times else '-'
    return f'{times[way]:.2f} ({times["plain"] / times[way]:.2f}) {counts.get(way, 0)}'
