# SPDX-License-Identifier: BSD-3-Clause
"""Completion for shells, from what the tool says of itself: generate.py TOOL TABLES bash|zsh|fish OUTPUT

Verbs and their options come from the help texts, options of Sluice and their values from the
program that also writes the manual's tables. Nothing is listed by hand, so nothing can be forgotten.
"""
import pathlib
import re
import subprocess
import sys

HERE = pathlib.Path(__file__).resolve().parent
FILES = ('PATH', 'FILE', 'DIR', 'OUT')  # what an option takes when it takes a file


def said(*argv):
    return subprocess.run(argv, check=True, capture_output=True, text=True).stdout


def verbs_in(text):
    """(name, what it does) of lines like '  run      run a program'."""
    body = text.split('\n\nExamples:')[0]
    found = re.findall(r'^  ([a-z]+) +(?:[A-Z][^ ]*(?: [^ ]+)*?  +)?(\S.*)$', body, re.M)
    return [(name, what.split(';')[0]) for name, what in found if name != 'sluice']


def flags_in(text):
    """{flag: (what it takes, what it does)} of the usage and of the lines that describe options."""
    found = {}
    text = text.split('\nExamples:')[0]
    for flag, takes in re.findall(r'(?<![\w-])(--?[A-Za-z][a-z-]*)[ =]?([A-Z][A-Za-z]*)?', text):
        found.setdefault(flag, (takes, ''))
    for names, takes, what in re.findall(r'^  ((?:-\w, )?--?[a-zA-Z][a-z-]*) ?([A-Z][^ ]*)? {2,}(\S.*)$',
                                         text, re.M):
        for name in names.split(', '):
            found[name] = (re.split(r'[,=.|]', takes)[0], what.split(';')[0])
    found['--help'] = ('', 'show a summary')
    return {f: v for f, v in found.items() if not re.fullmatch(r'--?[A-Za-z]?', f) or len(f) == 2}


def options_in(tables):
    """{name without SLUICE_: its values or []}."""
    out = {}
    for name, body in re.findall(r'^\.B SLUICE_?([A-Z_]*)\n((?:(?!\.TP).*\n)*)',
                                 tables.split('@COUNTERS@')[0], re.M):
        takes = re.search(r'^Takes (.*); default', body, re.M).group(1).replace('\\-', '-')
        is_list = re.fullmatch(r'[a-z]+(?:(?:, | or )[a-z]+)+', takes)
        out[name] = re.split(r', | or ', takes) if is_list else []
    return {n: v for n, v in out.items() if n}


def collect(tool, tables):
    """{verb: {'what', 'flags', 'verbs': {...}}} of the tool and, below it, of goal."""
    out = {}
    for verb, what in verbs_in(said(tool, '--help')):
        text = said(tool, verb, '--help')
        below = verbs_in(text) if re.search(r'^usage: sluice \w+ VERB', text) else []
        out[verb] = {'what': what, 'flags': flags_in('' if below else text), 'verbs': {
            v: {'what': w, 'flags': flags_in(said(tool, verb, v, '--help'))} for v, w in below}}
    return out, options_in(said(tables))


# ---- bash -----------------------------------------------------------------------------------

def is_file(takes):
    return takes in FILES


def bash_case(key, words):
    return f'\t{key}) echo "{" ".join(words)}" ;;'


def fill(template, parts):
    text = (HERE / template).read_text()
    for name, lines in parts.items():
        text = text.replace(f'@{name}@\n', ''.join(f'{line}\n' for line in lines))
    return text


def places(verbs):
    """(place, entry): 'run', 'goal', 'goal check'."""
    for verb, v in verbs.items():
        yield verb, v
        for below, entry in v['verbs'].items():
            yield f'{verb} {below}', entry


def shell(verbs, options, template):
    flags, files, others = [], [], []
    for place, entry in places(verbs):
        flags.append(bash_case(f'"{place}"', entry['flags']))
        named = [f for f, (takes, _) in entry['flags'].items() if is_file(takes)]
        files += [f'\t"{place} {f}") return 0 ;;' for f in named]
        others += [f'\t"{place} {f}") return 0 ;;' for f, (takes, _) in entry['flags'].items()
                   if takes and not is_file(takes) and f != '--set']
    return fill(template, {
        'VERBS': [f'\t"") echo "{" ".join(verbs)} --help --version" ;;'] + [
            bash_case(v, entry['verbs']) for v, entry in verbs.items() if entry['verbs']],
        'FLAGS': flags, 'FILES': files, 'OTHERS': others,
        'SETTINGS': [f'\techo "{" ".join(f"{n}=" for n in options)}"'],
        'VALUES': [bash_case(n, v) for n, v in options.items() if v]})


def fish(verbs, options):
    def quoted(text):
        return "'" + text.replace('\\', '\\\\').replace("'", "\\'") + "'"

    out = ['# SPDX-License-Identifier: BSD-3-Clause',
           '# Completion of sluice(1) for fish. Made from its help texts.',
           'complete -c sluice -f', "complete -c sluice -n __fish_use_subcommand -l help -d 'show a summary'",
           "complete -c sluice -n __fish_use_subcommand -l version -d 'show the version'"]
    for verb, v in verbs.items():
        out.append(f'complete -c sluice -n __fish_use_subcommand -a {verb} -d {quoted(v["what"])}')
    for place, entry in places(verbs):
        words = place.split()
        seen = f'"__fish_seen_subcommand_from {words[0]}' + (
            f'; and __fish_seen_subcommand_from {words[1]}"' if words[1:] else '"')
        for flag, (takes, what) in entry['flags'].items():
            kind = f'-l {flag[2:]}' if flag.startswith('--') else f'-s {flag[1:]}'
            more = ' -r' + (' -F' if is_file(takes) else '') if takes else ''
            told = f' -d {quoted(what)}' if what else ''
            out.append(f'complete -c sluice -n {seen} {kind}{more}{told}')
        out += [f'complete -c sluice -n "__fish_seen_subcommand_from {words[0]}" -a {b} -d '
                f'{quoted(e["what"])}'
                for b, e in entry.get('verbs', {}).items()]
    run = '"__fish_seen_subcommand_from run trace"'
    for name, values in options.items():
        settings = ' '.join(f'{name}={v}' for v in values) if values else f'{name}='
        out.append(f'complete -c sluice -n {run} -l set -x -a {quoted(settings)}')
    out += [f'complete -c sluice -n {run} -a "(__fish_complete_subcommand --fcs-skip=2)"',
            'complete -c sluice -n "__fish_seen_subcommand_from check trace report bench tune goal" -F']
    return '\n'.join(out) + '\n'


def main():
    tool, tables, kind, output = sys.argv[1:]
    verbs, options = collect(tool, tables)
    text = fish(verbs, options) if kind == 'fish' else shell(verbs, options, f'sluice.{kind}.in')
    pathlib.Path(output).write_text(text)


main()
