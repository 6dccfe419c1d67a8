# SPDX-License-Identifier: BSD-3-Clause
"""The preloaded library itself, and what is hard about its place. Run alone: ./dev check mpi -k front"""
import re
import subprocess

import pytest

from support.paths import LIBRARY, ROOT

OTHER = {'debian-mpich': 'libmpi.so.40', 'debian-openmpi': 'libmpich.so.12'}


def exported():
    """Names by the table, read without the code that the build reads it with."""
    kinds = 'wrap|init|coll|observe|held|keep|begin|drop|made'
    lines = re.findall(rf'^(?:{kinds})4?(?:\+use)? int (\w+)(\(_c\))?\(',
                       (ROOT / 'src/mpi/front/functions.table').read_text(), re.M)
    return [name + suffix for name, both in lines for suffix in ([''] + ['_c'] * bool(both))]


def test_front_exports_exactly_what_the_table_says():
    """Both names of each function; a stray PMPI_ or MPI_ symbol would take calls from the library."""
    done = subprocess.run(['nm', '-D', '--defined-only', LIBRARY], capture_output=True, text=True, check=True)
    mpi = {line.split()[2] for line in done.stdout.splitlines() if 'MPI_' in line}
    assert mpi == {prefix + name for name in exported() for prefix in ('MPI_', 'PMPI_')}


def test_front_needs_only_libc():
    done = subprocess.run(['readelf', '-dW', LIBRARY], capture_output=True, text=True, check=True)
    needed = re.findall(r'NEEDED.*\[(.*)\]', done.stdout)
    assert all(re.match(r'(libc|libm|ld-linux.*)\.so', name) for name in needed), needed


def test_front_is_bound_at_its_start():
    """A fault handler that enters the dynamic linker may have interrupted it."""
    done = subprocess.run(['readelf', '-dW', LIBRARY], capture_output=True, text=True, check=True)
    assert re.search(r'\(FLAGS\).*BIND_NOW', done.stdout), done.stdout


@pytest.mark.parametrize('name', OTHER)
@pytest.mark.parametrize('when', ['early', 'late'])
def test_front_with_two_mpi_libraries(name, when, get_mpi, with_sluice):
    """The program's calls go to its own library."""
    mpi = get_mpi(name)
    program = mpi.build('two_mpis.c')
    result = mpi.launch(2, program, when, OTHER[name], sluice=with_sluice,
                        env={'SLUICE_LOG': 'warn'})
    if 'skip two_mpis' in result.out:
        pytest.skip(result.out.strip())
    assert result.status == 0 and 'ok two_mpis' in result.out, result.explain()
    if with_sluice:
        assert ('several MPI libraries' in result.err) == (when == 'early'), result.explain()


def free_gib():
    for line in open('/proc/meminfo', encoding='ascii'):
        if line.startswith('MemAvailable'):
            return int(line.split()[1]) >> 20
    return 0


# alone: two such jobs do not fit into memory. Each ABI's packing is compiled from the same source.
@pytest.mark.alone
@pytest.mark.parametrize('name', ['mpich', pytest.param('openmpi', marks=pytest.mark.complete)])
def test_front_packs_giant_elements(name, get_mpi, with_sluice):
    if free_gib() < 10:
        pytest.skip('needs 10 GiB of free memory')
    mpi = get_mpi(name)
    result = mpi.launch(2, mpi.build('giant.c'), sluice=with_sluice, timeout=120)
    assert result.status == 0 and 'ok giant' in result.out, result.explain()
