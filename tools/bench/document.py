# SPDX-License-Identifier: BSD-3-Clause
"""The result file: written completely or not at all, and validated by the schema when read."""
import json
import os
from pathlib import Path

import schema
from errors import Stop

NAME = 'sluice-bench.schema.json'


def find_schema(folder):
    try:
        return json.loads((Path(folder) / NAME).read_text(encoding='utf-8'))
    except OSError as e:
        raise Stop(f'{NAME} is not installed with this program') from e


def rounded(value):
    """Rounds to seven significant digits."""
    if isinstance(value, float):
        return float(f'{value:.7g}')
    if isinstance(value, dict):
        return {k: rounded(v) for k, v in value.items()}
    return [rounded(v) for v in value] if isinstance(value, list) else value


def text_of(document):
    return json.dumps(rounded(document), indent=1, ensure_ascii=False) + '\n'


def page_path(path):
    """Returns the path of the report page: beside the file."""
    return Path(path).with_suffix('.html')


def can_write(path):
    """Checks before hours of measuring that the file can be written; raises Stop."""
    folder = Path(path).absolute().parent
    if not folder.is_dir():
        raise Stop(f'{path}: there is no folder {folder}')
    if Path(path).is_dir():
        raise Stop(f'{path}: is a folder')
    if not os.access(folder, os.W_OK | os.X_OK):
        raise Stop(f'{path}: no permission to write in {folder}')


def save(text, path):
    """Replaces the old file only when the new one is complete."""
    part = Path(f'{path}.part-{os.getpid()}')
    try:
        with open(part, 'w', encoding='utf-8') as f:
            f.write(text)
            f.flush()
            os.fsync(f.fileno())
        os.replace(part, path)
    except OSError as e:
        part.unlink(missing_ok=True)
        raise Stop(f'{path}: cannot be written: {e.strerror}') from e


def load(path, folder):
    try:
        document = json.loads(Path(path).read_text(encoding='utf-8'))
    except OSError as e:
        raise Stop(f'{path}: {e.strerror}') from e
    except (ValueError, RecursionError) as e:  # RecursionError: nested too deeply
        raise Stop(f'{path}: not JSON: {e}') from e
    wrong = schema.problem(document, find_schema(folder))
    if wrong:
        raise Stop(f'{path}: not written by this version of sluice bench: {wrong}')
    return document
