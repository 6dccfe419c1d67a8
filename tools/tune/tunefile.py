# SPDX-License-Identifier: BSD-3-Clause
"""Writes the tune file (src/tune/tune.h describes its syntax), and a table of its contents."""
import os
import tempfile
from pathlib import Path

from errors import Stop


def short(name):
    return name.replace('SLUICE_', '', 1)


def times(x):
    return f'{x:.2f} x'


def values_text(values):
    return ' '.join(f'{n}={v}' for n, v in values.items())


def figures(found):
    """Returns the lines of figures of one option."""
    out = []
    for p in found['pairs']:
        out.append(f'{values_text(p["values"])}: {times(p["ratio"])} as fast as the default '
                   f'({p["low"]:.2f} to {p["high"]:.2f} in {p["pairs"]} pair{"s" * (p["pairs"] > 1)})')
        if p['worst']:
            out.append(f'  least: {times(p["worst"]["ratio"])}, {p["worst"]["what"]}')
    in_pairs = [p['values'] for p in found['pairs']]
    out += [f'{values_text(c["values"])}: {times(c["ratio"])}' for c in found['candidates']
            if c['values'] not in in_pairs]
    return out


def option_lines(found, defaults):
    name = found['option']
    out = [f'# {name}: {found["about"]}', f'#   {found["why"]}']
    out += [f'#   {line}' for line in figures(found)]
    if found['values']:
        out += [f'{n} = {v}' for n, v in found['values'].items()]
    else:
        out.append(f'#{name} = {defaults[name]}')
    return [*out, '']


def text_of(result):
    head = [
        f'# Written by `sluice tune` on {result["host"]} with {result["mpi"]}, {result["date"]}, in '
        f'{result["seconds"]:.0f} s;',
        f'# {", ".join(map(str, result["ranks"]))} ranks, load {result["load"]}. Programs that run under '
        'Sluice on this machine with this MPI read this file.',
        '# A variable in the environment takes precedence; SLUICE_TUNE=none ignores the file.',
        '# A line without # sets a value that was better than the default in every pair of launches and',
        '# slower at no size. Lines with # show defaults. Figures are speed-ups over the default.',
        f'sluice-tune {result["format"]}', f'version {result["version"]}',
        f'host {"*" if result["alike"] else result["host"]}', f'machine {result["machine"]}',
        f'mpi {result["mpi"]}', '']
    body = [line for f in result['options'] for line in option_lines(f, result['defaults'])]
    skipped = [f'# {name}: not measured: {why}' for name, why in result['skipped'].items()]
    return '\n'.join([*head, *body, *skipped]).rstrip() + '\n'


def table(result):
    rows = [('option', 'default', 'best other', 'speed-up', 'in force')]
    for f in result['options']:
        best = (f['pairs'] or f['candidates'] or [None])[-1 if f['values'] else 0]
        other = ' '.join(v if n == f['option'] else f'{short(n)}={v}' for n,
                         v in best['values'].items()) if best else '-'
        ratio = '-' if not best else f'{best["ratio"]:.2f}' + (
            f' ({best["low"]:.2f} to {best["high"]:.2f})' if 'low' in best else '')
        rows.append((f['option'], result['defaults'][f['option']], other, ratio,
                     f['values'].get(f['option'], 'default') if f['verdict'] != 'undecided'
                     else f'default: {f["why"]}'))
    widths = [max(len(r[i]) for r in rows) for i in range(len(rows[0]) - 1)]
    return '\n'.join('  '.join([*(c.ljust(w) for c, w in zip(r, widths)), r[-1]]).rstrip() for r in rows)


def check_writable(path, is_own_folder):
    """Checks that the file can be written, before two minutes of measurement. Makes no folder but Sluice's
    own."""
    try:
        if is_own_folder:
            path.parent.mkdir(parents=True, exist_ok=True)
        with tempfile.NamedTemporaryFile(dir=path.parent):
            pass
    except OSError as e:
        raise Stop(f'cannot write {path}: {e.strerror}; name another file with -o, or none with '
                   '--dry-run') from e


def save(text, path):
    """Replaces the file atomically: ranks that start meanwhile read the old file or the new file."""
    path, f = Path(path), None
    try:
        with tempfile.NamedTemporaryFile('w', dir=path.parent, prefix=f'.{path.name}.', delete=False) as f:
            f.write(text)
            f.flush()
            os.fsync(f.fileno())
        os.chmod(f.name, 0o644)
        os.replace(f.name, path)
    except OSError as e:
        if f:
            Path(f.name).unlink(missing_ok=True)
        raise Stop(f'cannot write {path}: {e.strerror}') from e
