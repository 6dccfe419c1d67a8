#!/usr/bin/env python3
# SPDX-License-Identifier: BSD-3-Clause
"""Check that what texts and comments name is there: links in *.md (with headings of *.md behind #),
doc/... in sources, and that no two decisions in doc/adr have one number.

Usage: check_links.py [--root DIR]   exit 0 clean, 1 something to fix, 2 misuse
"""
import argparse
import collections
import pathlib
import re
import sys

HERE = pathlib.Path(__file__).resolve().parent.parent
PLACES = ('src', 'include', 'tools', 'test', 'bench', 'examples', 'scripts', 'doc', 'packaging', 'results')
LINK = re.compile(r'\]\(([^)\s]+)\)')
NAMED = re.compile(r'\b(?:doc|results)/[\w/.-]*\w\.md\b')


def anchors(text):
    """Returns the anchors of the headings of a page, as web pages make them."""
    heads = re.findall(r'^#+ (.*)$', text, re.M)
    return {re.sub(r'[^\w\- ]', '', head.lower()).replace(' ', '-') for head in heads}


def check_page(path, root, problems):
    for link in LINK.findall(path.read_text()):
        name, _, anchor = link.partition('#')
        if '://' in link:
            continue
        target = (path.parent / name).resolve() if name else path
        if not target.exists():
            problems.append(f'{path.relative_to(root)}: {link} is not there')
        elif anchor and target.suffix == '.md' and anchor not in anchors(target.read_text()):
            problems.append(f'{path.relative_to(root)}: {link}: no such heading')


def check_names(path, root, problems):
    for name in set(NAMED.findall(path.read_text(errors='replace'))):
        if not (root / name).exists():
            problems.append(f'{path.relative_to(root)}: {name} is not there')


def main():
    parser = argparse.ArgumentParser(description=__doc__,
                                     formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument('--root', type=pathlib.Path, default=HERE)
    root = parser.parse_args().root.resolve()
    files = [p for place in PLACES for p in sorted((root / place).rglob('*'))
             if p.is_file()] + sorted(root.glob('*.md'))
    problems = []
    for path in files:
        if path.suffix == '.md':
            check_page(path, root, problems)
        check_names(path, root, problems)
    numbers = collections.Counter(p.name[:4] for p in (root / 'doc/adr').glob('*.md'))
    problems += [f'doc/adr: {n} decisions have the number {number}' for number, n in numbers.items() if n > 1]
    print('\n'.join(problems) if problems else f'links: {len(files)} files name what is there')
    return 1 if problems else 0


if __name__ == '__main__':
    sys.exit(main())
