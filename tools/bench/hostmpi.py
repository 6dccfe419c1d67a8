# SPDX-License-Identifier: BSD-3-Clause
"""The host MPI to measure, its launcher, and the environment of launches."""
import json
import os
import shlex
import shutil
import subprocess
from pathlib import Path

from errors import Stop

ABI_PROGRAM = {'MPICH': 'mpich', 'Open MPI': 'ompi', 'standard': 'std'}
# Debian installs several MPIs side by side and distinguishes their launchers by a suffix.
SUFFIX = {'MPICH': '.mpich', 'Open MPI': '.openmpi', 'standard': ''}
PARENTS = 4  # how many folders above the library its installation may begin
# Ranks may share cores, and root may launch, as the programs are Sluice's. Each applies only to unset
# variables.
OPENMPI_ENV = {
    'OMPI_ALLOW_RUN_AS_ROOT': '1', 'OMPI_ALLOW_RUN_AS_ROOT_CONFIRM': '1',
    'PRTE_MCA_rmaps_default_mapping_policy': ':oversubscribe',
    'OMPI_MCA_rmaps_base_oversubscribe': '1',
}


class HostMpi:
    """library: path of the libmpi; launcher: the words before '-n'."""

    def __init__(self, library, abi, version, launcher):
        self.library, self.abi, self.version, self.launcher = library, abi, version, launcher

    def program(self, folder, name):
        return str(Path(folder) / f'{name}-{ABI_PROGRAM[self.abi]}')

    def command(self, ranks, before, program, args):
        return [*self.launcher, '-n', str(ranks), *before, program, f'libmpi={self.library}', *args]

    def env(self):
        """Returns the environment of a launch, equal on every side."""
        env = {k: v for k, v in os.environ.items() if k != 'SLUICE'}
        env['LD_LIBRARY_PATH'] = ':'.join(filter(None, [str(Path(self.library).parent),
                                                        env.get('LD_LIBRARY_PATH')]))
        if self.abi == 'Open MPI':
            for name, value in OPENMPI_ENV.items():
                env.setdefault(name, value)
        # the ways themselves are measured, not the choice between them
        env.setdefault('SLUICE_DECIDE', 'table')
        env.setdefault('SLUICE_REGION_ADOPT_AFTER', '3')
        root = Path(self.library).parent.parent
        if 'Intel' in self.version and 'I_MPI_ROOT' not in env:
            env['I_MPI_ROOT'] = str(root)
        return env


def tool_info(tool, env=None):
    """Returns the output of `sluice info --json`."""
    try:
        done = subprocess.run([tool, 'info', '--json'], env=env, capture_output=True, text=True,
                              timeout=60, stdin=subprocess.DEVNULL)
        return json.loads(done.stdout)
    except (OSError, subprocess.SubprocessError, ValueError) as e:
        raise Stop(f"'sluice info' does not work: {e}") from e


def environment_for(path):
    """Returns an environment whose first MPI is the library or installation at `path`."""
    place = Path(path).resolve()
    folder = place.parent if place.is_file() else place
    if not folder.is_dir():
        raise Stop(f'--mpi {path}: no such file or folder')
    bins = [str(p / 'bin') for p in (folder, *folder.parents[:PARENTS]) if (p / 'bin').is_dir()]
    libs = [str(folder), *(str(folder / sub) for sub in ('lib', 'lib64', 'lib/release'))]
    env = dict(os.environ)
    env['PATH'] = ':'.join([*bins, env.get('PATH', '')])
    env['LD_LIBRARY_PATH'] = ':'.join([*libs, env.get('LD_LIBRARY_PATH', '')])
    return env


def is_below(path, folder):
    return Path(folder).resolve() in (Path(path).resolve(), *Path(path).resolve().parents)


def launcher_beside(library, abi):
    """Returns the mpiexec of the library's installation, or None."""
    for parent in list(Path(library).parents)[:PARENTS + 1]:
        for name in ('mpiexec', 'mpirun'):
            for suffix in (SUFFIX[abi], ''):
                program = parent / 'bin' / f'{name}{suffix}'
                if os.access(program, os.X_OK) and not program.is_dir():
                    return [str(program)]
    return None


def given_launcher(text):
    words = shlex.split(text)
    if not words or not shutil.which(words[0]):
        raise Stop(f"--launcher: there is no program '{words[0] if words else ''}'")
    return words


def choose(tool, mpi=None, launcher=None):
    """Chooses the HostMpi to measure. Returns it with the output of `sluice info`; raises Stop with the
    remedy."""
    info = tool_info(tool, environment_for(mpi) if mpi else None)
    found = [m for m in info['mpis'] if m['abi'] in ABI_PROGRAM]
    if mpi:
        place = Path(mpi).resolve()
        inside = [m for m in found if is_below(m['library'], place)]
        found = [m for m in inside if Path(m['library']).resolve() == place] or inside
    if not found:
        raise Stop(f'--mpi {mpi}: no MPI library there' if mpi else
                   'no MPI library is found; name one: --mpi PATH')
    served = [m for m in found if m['served']]
    if not served:
        raise Stop(f'{found[0]["library"]}: {found[0]["reason"]}')
    words = given_launcher(launcher) if launcher else None
    for m in served:
        beside = words or launcher_beside(m['library'], m['abi'])
        if beside:
            return HostMpi(m['library'], m['abi'], m['version'] or '', beside), info
    raise Stop(f'{served[0]["library"]}: this installation has no mpiexec; name a launcher: '
               '--launcher "COMMAND"')
