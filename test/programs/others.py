# SPDX-License-Identifier: BSD-3-Clause
"""Programs that nobody here wrote: which package has them, their input, and which of their output counts."""
import gzip
import os
import pathlib
import re
import shutil
import subprocess

from support import mpi as mpis
from support.paths import BUILD

HERE = pathlib.Path(__file__).resolve().parent
SCALAPACK = pathlib.Path('/usr/lib/x86_64-linux-gnu/scalapack')
SCALAPACK_DATA = pathlib.Path('/usr/share/scalapack')
LAMMPS = pathlib.Path('/usr/share/lammps/examples')
PETSC = pathlib.Path('/usr/share/petsc')
PSEUDO = pathlib.Path('/usr/share/doc/quantum-espresso/examples/atomic/pseudo-LDA-0.5/Si.pz-vbc.UPF.gz')
FOAM = pathlib.Path('/usr/share/doc/openfoam-examples/examples/incompressible/icoFoam/cavity/cavity')
CP2K_DATA = pathlib.Path('/usr/share/cp2k')
NWCHEM_DATA = pathlib.Path('/usr/share/nwchem')
COARRAYS = pathlib.Path('/usr/lib/x86_64-linux-gnu/open-coarrays')
FFT = BUILD / 'venv-programs/lib'

NUMBER = re.compile(r'[-+]?(?:\d+\.\d*|\.\d+)(?:[eEdD][-+]?\d+)?')
# Lines and words that tell time, speed or the place of the run.
TIMES = re.compile(r'time|second|sec\b|wall|\bcpu|flop|GB/s|MB|Kbytes|speed|performance|started on|'
                   r'terminated|date|memory|\bRAM\b|pid|tau/day|ns/day|timesteps/s|version|/tmp|\|', re.I)


class Program:
    """One program: `prepare(folder, ranks)` writes its input and returns the command line.

    keep: the lines that count (all but those with times); numbers: whether numbers with fractions are
    compared, within `tolerance`; made: files that it writes, compared as its output is.
    """

    def __init__(self, name, package, mpi, prepare, needs, *, ranks=(1, 2, 4), keep='', numbers=True,
                 tolerance=0.0, made=(), least=1, env=None, has_collectives=True, ends=(0,)):
        self.name, self.package, self.mpi, self.prepare, self.needs = name, package, mpi, prepare, needs
        self.ranks, self.keep, self.numbers, self.tolerance = ranks, re.compile(keep), numbers, tolerance
        self.made, self.least, self.env = made, least, env or {}
        self.has_collectives, self.ends = has_collectives, ends # exit statuses

    def missing(self):
        """Why it cannot run, or None."""
        if not any(shutil.which(str(need)) or pathlib.Path(need).exists() for need in [self.needs]):
            return f'{self.name} is not here: apt-get install {self.package}'
        return mpis.ALL[self.mpi].missing()

    def spins(self):
        return self.mpi == 'debian-mpich'

    def lines(self, text):
        """The output without times: a list of words a line, numbers with fractions as float."""
        found = []
        for line in text.splitlines():
            if TIMES.search(line) or not self.keep.search(line) or not line.strip():
                continue
            line = line if self.numbers else NUMBER.sub('', line)
            found.append([float(word.replace('D', 'e')) if NUMBER.fullmatch(word) else word
                          for word in line.split()])
        return found


def is_close(a, b, tolerance):
    if isinstance(a, float) and isinstance(b, float):
        return a == b or abs(a - b) <= tolerance * max(abs(a), abs(b), 1.0)
    return a == b


def difference(plain, ours, tolerance):
    """The first line that differs, or None."""
    for a, b in zip(plain, ours):
        if len(a) != len(b) or not all(is_close(x, y, tolerance) for x, y in zip(a, b)):
            return f'plain:  {" ".join(map(str, a))}\nSluice: {" ".join(map(str, b))}'
    return None if len(plain) == len(ours) else f'{len(plain)} lines plain, {len(ours)} with Sluice'


# ---- HPC Challenge -------------------------------------------------------------------------------

GRIDS = {1: (1, 1), 2: (1, 2), 3: (1, 3), 4: (2, 2)}
HPCC = '''HPLinpack benchmark input file
Innovative Computing Laboratory, University of Tennessee
HPL.out
6
1
300
1
60
0
1
{p}
{q}
16.0
1
2
1
4
1
2
1
1
1
1
1
0
2
64
0
0
1
8
##### This line (no. 32) is ignored
0
1200 10000 30000
0
40 9 8 13 13 20 16 32 64
'''


def hpcc(folder, ranks):
    p, q = GRIDS[ranks]
    (folder / 'hpccinf.txt').write_text(HPCC.format(p=p, q=q))
    return ['hpcc']


# ---- ScaLAPACK ---------------------------------------------------------------------------------------

FOUR = ['xdsvd', 'xdsep', 'xCbtest', 'xFbtest'] # testers that need a grid of 2 x 2
# Their last test is that an abort ends the job, which leaves no counters.
BLACS = {'ends': (0, 1, 255), 'has_collectives': False, 'keep': 'PASSED|FAILED'}


def tester(folder_name, data):
    def prepare(folder, ranks):
        for path in [*SCALAPACK_DATA.glob('*.dat'), *(SCALAPACK_DATA / 'BLACS').glob('*.dat'),
                     *(SCALAPACK_DATA / 'PBLAS').rglob('*.dat')]:
            shutil.copy(path, folder)
        return [SCALAPACK / folder_name / data]
    return prepare


def scalapack():
    names = ['xdlu', 'xzlu', 'xdllt', 'xdqr', 'xdtrd', 'xdsvd', 'xdinv', 'xdls', 'xdbrd', 'xdhrd', 'xzinv',
             'xdsep', 'xddblu', 'xdpbllt', 'PBLAS/dpb1tst', 'PBLAS/dpb2tst', 'PBLAS/dpb3tst', 'PBLAS/zpb3tst',
             'xCbtest', 'xFbtest']
    for library in ('mpich', 'openmpi'):
        for name in names:
            if library == 'mpich' or name in (*FOUR, 'xdlu', 'xdqr', 'PBLAS/dpb3tst'):
                yield Program(f'{name.split("/")[-1]}-{library}', 'scalapack-mpi-test', f'debian-{library}',
                              tester(f'{library}-tests', name), SCALAPACK / f'{library}-tests' / name,
                              numbers=False, ranks=(4,) if library == 'openmpi' or name in FOUR else (2, 4),
                              **(BLACS if name.endswith('btest') else {}))


# ---- LAMMPS ----------------------------------------------------------------------------------------------

def lammps(example, steps):
    def prepare(folder, ranks):
        for path in (LAMMPS / example).iterdir():
            if path.is_file():
                shutil.copy(path, folder)
        script = folder / f'in.{example}'
        script.write_text(re.sub(r'^run\s+\d+', f'run {steps}', script.read_text(), flags=re.M))
        return ['lmp', '-in', script.name, '-log', 'none']
    return prepare


# ---- Quantum ESPRESSO ------------------------------------------------------------------------------------

PW = '''&control
 calculation='scf', prefix='si', pseudo_dir='.', outdir='out', tprnfor=.true., tstress=.true.
/
&system
 ibrav=2, celldm(1)=10.20, nat=2, ntyp=1, ecutwfc=24.0
/
&electrons
 conv_thr=1.0d-8
/
ATOMIC_SPECIES
 Si 28.086 Si.UPF
ATOMIC_POSITIONS alat
 Si 0.00 0.00 0.00
 Si 0.26 0.25 0.25
K_POINTS automatic
 2 2 2 1 1 1
'''


def espresso(folder, ranks):
    (folder / 'Si.UPF').write_bytes(gzip.decompress(PSEUDO.read_bytes()))
    (folder / 'si.in').write_text(PW)
    return ['pw.x', '-i', 'si.in', *(['-nd', '4'] if ranks == 4 else [])]


# ---- CP2K, NWChem ------------------------------------------------------------------------------------

WATER = [(element, x + dx, y + dy, z + dz)
         for x, y, z in ((0, 0, 0), (2.9, 0, 0.1), (0.1, 2.9, 1.1), (2.9, 2.9, 3.1))
         for element, dx, dy, dz in (('O', 0, 0, 0), ('H', 0, 0.757, 0.587), ('H', 0, -0.757, 0.587))]
CP2K = '''&GLOBAL
 PROJECT water
 RUN_TYPE MD
&END GLOBAL
&MOTION
 &MD
  STEPS 2
  TIMESTEP 0.5
  TEMPERATURE 300
 &END MD
&END MOTION
&FORCE_EVAL
 METHOD Quickstep
 &DFT
  BASIS_SET_FILE_NAME BASIS_SET
  POTENTIAL_FILE_NAME GTH_POTENTIALS
  &MGRID
   CUTOFF 140
  &END MGRID
  &SCF
   EPS_SCF 1.0E-5
   &OT
   &END OT
  &END SCF
  &XC
   &XC_FUNCTIONAL Pade
   &END XC_FUNCTIONAL
  &END XC
 &END DFT
 &SUBSYS
  &CELL
   ABC 6.0 6.0 6.0
  &END CELL
  &COORD
%s
  &END COORD
  &KIND H
   BASIS_SET DZVP-GTH-PADE
   POTENTIAL GTH-PADE-q1
  &END KIND
  &KIND O
   BASIS_SET DZVP-GTH-PADE
   POTENTIAL GTH-PADE-q6
  &END KIND
 &END SUBSYS
&END FORCE_EVAL
'''
NWCHEM = '''start water
geometry units angstrom noautosym
%s
end
basis
 * library 6-31g**
end
dft
 xc b3lyp
end
task dft energy
task mp2 energy
'''


def atoms(count):
    return '\n'.join(f'{element} {x} {y} {z}' for element, x, y, z in WATER[:count])


def cp2k(folder, ranks):
    (folder / 'water.inp').write_text(CP2K % atoms(12))
    return ['cp2k.psmp', '-i', 'water.inp']


def nwchem(folder, ranks): # Global Arrays: one-sided operations
    (folder / 'water.nw').write_text(NWCHEM % atoms(6))
    return ['nwchem.openmpi', 'water.nw']


# ---- OpenFOAM ------------------------------------------------------------------------------------------

def foam(folder, ranks):
    case = folder / 'cavity'
    shutil.copytree(FOAM, case)
    for path in case.rglob('*.gz'):
        path.with_suffix('').write_bytes(gzip.decompress(path.read_bytes()))
        path.unlink()
    for name, old, new in [('blockMeshDict', '(20 20 1)', '(96 96 1)'), ('controlDict', '0.005;', '0.0005;'),
                           ('controlDict', 'endTime         0.5;', 'endTime         0.02;')]:
        path = case / 'system' / name
        assert old in path.read_text(), f'{path} has changed'
        path.write_text(path.read_text().replace(old, new))
    head = 'FoamFile { version 2.0; format ascii; class dictionary; object decomposeParDict; }\n'
    (case / 'system/decomposeParDict').write_text(
        f'{head}numberOfSubdomains {ranks};\nmethod simple;\ncoeffs {{ n ({ranks} 1 1); }}\n')
    for tool in ('blockMesh', 'decomposePar'):
        subprocess.run([tool], cwd=case, check=True, stdout=subprocess.DEVNULL,
                       env={**os.environ, **FOAM_ENV})
    return ['icoFoam', '-parallel', '-case', case]


FOAM_ENV = {'WM_PROJECT_DIR': '/usr/share/openfoam'}


# ---- Coarray Fortran: one-sided operations -------------------------------------------------------------

def coarrays():
    tests = COARRAYS / 'openmpi/bin/OpenCoarrays-2.10.1-tests'
    for name in ('coarray_burgers_pde', 'co_reduce_test'):
        yield Program(name, 'libcoarrays-openmpi-dev', 'debian-openmpi',
                      lambda folder, ranks, name=name: [tests / name], tests / name, ranks=(2,),
                      keep='passed', has_collectives=False)


# ---- PETSc, hypre ------------------------------------------------------------------------------------------

def petsc(source, *options):
    def prepare(folder, ranks):
        path = next(PETSC.glob(f'*/share/petsc/examples/src/{source}'))
        flags = subprocess.run(['pkg-config', '--cflags', '--libs', 'petsc'], check=True, text=True,
                               capture_output=True).stdout.split()
        program = folder / path.stem
        subprocess.run(['mpicc.openmpi', '-w', '-o', program, path, *flags, '-lm'], check=True)
        return [program, *options]
    return prepare


# ---- mpi4py-fft --------------------------------------------------------------------------------------------

def fft(library, name, shape, grid):
    site = next(FFT.glob('python*/site-packages'), FFT)

    def prepare(folder, ranks):
        return [mpis.ALL[library].python, HERE / 'transform.py', shape, grid]
    return Program(f'{name}-{library}', 'libfftw3-dev, then ./dev check programs again', library, prepare,
                   site / 'mpi4py_fft', env={'PYTHONPATH': str(site)}, tolerance=1e-12, least=2)


def netpipe(library):
    program = {'mpich': 'NPmpich2', 'openmpi': 'NPopenmpi'}[library]
    return Program(f'netpipe-{library}', f'netpipe-{library.replace("mpich", "mpich2")}', f'debian-{library}',
                   lambda folder, ranks: ['sh', '-c', f'{program} -i -n 40 -u 300000 2>&1 | sed s/times//'],
                   program, ranks=(2,), keep='ntegrity check passed', numbers=False,
                   has_collectives=False)


PROGRAMS = [
    Program('hpcc', 'hpcc', 'debian-openmpi', hpcc, 'hpcc', numbers=False, made=['hpccoutf.txt'],
            keep=r'PASSED|FAILED|Success|rrors|_N=|Passed|Failed|Verification|skipped'),
    *scalapack(),
    *[Program(f'lammps-{name}', 'lammps lammps-examples', 'debian-openmpi', lammps(name, steps),
              LAMMPS / name, ranks=(1, 2, 3, 4), tolerance=1e-6)
      for name, steps in [('melt', 100), ('peptide', 30), ('crack', 100), ('rigid', 100), ('friction', 100)]],
    Program('pw.x', 'quantum-espresso quantum-espresso-data', 'debian-openmpi', espresso, PSEUDO,
            ranks=(1, 2, 3, 4), tolerance=2e-6,
            keep=r'^!|energy|convergence|force|total|^\s+-?\d+\.\d+ +-?\d'),
    Program('cp2k', 'cp2k', 'debian-openmpi', cp2k, CP2K_DATA, ranks=(2, 4), tolerance=1e-8,
            keep='ENERGY|Total energy'),
    Program('nwchem', 'nwchem-openmpi', 'debian-openmpi', nwchem, NWCHEM_DATA, ranks=(2, 4), tolerance=1e-8,
            keep=r'Total \w+ energy|Correlation energy'),
    Program('icoFoam', 'openfoam openfoam-examples', 'debian-openmpi', foam, FOAM, env=FOAM_ENV,
            keep='Solving|Courant|continuity', tolerance=1e-6),
    *coarrays(),
    *[Program(f'petsc-{name}', 'libpetsc-real-dev libpetsc3.18-dev-examples', 'debian-openmpi',
              petsc(source, *options), PETSC, tolerance=1e-6)
      for name, source, options in [
          ('ksp-ex2', 'ksp/ksp/tutorials/ex2.c', ['-m', '200', '-n', '200', '-ksp_monitor_short']),
          ('hypre-ex2', 'ksp/ksp/tutorials/ex2.c', ['-m', '300', '-n', '300', '-pc_type', 'hypre',
                                                    '-ksp_monitor_short']),
          ('snes-ex19', 'snes/tutorials/ex19.c', ['-da_refine', '4', '-snes_monitor_short',
                                                  '-pc_type', 'mg'])]],
    *[fft(library, name, shape, grid) for library in ('mpich', 'openmpi')
      for name, shape, grid in [('slab', '512x512', 'slab'), ('pencil', '64x48x40', 'pencil'),
                                ('large', '1024x1024', 'slab')]],
    netpipe('mpich'), netpipe('openmpi'),
]
