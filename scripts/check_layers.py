#!/usr/bin/env python3
# SPDX-License-Identifier: BSD-3-Clause
"""Check that src/ keeps to scripts/layers: who includes whom, and where foreign things live.

Usage: check_layers.py [--root DIR]   exit 0 clean, 1 something to fix, 2 misuse
"""
import argparse
import pathlib
import re
import sys

HERE = pathlib.Path(__file__).resolve().parent.parent
INCLUDE = re.compile(r'^[ \t]*#[ \t]*include[ \t]*([<"])([^>"]+)[>"]', re.M)
COMMENT_OR_STRING = re.compile(r'/\*.*?\*/|//[^\n]*|"(?:\\.|[^"\\\n])*"', re.S)


class Rules:
    def __init__(self, path):
        self.edges, self.public, self.homes, self.banned = {}, {}, [], {}
        for number, line in enumerate(path.read_text().splitlines(), 1):
            line = line.split('#')[0].strip()
            if not line:
                continue
            head, colon, tail = line.partition(':')
            if not colon:
                sys.exit(f'{path}:{number}: no colon')
            words = head.split()
            if words[0] == 'home':
                places = [] if tail.split() == ['none'] else tail.split()
                self.homes += [(pattern, places) for pattern in words[1:]]
            elif words[0] == 'without':
                self.banned[words[1]] = tail.split()
            elif words[0] == 'public':
                self.public.setdefault(words[1], set()).update(tail.split())
            else:
                self.edges[words[0]] = set(tail.split())
        self.check_acyclic(path)

    def folder_of(self, parts):
        """Returns the longest folder of a path that has rules: goal/sched for goal/sched/run.c."""
        names = ['/'.join(parts[:n]) for n in range(len(parts) - 1, 0, -1)]
        return next((name for name in names if name in self.edges), parts[0])

    def check_acyclic(self, path):
        done = set()
        while len(done) < len(self.edges):
            ready = [f for f in self.edges if f not in done and self.edges[f] <= done]
            if not ready:
                sys.exit(f'{path}: a circle among {sorted(set(self.edges) - done)}')
            done.update(ready)


def without_comments(text):
    return COMMENT_OR_STRING.sub(lambda m: '\n' * m.group().count('\n') + ' ', text)


def line_of(text, offset):
    return text.count('\n', 0, offset) + 1


def check_includes(rules, rel, text, problems):
    folder = rules.folder_of(rel.parts)
    for match in INCLUDE.finditer(text):
        at, name = f'src/{rel}:{line_of(text, match.start())}', match.group(2)
        for pattern, places in rules.homes:
            if pattern == name and not str(rel).startswith(tuple(places) or ('\0',)):
                problems.append(f'{at}: <{name}> lives in {" ".join(places) or "no folder"} only')
        if match.group(1) == '"' and (name.endswith('.c') or name.startswith('../')):
            problems.append(f'{at}: "{name}": sources and relative paths are not included')
        if match.group(1) != '"' or '/' not in name:
            continue
        other = rules.folder_of(name.split('/'))
        header = name[len(other) + 1:]
        if other not in rules.edges or other == folder:
            continue
        if other not in rules.edges[folder]:
            problems.append(f'{at}: {folder} may not include {other}')
        elif header != f'{other.split("/")[-1]}.h' and header not in rules.public.get(other, ()):
            problems.append(f'{at}: "{name}" is private to {other}')


def check_calls(rules, rel, text, problems):
    code = without_comments(text)
    for pattern, places in rules.homes:
        if not pattern.endswith('(') or str(rel).startswith(tuple(places) or ('\0',)):
            continue
        for match in re.finditer(r'(?<![\w.>])' + re.escape(pattern), code):
            problems.append(f'src/{rel}:{line_of(code, match.start())}: {pattern}) lives in '
                            f'{" ".join(places) or "no folder"} only')


def check_banned(rules, rel, text, problems):
    code = without_comments(text)
    for name, folders in rules.banned.items():
        if rel.parts[0] not in folders:
            continue
        for match in re.finditer(rf'\b{name}\b', code):
            problems.append(f'src/{rel}:{line_of(code, match.start())}: {rel.parts[0]} may not use {name}')


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument('--root', default=HERE, type=pathlib.Path)
    root = parser.parse_args().root
    rules, problems, count = Rules(root / 'scripts/layers'), [], 0
    for path in sorted((root / 'src').rglob('*.[chS]')) + sorted((root / 'src').rglob('*.inc')):
        rel = path.relative_to(root / 'src')
        if len(rel.parts) < 2:
            continue
        if rules.folder_of(rel.parts) not in rules.edges:
            problems.append(f'src/{rel}: folder {rel.parts[0]} is not in scripts/layers')
            continue
        text, count = path.read_text(), count + 1
        check_includes(rules, rel, text, problems)
        check_calls(rules, rel, text, problems)
        check_banned(rules, rel, text, problems)
    print('\n'.join(problems) or f'layers: {count} files keep to scripts/layers')
    return 1 if problems else 0


if __name__ == '__main__':
    sys.exit(main())
