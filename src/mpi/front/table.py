# SPDX-License-Identifier: BSD-3-Clause
"""Reader of functions.table, whose head documents the lines."""
import re
import sys

LINE = re.compile(r'(?P<kind>[a-z]+)(?P<four>4?)(?P<use>\+use)? (?P<ret>\w+) '
                  r'(?P<names>[\w|]+)(?P<both>\(_c\))?'
                  r'\((?P<args>[^:]*)\)( : (?P<terms>.*))?$')
OMIT = re.compile(r'omit (?P<names>[\w*() ]+): .+$')
TERM = re.compile(r'(?P<root>root:)?(?P<verb>\w+)(\((?P<args>.*)\))?$')
SMALL = {'COUNT': 'int', 'DISPL': 'int'}
LARGE = {'COUNT': 'MPI_Count', 'DISPL': 'MPI_Aint'}
WRITTEN = ('init', 'wrap')                # wrappers.c has them
COLLECTIVES = ('coll',)                   # made here, and large calls go to coll_execute()
MADE = ('observe', 'held', 'keep', 'begin', 'drop', 'made')   # made here
KINDS = (*WRITTEN, *COLLECTIVES, *MADE, 'use', 'may')


class Parameter:
    def __init__(self, text):
        match = re.match(r'(?P<type>.*?)(?P<name>\w+)(?P<array>\[\])?$', text.strip())
        self.type, self.name, self.array = match['type'].strip(), match['name'], bool(match['array'])

    def __str__(self):
        gap = '' if self.type.endswith('*') else ' '
        return f'{self.type}{gap}{self.name}{"[]" if self.array else ""}'


class Term:
    """One term: a buffer or an action that a call names."""

    def __init__(self, text):
        match = TERM.match(text.strip())
        self.root, self.verb = bool(match['root']), match['verb']
        self.args = [a.strip() for a in match['args'].split(',')] if match['args'] else []

    @property
    def who(self):
        return self.args[-1] if self.verb in ('each', 'part', 'parts', 'sum') else None


class Function:
    def __init__(self, match, large=False):
        self.kind, self.ret = match['kind'], match['ret']
        self.names = match['names'].split('|')
        words = LARGE if large else SMALL
        args = re.sub(r'COUNT|DISPL', lambda m: words[m[0]] if match['both'] else m[0], match['args'])
        self.small = None   # X of an X_c that was made from one line with it
        if large:
            self.small, self.names = self.names[0], [self.names[0] + '_c']
        self.name = self.names[0]
        self.parameters = [Parameter(p) for p in args.split(',') if p.strip() != 'void']
        self.terms = [Term(t) for t in (match['terms'] or '').split(';') if t.strip()]
        self.is_new = bool(match['four']) # in MPI 4, X of an X_c as well
        # first MPI version whose libraries must have it
        self.since = 4 if self.is_new or self.name.endswith('_c') else 3
        self.is_used = self.kind == 'use' or bool(match['use']) and not large

    @property
    def is_send(self):
        return any(t.verb == 'send' for t in self.terms)

    @property
    def args(self):
        return ', '.join(map(str, self.parameters)) or 'void'

    @property
    def passed(self):
        return ', '.join(p.name for p in self.parameters)

    @property
    def exported(self):
        return self.kind in WRITTEN + COLLECTIVES + MADE

    @property
    def is_optional(self):
        """New in MPI 4 without a stand-in: exported only where the host MPI has it."""
        has_small = self.small and not self.is_new # X, of which narrow.c makes X_c
        return self.exported and self.since == 4 and (not has_small or self.small.endswith('_init'))

    @property
    def required(self):
        """Sluice stays out of a host MPI without this function."""
        return self.is_used or (self.kind in WRITTEN + COLLECTIVES and self.since == 3)


def read(path):
    """All functions: hand-written wrappers and collectives first, then observers, then the others."""
    functions = []
    with open(path, encoding='ascii') as table:
        for number, line in enumerate(table, 1):
            line = line.strip()
            if not line or line.startswith('#') or OMIT.match(line):
                continue
            match = LINE.match(line)
            if not match or match['kind'] not in KINDS:
                sys.exit(f'{path}:{number}: cannot read: {line}')
            functions.append(Function(match))
            if match['both']:
                functions.append(Function(match, large=True))
    groups = (WRITTEN, COLLECTIVES, MADE)
    functions.sort(key=lambda f: next((i for i, g in enumerate(groups) if f.kind in g), len(groups)))
    names = [f.name for f in functions]
    if len(set(names)) != len(names):
        sys.exit(f'{path}: a function is listed twice')
    return functions


def omitted(path):
    """Names and patterns (with *) of the functions that Sluice does not export."""
    names = []
    with open(path, encoding='ascii') as table:
        for line in table:
            match = OMIT.match(line.strip())
            for name in match['names'].split() if match else []:
                names += [name.removesuffix('(_c)'), name.replace('(_c)', '_c')]
    return names
