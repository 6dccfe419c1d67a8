# SPDX-License-Identifier: BSD-3-Clause
"""Manual pages of section 3, from the comments of the public headers, so that there is one text of each function.

functions.py --list PART HEADER...                  the names of a part's functions, one a line
functions.py TEMPLATE VERSION OUTPUT HEADER...      fills a page: @NAMES part@, @SYNOPSIS part@, @DESCRIPTION part@,
                                                    where part is the heading of a part of the headers (building)
functions.py --alias FUNCTION PAGE OUTPUT           a page that includes another
"""
import pathlib
import re
import sys

HEADING = re.compile(r'/\* -+ (\w+) -+ \*/')
FUNCTION = re.compile(r'\b(sluice_\w+)\(')


def entries(text):
    """Yields (part, comment, declarations) in order. The first part of a header is its opening comment."""
    part = 'opening'
    for heading, comment, code in tokens(text):
        if heading:
            part = HEADING.match(heading).group(1)
        else:
            yield part, comment, code


def tokens(text):
    """Yields (heading, comment, code): a comment at the beginning of a line with the declarations below it."""
    lines, at = text.split('\n'), 0
    while at < len(lines):
        if HEADING.match(lines[at]):
            yield lines[at], '', ''
            at += 1
            continue
        if lines[at].startswith(('#', 'extern', '}', '__attribute__')):
            at += 1 + lines[at].endswith('\\')
            continue
        comment, code = [], []
        if lines[at].startswith('/*'):
            while True:
                comment.append(lines[at])
                at += 1
                if comment[-1].endswith('*/'):
                    break
        while comment and at < len(lines) and re.match(r'#|__attribute__\S*$', lines[at]):
            at += 1 + lines[at].endswith('\\')
        depth = 0
        while at < len(lines) and (depth or (lines[at].strip() and not lines[at].startswith(('/*', '#')))):
            depth += lines[at].count('{') + lines[at].count('(') - lines[at].count('}') - lines[at].count(')')
            code.append(lines[at])
            at += 1
        if comment or code:
            yield '', '\n'.join(comment), '\n'.join(code)
        else:
            at += 1


def is_declaration(code):
    return bool(code) and not code.startswith(('#', 'extern "C"', '}')) and 'deprecated' not in code


def escape(line):
    line = line.replace('\\', '\\e').replace('-', '\\-')
    return f'\\&{line}' if line.startswith(('.', "'")) else line


def prose(comment):
    """The text of a comment: paragraphs; what is indented, or a list, keeps its lines."""
    text = re.sub(r'^/\*+ ?|\s*\*/$', '', comment)
    out = []
    for paragraph in re.split(r'\n\s*\*?\s*\n', re.sub(r'^ \* ?', '', text, flags=re.M)):
        lines = [line for line in paragraph.split('\n') if line.strip(' *')]
        if not lines:
            continue
        if any(line.startswith('  ') for line in lines):
            out += ['.nf', *map(escape, lines), '.fi']
        else:
            joined = ' '.join(line.strip() for line in lines)
            out += ['.PP' if out else '', *map(escape, joined.replace(' Returns: ', '\n.br\nReturns: ').split('\n'))]
    return [line.replace('\\&.br', '.br') for line in out if line]


def declaration(code):
    """C as it is, functions without bodies."""
    if 'inline' in code:
        code = re.sub(r'static inline ', '', code.split('\n{')[0]) + ';'
    return code


def is_shown(part, comment, code):
    """A header without parts has helpers, too: functions without a comment."""
    return is_declaration(code) and (part != 'opening' or bool(comment))


def functions(text):
    """Returns: the functions of each part."""
    found = {}
    for part, comment, code in entries(text):
        if is_shown(part, comment, code) and FUNCTION.search(code) and not code.startswith('struct '):
            found.setdefault(part, []).extend(FUNCTION.findall(declaration(code)))
    return found


def synopsis(text, part):
    return [escape(line) for p, comment, code in entries(text) if p == part and is_shown(p, comment, code)
            for line in declaration(code).expandtabs(8).split('\n')]


def description(text, part):
    out = []
    for p, comment, code in entries(text):
        if p != part or not comment or 'SPDX' in comment or 'deprecated' in code:
            continue
        is_type = code.startswith(('struct ', 'enum '))
        names = [] if is_type or not is_declaration(code) else FUNCTION.findall(declaration(code))
        structs = re.findall(r'^(?:struct|enum) \w+', code, re.M) if is_type and '\n *\n' not in comment else []
        title = ', '.join([f'{n}()' for n in names] + structs)
        out += ['.TP', f'.B {title}', *prose(comment)] if title else ['.PP', *prose(comment)]
    return out


def opening(text):
    """The paragraphs of the header's own comment about errors, threads and signals."""
    comment = re.search(r'\*/\n(/\*.*?\*/)', text, re.S).group(1)
    return [line for paragraph in re.split(r'\n \*\n', comment) if re.match(r'( \* )?(Errors|Threads|Memory)', paragraph)
            for line in ['.PP', *prose(paragraph)]]


def fill(template, version, texts):
    page = template.replace('@VERSION@', version)
    parts = {}
    for text in texts:
        for part, names in functions(text).items():
            parts.setdefault(part, (text, names))
    for part, (text, names) in parts.items():
        for word, lines in (('NAMES', [', '.join(names)]), ('SYNOPSIS', synopsis(text, part)),
                            ('DESCRIPTION', description(text, part)), ('OPENING', opening(text))):
            page = page.replace(f'@{word} {part}@', '\n'.join(lines))
    left = re.search(r'@[A-Z]+ ?\w*@', page)
    if left:
        sys.exit(f'nothing fills {left.group()}')
    return page


def main():
    words = sys.argv[1:]
    if words[0] == '--list':
        for header in words[2:]:
            for name in functions(pathlib.Path(header).read_text()).get(words[1], ()):
                print(name)
    elif words[0] == '--alias':
        pathlib.Path(words[3]).write_text(f'.so man3/{words[2]}\n')
    else:
        template, version, output, *headers = words
        texts = [pathlib.Path(header).read_text() for header in headers]
        pathlib.Path(output).write_text(fill(pathlib.Path(template).read_text(), version, texts))


if __name__ == '__main__':
    main()
