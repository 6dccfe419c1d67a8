# SPDX-License-Identifier: BSD-3-Clause
"""Reads and writes numbers."""

STEPS = ((1 << 30, 'G'), (1 << 20, 'M'), (1 << 10, 'K'))


def parse_bytes(text):
    """Parses '64K' -> 65536; raises ValueError."""
    number, factor = text.strip(), 1
    for step, letter in STEPS:
        if number.upper().endswith(letter):
            number, factor = number[:-1], step
    if not number.isdigit():
        raise ValueError(f"'{text}' is not a size like 64K")
    return int(number) * factor


def parse_sizes(text):
    """Parses '1K,4K' or '1..64M' (every power of two) or '1..64M*4' (every fourth): a list of bytes."""
    out = []
    for part in text.replace(',', ' ').split():
        if '..' not in part:
            out.append(parse_bytes(part))
            continue
        first, _, rest = part.partition('..')
        last, _, step = rest.partition('*')
        at, end, factor = parse_bytes(first), parse_bytes(last), int(step or 2)
        if at < 1 or factor < 2:
            raise ValueError(f"'{part}' has no end")
        while at <= end:
            out.append(at)
            at *= factor
    return out


def short_bytes(n):
    """Returns bytes as programs take them: 65536 -> '64K'."""
    for step, letter in STEPS:
        if n >= step and n % step == 0:
            return f'{n // step}{letter}'
    return str(n)


def bytes_text(n):
    """Returns bytes for people: 65536 -> '64 KB'."""
    if n is None:
        return ''
    for step, letter in STEPS:
        if n >= step:
            return f'{n / step:.4g} {letter}B'
    return f'{n} B'


def number(x, digits=3):
    """Returns x with `digits` significant digits, never as a power of ten."""
    if x is None:
        return '-'
    if x == 0:
        return '0'
    whole = len(str(int(abs(x)))) if abs(x) >= 1 else 0
    return f'{x:.{max(0, min(digits - whole, 4))}f}'


def minutes(seconds):
    seconds = max(0, int(seconds))
    return f'{seconds // 60} min {seconds % 60:02d} s' if seconds >= 60 else f'{seconds} s'
