# SPDX-License-Identifier: BSD-3-Clause
"""The program of doc/tutorial.md: it compiles as printed, and Sluice does not change what it computes."""
import re

from support.paths import PROGRAMS, ROOT


def check_of(done):
    assert done.status == 0, done.explain()
    return re.search(r'steps, the fastest [\d.]+ ms; check (\S+)', done.out).group(1)


def test_the_program_of_the_tutorial_computes_the_same_under_sluice(get_mpi):
    mpi = get_mpi('mpich')
    text = re.search(r'```c\n(.*?)```', (ROOT / 'doc/tutorial.md').read_text(), re.S).group(1)
    source = PROGRAMS / 'tutorial/steps.c'
    source.parent.mkdir(parents=True, exist_ok=True)
    source.write_text(text)
    program = mpi.build(source)
    assert check_of(mpi.launch(2, program, sluice=False)) == check_of(mpi.launch(2, program))
