#!/usr/bin/env python3
# SPDX-License-Identifier: BSD-3-Clause
"""Check the words of the sources against scripts/glossary: no identifier contains a retired word, no
comment begins with a word that hides its subject.

scripts/words-allowed lists the exceptions: identifiers by folder, and how many comments of a folder
begin so. The list may only shrink; --update removes what is no longer needed.

Usage: check_words.py [--root DIR] [--update]   exit 0 clean, 1 something to fix, 2 misuse
"""
import argparse
import ast
import collections
import io
import pathlib
import re
import sys
import tokenize

from check_source import sources

HERE = pathlib.Path(__file__).resolve().parent.parent
CODE = ('src', 'tools', 'include')
C_ENDINGS = {'.c', '.h', '.cc', '.S', '.inc'}
C_COMMENT = re.compile(r'/\*.*?\*/|//[^\n]*', re.S)
STRING = re.compile(r'"(?:\\.|[^"\\\n])*"')
HEAD = '# Exceptions of scripts/check_words.py; see there: "folder name". The list may only shrink.\n'


class Glossary:
    def __init__(self, path):
        self.terms, self.begins = {}, []
        for line in path.read_text().splitlines():
            word, colon, term = line.split('#')[0].partition(':')
            if colon and word == 'comments':
                self.begins = [begin.replace('-', ' ') for begin in term.split()]
            elif colon:
                self.terms[word] = term.strip()
        self.begin = re.compile(rf'(?:{"|".join(self.begins)})\b')

    def retired(self, name):
        """Returns the first retired word in an identifier, or None."""
        return next((word for word in name.lower().split('_') if word in self.terms), None)


class Allowed:
    """names[folder] is a set of identifiers, comments[folder] a number."""

    def __init__(self, path):
        self.path, self.names, self.comments = path, {}, {}
        for line in path.read_text().splitlines():
            words = line.split('#')[0].split()
            if words[1:2] == ['comments:']:
                self.comments[words[0]] = int(words[2])
            elif words:
                self.names.setdefault(words[0], set()).add(words[1])

    def write(self):
        out = [f'{folder} comments: {n}\n' for folder, n in sorted(self.comments.items()) if n]
        out += [f'{folder} {name}\n' for folder, names in sorted(self.names.items())
                for name in sorted(names)]
        self.path.write_text(HEAD + ''.join(out))


def folder_of(rel):
    return '/'.join(rel.parts[:min(2, len(rel.parts) - 1)]) or '.'


def comments_of(path, text):
    """Yields (offset, words) of each comment and docstring."""
    if path.suffix in C_ENDINGS:
        for match in C_COMMENT.finditer(STRING.sub(lambda m: '"' + ' ' * (len(m.group()) - 2) + '"', text)):
            yield match.start(), match.group().lstrip('/* \t\n')
    elif path.suffix == '.py':
        comments = {token.start[0]: token for token in tokenize.generate_tokens(io.StringIO(text).readline)
                    if token.type == tokenize.COMMENT}
        starts = [0, *(match.end() for match in re.finditer('\n', text))]
        for line, token in comments.items():
            above = comments.get(line - 1)
            if not above or above.start[1] != token.start[1]:  # the first line of a block
                yield starts[line - 1], token.string.lstrip('# ')
        for node in ast.walk(ast.parse(text)):
            if isinstance(node, (ast.Module, ast.FunctionDef, ast.ClassDef)) and ast.get_docstring(node):
                yield text.find(node.body[0].value.value[:40]), ast.get_docstring(node)


def names_of(path, text):
    """Yields (offset, identifier) in C code, without comments and strings."""
    if path.suffix in C_ENDINGS:
        blank = re.compile(f'{C_COMMENT.pattern}|{STRING.pattern}', re.S)
        code = blank.sub(lambda m: re.sub(r'[^\n]', ' ', m.group()), text)
        for match in re.finditer(r'\b[A-Za-z_]\w*', code):
            yield match.start(), match.group()


def main():
    parser = argparse.ArgumentParser(description=__doc__,
                                     formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument('--root', default=HERE, type=pathlib.Path)
    parser.add_argument('--update', action='store_true', help='remove what is no longer needed from the list')
    args = parser.parse_args()
    glossary = Glossary(args.root / 'scripts/glossary')
    allowed = Allowed(args.root / 'scripts/words-allowed')
    used, begins, problems = collections.defaultdict(set), collections.defaultdict(list), []
    for path in sources(args.root):
        rel = path.relative_to(args.root)
        if path.suffix not in C_ENDINGS | {'.py'}:
            continue
        folder, text = folder_of(rel), path.read_text(errors='replace')
        for offset, name in names_of(path, text) if rel.parts[0] in CODE else ():
            word = glossary.retired(name)
            if word and name not in allowed.names.get(folder, ()):
                at = f'{rel}:{text.count(chr(10), 0, offset) + 1}'
                problems.append(f'{at}: {name}: "{word}" is retired; {glossary.terms[word]}')
            if word:
                used[folder].add(name)
        for offset, words in comments_of(path, text):
            if glossary.begin.match(words):
                line = text.count('\n', 0, offset) + 1
                begins[folder].append(f'{rel}:{line}: a comment begins "{words[:40].splitlines()[0]}"')
    for folder, lines in begins.items():
        if len(lines) > allowed.comments.get(folder, 0):
            problems += lines
            problems.append(f'{folder}: {len(lines)} such comments, '
                            f'{allowed.comments.get(folder, 0)} are allowed')
    if args.update:
        allowed.names = {f: names & used[f] for f, names in allowed.names.items()}
        allowed.comments = {f: min(n, len(begins[f])) for f, n in allowed.comments.items()}
        allowed.write()
    print('\n'.join(problems) or 'words: the sources keep to scripts/glossary')
    return 1 if problems else 0


if __name__ == '__main__':
    sys.exit(main())
