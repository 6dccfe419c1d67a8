# SPDX-License-Identifier: BSD-3-Clause
"""A libcuda.so.1 of the tests, which needs no GPU."""
from support.build import compile_once
from support.paths import PROGRAMS, SOURCES


def library():
    """Returns its path."""
    return compile_once(PROGRAMS / 'gpu/libcuda.so.1', 'cc',
                        ['-shared', '-fPIC', '-Wl,-soname,libcuda.so.1', '-pthread'],
                        sorted((SOURCES / 'lib').glob('fake_cuda*.c')),
                        headers=[SOURCES / 'lib/fake_cuda.h'])
