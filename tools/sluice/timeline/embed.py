# SPDX-License-Identifier: BSD-3-Clause
"""The timeline's page as two C strings, before and after the data: embed.py OUTPUT FOLDER"""
import pathlib
import sys


def c_array(name, text):
    numbers = ','.join(str(b) for b in text.encode())
    return f'const char {name}[] = {{{numbers},0}};\n'


def main():
    output, folder = sys.argv[1], pathlib.Path(sys.argv[2])
    script = '\n'.join((folder / f).read_text() for f in ('model.js', 'draw.js', 'page.js'))
    assert '</script' not in script
    page = (folder / 'page.html').read_text()
    page = page.replace('@STYLE@', (folder / 'style.css').read_text()).replace('@SCRIPT@', script)
    before, after = page.split('@DATA@\n')
    text = '/* Made by embed.py. */\nextern const char timeline_before[], timeline_after[];\n'
    arrays = c_array('timeline_before', before) + c_array('timeline_after', after)
    pathlib.Path(output).write_text(text + arrays)


main()
