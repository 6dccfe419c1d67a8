# SPDX-License-Identifier: BSD-3-Clause
"""The report as one self-contained page: the files of page/, and the JSON of one run or of two to compare."""
import json
import re
from pathlib import Path

FOLDER = Path(__file__).resolve().parent / 'page'
SCRIPTS = ('format.js', 'scale.js', 'plot.js', 'lines.js', 'bars.js', 'forest.js', 'model.js', 'charts.js',
           'compare.js', 'report.js')


def embedded(value):
    """Returns JSON that cannot end its <script> element; < occurs in strings only."""
    return json.dumps(value, allow_nan=False, separators=(',', ':')).replace('<', '\\u003c')


def text(runs):
    """runs: one or two (name, report), where report follows sluice-bench.schema.json."""
    data = embedded({'runs': [{'name': name, 'report': report} for name, report in runs]})
    parts = {'STYLE': (FOLDER / 'style.css').read_text(encoding='utf-8'), 'DATA': data,
             'SCRIPT': '\n'.join((FOLDER / name).read_text(encoding='utf-8') for name in SCRIPTS)}
    pieces = re.split('@(STYLE|DATA|SCRIPT)@', (FOLDER / 'page.html').read_text(encoding='utf-8'))
    return ''.join(parts[piece] if i % 2 else piece for i, piece in enumerate(pieces))
