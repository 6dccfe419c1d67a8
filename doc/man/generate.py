# SPDX-License-Identifier: BSD-3-Clause
"""Fill a manual page: generate.py TEMPLATE VERSION TABLES-PROGRAM OUTPUT

@VERSION@ becomes the version, a line @NAME@ the part of that name that the tables program writes.
"""
import pathlib
import re
import subprocess
import sys


def main():
    template, version, tables, output = sys.argv[1:]
    written = subprocess.run([tables], check=True, capture_output=True, text=True).stdout
    parts = re.split(r'^@(\w+)@\n', written, flags=re.M)[1:]
    page = pathlib.Path(template).read_text().replace('@VERSION@', version)
    for name, text in zip(parts[::2], parts[1::2]):
        page = page.replace(f'@{name}@\n', text)
    left = re.search(r'@[A-Z]+@', page)
    if left:
        sys.exit(f'{template}: nothing fills {left.group()}')
    pathlib.Path(output).write_text(page)


main()
