# SPDX-License-Identifier: BSD-3-Clause
"""The wheel: built, installed beside each MPI of PyPI in a fresh environment, and run there."""
import os
import re
import subprocess
import sys
import zipfile

import pytest

from support.mpi import INTEL_ENV, MPICH_ENV, OPENMPI_ENV
from support.paths import BUILD, ROOT

pytestmark = [pytest.mark.complete, pytest.mark.timeout(1800)]

PROGRAM = '''
from mpi4py import MPI
comm = MPI.COMM_WORLD
for n in 1, 4096, 1 << 20:
    data = bytearray(n)
    if comm.rank == 0:
        data[:] = bytes(i * 7 & 255 for i in range(256)) * (n // 256) or b"x"
    for _ in range(8):
        comm.Bcast([data, MPI.BYTE])
        every = bytearray(n * comm.size)
        comm.Allgather([data, MPI.BYTE], [every, MPI.BYTE])
        assert every == data * comm.size
with open("/proc/self/maps") as maps:
    loaded = "libsluice.so" in maps.read()
all_loaded = comm.gather(loaded)
if comm.rank == 0:
    print(sum(all_loaded), "ranks loaded it", flush=True)
'''
MPIS = {'mpich': ('mpich', MPICH_ENV), 'openmpi': ('openmpi', OPENMPI_ENV), 'impi': ('impi-rt', INTEL_ENV)}


def run(*command, env=None, cwd=None, timeout=600):
    done = subprocess.run([str(word) for word in command], env=env, cwd=cwd, capture_output=True, text=True,
                          timeout=timeout)
    assert done.returncode == 0, f'{command}\n{done.stdout}{done.stderr}'
    return done.stdout


@pytest.fixture(scope='module')
def wheel(tmp_path_factory):
    python = BUILD / 'venv-wheel/bin/python'
    if not python.exists():
        pytest.skip('build/venv-wheel is not here; ./dev check install makes it')
    out = tmp_path_factory.mktemp('wheel')
    run(ROOT / 'packaging/wheel/build', python, out, timeout=1500)
    return next(out.glob('sluice-*.whl'))


def pinned(mpi):
    """The packages of the MPI and of mpi4py, with the versions that other tests use."""
    names = MPIS[mpi][0], 'mpi4py'
    lines = (ROOT / f'scripts/requirements-{mpi}.txt').read_text().splitlines()
    return [line for line in lines if line.partition('==')[0] in names]


@pytest.fixture(scope='module', params=MPIS)
def environment(request, wheel, tmp_path_factory):
    """(folder of a fresh environment with the wheel and one MPI, variables)"""
    venv = tmp_path_factory.mktemp('venv') / request.param
    run(sys.executable, '-m', 'venv', venv)
    run(venv / 'bin/pip', 'install', '--disable-pip-version-check', '--no-input', wheel,
        *pinned(request.param))
    env = {k: v for k, v in os.environ.items() if not k.startswith(('SLUICE', 'LD_', 'PYTHON'))}
    env |= MPIS[request.param][1]
    env |= {'PATH': f'{venv}/bin:{env["PATH"]}', 'XDG_CONFIG_HOME': '/nonexistent'}
    if request.param == 'impi':
        env['I_MPI_ROOT'] = str(venv)
    return venv, env


def test_the_wheel_has_a_manylinux_tag_and_no_place_of_the_build(wheel):
    assert re.fullmatch(r'sluice-[\d.]+-py3-none-manylinux_2_\d+_x86_64\.whl', wheel.name)
    with zipfile.ZipFile(wheel) as archive:
        assert not [n for n in archive.namelist() if str(ROOT).encode() in archive.read(n)]


@pytest.mark.parametrize('ranks', [2, 4])
def test_a_program_runs_under_the_wheels_sluice(environment, ranks, tmp_path):
    venv, env = environment
    (tmp_path / 'x.py').write_text(PROGRAM)
    out = run('mpiexec', '-n', ranks, 'sluice', 'run', 'python3', 'x.py', env=env, cwd=tmp_path, timeout=120)
    assert out == f'{ranks} ranks loaded it\n'


def test_the_verbs_find_their_parts(environment, tmp_path):
    venv, env = environment
    (tmp_path / 'x.py').write_text(PROGRAM)
    info = run('sluice', 'info', env=env)
    assert re.search(rf'figures of host MPIs +in force +{re.escape(str(venv))}/share/sluice/', info)
    assert 'not there' not in info
    run('mpiexec', '-n', 2, 'sluice', 'trace', '-o', 'trace', 'python3', 'x.py', env=env, cwd=tmp_path,
        timeout=120)
    assert 'Bcast' in (tmp_path / 'trace/summary.txt').read_text()
    assert 'usage' in run('sluice', 'bench', '--help', env=env)


GOAL = '''
import pathlib, sys
from sluice import chakra, goal
assert pathlib.Path(goal.__file__).is_relative_to(sys.prefix), goal.__file__
builder = goal.Builder(2)
builder[0].send(64, to=1)
builder[1].recv(64, source=0)
program = builder.program()
assert program.check() == []
program.save("one.goal", compiled=True)
assert goal.Program.open("one.goal").simulate(preset="infiniband").end_ns.shape == (2,)
assert goal.pattern("ring-allreduce", 4, "64K").run(times=3, verify=True).median_us.shape == (4,)
'''


def test_an_empty_environment_with_the_wheel_has_the_python_package(wheel, tmp_path):
    """No MPI, no sluice in PATH: the package finds the command beside it."""
    run(sys.executable, '-m', 'venv', tmp_path / 'venv')
    run(tmp_path / 'venv/bin/pip', 'install', '--disable-pip-version-check', '--no-input', f'{wheel}[goal]')
    env = {k: v for k, v in os.environ.items() if not k.startswith(('SLUICE', 'LD_', 'PYTHON'))}
    env |= {'PATH': '/usr/bin:/bin', 'XDG_CONFIG_HOME': '/nonexistent'}
    run(tmp_path / 'venv/bin/python', '-c', GOAL, env=env, cwd=tmp_path, timeout=120)


def test_removing_it_leaves_nothing(environment):
    venv, env = environment
    run(venv / 'bin/pip', 'uninstall', '-y', 'sluice', env=env)
    assert not [p for p in venv.rglob('*sluice*')]
