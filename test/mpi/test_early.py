# SPDX-License-Identifier: BSD-3-Clause
"""Early return is never seen: what programs do right after a collective, on every guard and engine.

Run alone: ./dev check mpi -k write_to_a_pipe; all of it: ./dev check mpi --complete -k early
"""
import json
import os
import re
import shutil
import subprocess
import tempfile

import pytest

from support.behaviours import Runner, behaviours
from support.engines import ENGINES, engine_env
from support.mpi import forced
from support.paths import SOURCES

# Everything is taken, adopted at once and returned from early, whether that pays or not.
EARLY = {'SLUICE_COLL_THRESHOLD': '1', 'SLUICE_REGION_ADOPT_AFTER': '0', 'region_adopt_min': '16K',
         'SLUICE_EARLY': 'on', 'SLUICE_EARLY_MIN': '1', 'SLUICE_WORKERS': '1',
         'OMP_NUM_THREADS': '4'}
LATER = {**EARLY, 'SLUICE_REGION_ADOPT_AFTER': '1'}
# Not only those kinds that are taken anyhow.
FAMILIES = ('SCATTER', 'ALLGATHER', 'ALLTOALL', 'REDUCE', 'ALLREDUCE', 'REDUCE_SCATTER', 'SCAN', 'NEIGHBOR',
            'VECTOR')
KINDS = {f'coll:{family}': 'on' for family in FAMILIES}
GUARDS = ['uffd', 'mremap', 'mprotect']

needs_early_returns = pytest.mark.skipif(forced.get('SLUICE_ENDPOINTS_SWITCH') == 'user',
                                         reason='ranks that switch do not return early')


C_PROGRAMS = ['early_touch.c', 'early_files.c', 'early_calls.c', 'early_memory.c', 'early_forks.c',
              'early_signals.c', 'early_threads.c', 'early_mpi.c', 'early_many.c', 'early_rings.c',
              'early_openmp.c', 'early_kinds.c']
# Where only userfaultfd can make a process wait that is not ours, or a thread of the kernel.
FOREIGN = {'uffd': '1', 'mremap': '0', 'mprotect': '0'}
BY_NAME = pytest.mark.complete
# The default check runs every program, every guard, every engine, both MPIs; not their product.
DEFAULT = {
    ('early_touch.c', 'mpich', 2, 'uffd', 'delay'), ('early_touch.c', 'openmpi', 2, 'mprotect', 'sw'),
    ('early_touch.c', 'mpich', 2, 'mremap', 'hang'), ('early_files.c', 'mpich', 2, 'mremap', 'delay'),
    ('early_calls.c', 'mpich', 2, 'mremap', 'sw'), ('early_calls.c', 'openmpi', 2, 'uffd', 'error'),
    ('early_memory.c', 'mpich', 2, 'mremap', 'sw'), ('early_forks.c', 'mpich', 2, 'mremap', 'sw'),
    ('early_signals.c', 'mpich', 2, 'mremap', 'delay'), ('early_threads.c', 'mpich', 2, 'mremap', 'sw'),
    ('early_threads.c', 'mpich', 2, 'uffd', 'rate'), ('early_mpi.c', 'openmpi', 2, 'mremap', 'sw'),
    ('early_many.c', 'mpich', 2, 'uffd', 'sw'), ('early_many.c', 'mpich', 3, 'mremap', 'none'),
    ('early_touch.c', 'mpich', 2, 'mremap', 'process'), ('early_many.c', 'openmpi', 2, 'uffd', 'process'),
    ('early_rings.c', 'mpich', 2, 'mremap', 'sw'), ('early_openmp.c', 'mpich', 2, 'mremap', 'sw'),
    ('early_kinds.c', 'mpich', 2, 'mremap', 'process'), ('early_kinds.c', 'openmpi', 2, 'uffd', 'delay'),
    ('early_kinds.c', 'mpich', 3, 'mprotect', 'none'), ('early_touch.c', 'mpich', 2, 'mremap', 'dsa'),
    ('early_many.c', 'mpich', 2, 'uffd', 'dsa_faults'),
}
# The engines that the other MPIs and numbers of ranks are tried with.
FEW = ('sw', 'delay', 'process')


def jobs():
    """(program, mpi, ranks, guard, engine)"""
    for program in C_PROGRAMS:
        for guard in GUARDS:
            for engine in ENGINES:
                yield program, 'mpich', 2, guard, engine
                if engine in (*FEW, 'error'):
                    yield program, 'openmpi', 2, guard, engine
            yield program, 'mpich', 3, guard, 'none'
            yield program, 'mpich', 4, guard, 'sw'
            yield program, 'mpich', 4, guard, 'process'
            yield program, 'openmpi', 3, guard, 'delay'
        yield program, 'impi', 2, 'uffd', 'sw'
        yield program, 'impi', 2, 'mremap', 'delay'


def marks_of(job):
    return () if job in DEFAULT else (pytest.mark.complete,)


def each_job():
    return [pytest.param(*job, id='-'.join(map(str, job)), marks=marks_of(job)) for job in jobs()]


def each_behaviour():
    return [pytest.param(*job, name, id=f'{name}-{"-".join(map(str, job[1:]))}', marks=marks_of(job))
            for job in jobs() for name, least in behaviours(job[0]) if least <= job[2]]


@pytest.fixture(scope='module')
def early_runner(tmp_path_factory, request, get_mpi, with_sluice):
    return EarlyRunner(tmp_path_factory.mktemp('early'), request, get_mpi, with_sluice)


class EarlyRunner:
    """Each job once, whichever of the tests comes first."""

    def __init__(self, folder, request, get_mpi, with_sluice):
        wanted = {}
        for item in request.session.items:
            params = getattr(getattr(item, 'callspec', None), 'params', {})
            if 'behaviour' in params and 'engine' in params:
                wanted.setdefault(params['program'], set()).add(params['behaviour'])
        self.folder, self.get_mpi, self.with_sluice = folder, get_mpi, with_sluice
        self.runner, self.complete = Runner(wanted), request.config.getoption('--complete')
        self.wanted = wanted

    def how(self, job):
        program, mpi, ranks, guard, engine = job
        env = {**(EARLY if ranks == 2 else LATER), **engine_env(engine), 'SLUICE_GUARD_KIND': guard,
               **(KINDS if program == 'early_kinds.c' else {}),
               'HARNESS_FOREIGN': FOREIGN[guard], 'HARNESS_TRIALS': '12' if self.complete else '6',
               'SLUICE_STATS': str(self.folder / '-'.join(map(str, job)))}
        return self.get_mpi(mpi), program, ranks, env

    def check(self, job, behaviour):
        mpi, program, ranks, env = self.how(job)
        return self.runner.check(mpi, program, ranks, behaviour, sluice=self.with_sluice, env=env,
                                 timeout=200)

    def counters(self, job, again=0):
        """The sum over the ranks of the job in which all behaviours ran. again: 1, 2 ...: in another run."""
        mpi, program, ranks, env = self.how(job)
        names = [name for name, least in behaviours(program) if least <= ranks]
        runner = Runner(self.wanted) if again else self.runner
        if again:
            env['SLUICE_STATS'] += f'-again-{again}'
        report = runner.report(mpi, program, ranks, names[0], sluice=self.with_sluice, env=env, timeout=200)
        return counters(env['SLUICE_STATS'], report.result)


def counters(prefix, result):
    total, folder = {}, os.path.dirname(prefix)
    for name in os.listdir(folder):
        if name.startswith(os.path.basename(prefix) + '.'):
            with open(os.path.join(folder, name), encoding='utf-8') as f:
                for key, value in json.load(f).items():
                    total[key] = total.get(key, 0) + value
    assert total, 'no counters\n' + result.explain()
    return total


@pytest.mark.parametrize('program, mpi, ranks, guard, engine, behaviour', each_behaviour())
def test_unseen(program, mpi, ranks, guard, engine, behaviour, early_runner):
    """The program sees what it would see without Sluice; and where that is looked at, there was
    something not to be seen."""
    report = early_runner.check((program, mpi, ranks, guard, engine), behaviour)
    if early_runner.with_sluice and behaviour in report.notes:
        guarded = [int(re.search(r'(\d+) of', note).group(1)) for note in report.notes[behaviour]]
        assert sum(guarded) > 0, f'no buffer was guarded: {report.notes[behaviour]}'


@needs_early_returns
@pytest.mark.parametrize('program, mpi, ranks, guard, engine', each_job())
def test_really_early(program, mpi, ranks, guard, engine, early_runner):
    """The counters say that it has happened, and by whom the bytes were moved."""
    if not early_runner.with_sluice:
        pytest.skip('--plain')
    total = early_runner.counters((program, mpi, ranks, guard, engine))
    assert total['early'] >= 10 and total['early_touched'] + total['early_called'] > 0, total
    if guard != 'uffd' and program in ('early_files.c', 'early_calls.c'):
        assert total['dispatched'] > 0, total
    if program != 'early_mpi.c':
        assert total['faults'] > 0, total
    if engine in ('sw', 'delay', 'rate', 'error', 'process', 'dsa'):
        # the scheduler decides whether a worker or a waiting rank copies
        more = (early_runner.counters((program, mpi, ranks, guard, engine), i) for i in (1, 2, 3, 4))
        assert total['bytes_engine'] or any(t['bytes_engine'] for t in more), total
    if engine == 'error':
        assert total['engine_errors'] > 0, total
    if engine in ('hang', 'dsa_hang'):
        assert total['engine_retired'] > 0, total
    if engine in ('sw', 'delay', 'rate', 'none', 'process', 'dsa'):
        assert total['engine_errors'] == total['engine_retired'] == 0, total


# ---- which guard, when nobody asks -----------------------------------------------------------------------

NO_UFFD = ['deny=userfaultfd', 'deny=userfaultfd_device']
REFUSALS = {
    # what is refused, and whether calls return early then, and whether system calls are looked at
    'no_userfaultfd': (NO_UFFD, True, True),
    'userfaultfd_of_another_kernel': (['absent=userfaultfd', 'absent=userfaultfd_device'], True, True),
    'unprivileged': (['uid=65534'], True, True),
    'no_dispatch': (['absent=dispatch'], True, False),
    'nothing': (['absent=dispatch', *NO_UFFD], False, False),
}
CHOSEN = {'early_files.c': ['write_to_a_file', 'read_from_a_pipe', 'posix_aio'],
          'early_touch.c': ['load_of_the_first_byte', 'the_whole_is_overwritten']}


@pytest.mark.parametrize('name', ['mpich', pytest.param('openmpi', marks=pytest.mark.complete)])
@pytest.mark.parametrize('refusal', REFUSALS)
def test_guard_is_chosen_by_trial(name, refusal, get_mpi, with_sluice, restrict):
    """Privileged or not, with what the kernel offers: always right, early where it can be."""
    refused, early, dispatched = REFUSALS[refusal]
    mpi, before = get_mpi(name), [restrict, *refused, '--']
    if subprocess.run([*before, 'test', '-x', mpi.build('early_touch.c')]).returncode:
        pytest.skip('another user cannot read the build folder')
    with tempfile.TemporaryDirectory(dir='/tmp') as folder:
        os.chmod(folder, 0o777)
        check_choice(mpi, before, folder, with_sluice, early, dispatched)


def check_choice(mpi, before, folder, with_sluice, early, dispatched):
    for program, names in CHOSEN.items():
        env = {**EARLY, 'SLUICE_STATS': f'{folder}/{program}', 'HARNESS_TRIALS': '6', 'HOME': '/tmp'}
        result = mpi.launch(2, mpi.build(program), *names, sluice=with_sluice, before=before, env=env,
                            cwd='/tmp')
        assert result.status == 0 and not result.leftovers, result.explain()
        for behaviour in names:
            assert f'ok {behaviour}\n' in result.out, result.explain()
        if not with_sluice:
            continue
        total = counters(env['SLUICE_STATS'], result)
        assert (total['early'] > 0) == early, total
        if program == 'early_files.c':
            assert (total['dispatched'] > 0) == dispatched, total


# ---- for long, and for nothing ----------------------------------------------------------------------------

LONG = {**EARLY, 'SLUICE_COLL_THRESHOLD': '64K'}
ONE_OF_EACH = [('mpich', 2, 'uffd'), ('mpich', 2, 'mremap'), pytest.param('openmpi', 2, 'mremap',
                                                                         marks=BY_NAME),
               pytest.param('mpich', 2, 'mprotect', marks=BY_NAME), pytest.param('mpich', 3, 'uffd',
                                                                                 marks=BY_NAME)]


def check_one(mpi, program, ranks, behaviour, with_sluice, env, prefix, timeout=100):
    """The behaviour holds, with calls that return early; its notes and the counters."""
    env = {**env, 'SLUICE_STATS': str(prefix)}
    report = Runner({program: {behaviour}}).check(mpi, program, ranks, behaviour, sluice=with_sluice, env=env,
                                                  timeout=timeout)
    total = counters(env['SLUICE_STATS'], report.result) if with_sluice else {}
    assert not with_sluice or total['early'] > 0, total
    return report.notes.get(behaviour, []), total


@needs_early_returns
@pytest.mark.parametrize('behaviour', ['many_collectives', 'many_buffers_freed_meanwhile'])
@pytest.mark.parametrize('name, ranks, guard', ONE_OF_EACH)
def test_nothing_grows(name, ranks, guard, behaviour, get_mpi, with_sluice, tmp_path, request):
    """A leak of one descriptor or mapping a thousand collectives shows; ./dev check stress has two
    million."""
    count = '20000' if request.config.getoption('--complete') else '8000'
    check_one(get_mpi(name), 'early_long.c', ranks, behaviour, with_sluice,
              {**LONG, 'SLUICE_GUARD_KIND': guard, 'HARNESS_COUNT': count}, tmp_path / 'stats', timeout=280)


@pytest.mark.parametrize('name, ranks, guard', ONE_OF_EACH)
def test_random_operations(name, ranks, guard, get_mpi, with_sluice, tmp_path, request):
    """Random operations for some seconds, against a model."""
    seconds = '10' if request.config.getoption('--complete') else '6'
    check_one(get_mpi(name), 'early_random.c', ranks, 'random_operations', with_sluice,
              {**EARLY, **KINDS, 'SLUICE_GUARD_KIND': guard, 'HARNESS_SECONDS': seconds}, tmp_path / 'stats')


def numbers(notes):
    return [int(re.search(r'-?\d+(?= [sp])', note).group()) for note in notes]


@pytest.mark.alone
@pytest.mark.parametrize('name, ranks, guard', ONE_OF_EACH)
def test_idle_costs_nothing(name, ranks, guard, get_mpi, with_sluice, tmp_path):
    """With nothing under way nothing wakes up."""
    mpi, behaviour = get_mpi(name), 'switches_when_nothing_is_under_way'
    plain = Runner({'early_long.c': {behaviour}}).check(mpi, 'early_long.c', ranks, behaviour, sluice=False)
    notes, _ = check_one(mpi, 'early_long.c', ranks, behaviour, with_sluice,
                         {**LONG, 'SLUICE_GUARD_KIND': guard},
                         tmp_path / 'stats')
    assert max(numbers(notes)) <= max(numbers(plain.notes[behaviour])) + 10, (notes, plain.notes)


@pytest.mark.alone
@pytest.mark.parametrize('name, ranks, guard', ONE_OF_EACH)
def test_late_root(name, ranks, guard, get_mpi, with_sluice, tmp_path):
    """A rank that computes does not wait for its late root. (bench/ measures how little is lost.)"""
    notes, _ = check_one(get_mpi(name), 'early_long.c', ranks, 'calls_return_before_their_root_comes',
                         with_sluice,
                         {**LONG, 'SLUICE_GUARD_KIND': guard}, tmp_path / 'stats')
    assert not with_sluice or notes == ['rank 0: 5 of 5'], notes


@needs_early_returns
@pytest.mark.alone
@pytest.mark.complete
@pytest.mark.parametrize('guard', GUARDS)
def test_a_touch_waits_for_the_time_out_of_a_queue_that_hangs(guard, get_mpi, with_sluice, tmp_path):
    """And not 2 ms longer. On a busy machine now and then, so the shortest of some jobs counts."""
    if not with_sluice:
        pytest.skip('--plain')
    env = {**EARLY, **engine_env('dsa_hang'), 'SLUICE_GUARD_KIND': guard}
    waits = []
    for i in range(10):
        notes, total = check_one(get_mpi('mpich'), 'early_long.c', 2, 'touches_of_what_hangs', with_sluice,
                                 env, tmp_path / f'{i}')
        longest, = [int(re.search(r'(\d+) us', note).group(1)) for note in notes]
        waits += [longest] * (total['engine_retired'] > 0 and longest >= 45000)
        if waits and min(waits) <= 52000:
            return
    pytest.fail(f'touches waited for {waits} us')


@needs_early_returns
@pytest.mark.alone
def test_a_root_that_was_called_looks_again_after_the_time_out(get_mpi, with_sluice, tmp_path):
    """Its partner, which calls it each millisecond, is stopped meanwhile."""
    if not with_sluice:
        pytest.skip('--plain')
    notes, _ = check_one(get_mpi('mpich'), 'early_long.c', 2, 'root_that_was_called_looks_again', with_sluice,
                         {**LONG, **engine_env('dsa_hang'), 'SLUICE_GUARD_KIND': 'mremap'},
                         tmp_path / 'stats')
    assert re.search(r'\b[1-9] queues closed', notes[0]), notes


@needs_early_returns
@pytest.mark.alone
def test_a_root_goes_on_after_it_has_closed_a_queue(get_mpi, with_sluice, tmp_path):
    """The modelled device is a thread, whose system calls are dispatched: it needs what the root may hold."""
    if not with_sluice:
        pytest.skip('--plain')
    env = {**LONG, **engine_env('dsa_hang'), 'DSA_MODEL': 'rate=3', 'SLUICE_GUARD_KIND': 'mremap'}
    _, total = check_one(get_mpi('mpich'), 'early_long.c', 2, 'root_goes_on_after_it_has_closed_a_queue',
                         with_sluice, env, tmp_path / 'stats', timeout=30)
    assert total['engine_retired'] > 0, total


# at its first copy, so that it is the one that is looked at
ROOT_HANGS = {'hang': {'engine_fault': 'hang=1'}}


@pytest.mark.parametrize('engine', ['hang', pytest.param('sw', marks=BY_NAME),
                                    pytest.param('none', marks=BY_NAME),
                                    pytest.param('error', marks=BY_NAME)])
@pytest.mark.alone
@pytest.mark.parametrize('name, ranks, guard', ONE_OF_EACH)
def test_computing_root_holds_nobody_up(name, ranks, guard, engine, get_mpi, with_sluice, tmp_path):
    """A process takes back the copies of its hung channel without making a call; no other rank waits."""
    env = {**LONG, **ENGINES[engine], **ROOT_HANGS.get(engine, {}), 'SLUICE_GUARD_KIND': guard}
    _, total = check_one(get_mpi(name), 'early_long.c', ranks, 'computing_root_holds_nobody_up',
                         with_sluice, env,
                         tmp_path / 'stats')
    assert engine != 'hang' or not with_sluice or total['engine_retired'] > 0, total


# ---- host MPI functions inside a fault handler ------------------------------------------------------------

PLACES = ['touch_in_malloc', 'touch_in_stdio', 'touch_with_a_mutex']


def intrusions(behaviour, progress, name, guard, get_mpi, with_sluice, tmp_path):
    """In how many of four touches a function of the program ran in the host MPI, while the program
    held a lock."""
    notes, _ = check_one(get_mpi(name), 'early_inside.c', 2, behaviour, with_sluice,
                         {**EARLY, 'coll:nonblocking': 'off', 'SLUICE_GUARD_KIND': guard,
                          'SLUICE_FAULT_PROGRESS': progress}, tmp_path / 'stats')
    return sum(int(re.search(r'(\d+) of', note).group(1)) for note in notes)


@pytest.mark.parametrize('behaviour', PLACES)
@pytest.mark.parametrize('name, guard', [('mpich', 'mremap'), pytest.param('mpich', 'uffd', marks=BY_NAME),
                                         pytest.param('mpich', 'mprotect', marks=BY_NAME),
                                         pytest.param('openmpi', 'mremap', marks=BY_NAME)])
def test_no_host_mpi_inside_a_fault(name, guard, behaviour, get_mpi, with_sluice, tmp_path):
    """SLUICE_FAULT_PROGRESS=off: a touch never runs the host MPI, whose callbacks may want the
    program's locks."""
    assert intrusions(behaviour, 'off', name, guard, get_mpi, with_sluice, tmp_path) == 0


def test_host_mpi_inside_a_fault(get_mpi, with_sluice, tmp_path):
    """The control run: by default a touch that waits long runs it, as the manual page says."""
    if not with_sluice:
        pytest.skip('--plain')
    assert intrusions(PLACES[2], 'on', 'mpich', 'mremap', get_mpi, with_sluice, tmp_path) > 0


# ---- other languages -------------------------------------------------------------------------------------

OTHERS = [('mpich', 'uffd'), ('mpich', 'mremap'), pytest.param('openmpi', 'uffd', marks=BY_NAME),
          pytest.param('openmpi', 'mremap', marks=BY_NAME), pytest.param('mpich', 'mprotect', marks=BY_NAME),
          pytest.param('impi', 'mremap', marks=BY_NAME)]


@pytest.mark.parametrize('name, guard', OTHERS)
def test_c_plus_plus(name, guard, get_mpi, with_sluice, tmp_path):
    mpi = get_mpi(name)
    env = {**EARLY, 'SLUICE_GUARD_KIND': guard, 'SLUICE_STATS': str(tmp_path / 'stats')}
    result = mpi.launch(2, mpi.build('early_plus.cc'), sluice=with_sluice, env=env)
    assert result.status == 0 and 'ok early_plus' in result.out, result.explain()
    if with_sluice:
        assert counters(env['SLUICE_STATS'], result)['early_touched'] > 0


@pytest.mark.parametrize('name, guard', OTHERS)
def test_python(name, guard, get_mpi, with_sluice, tmp_path):
    """numpy, pickle, files, sockets, children and threads; then a true crash, of which faulthandler
    tells, and by which the process dies."""
    mpi = get_mpi(name)
    env = {**EARLY, 'SLUICE_GUARD_KIND': guard, 'SLUICE_STATS': str(tmp_path / 'stats')}
    program = SOURCES / 'early_faulthandler.py'
    result = mpi.launch(2, mpi.python, program, sluice=with_sluice, env=env)
    assert result.status == 0 and 'ok early_python' in result.out, result.explain()
    assert not result.leftovers, result.leftovers
    if with_sluice:
        assert counters(env['SLUICE_STATS'], result)['early_touched'] > 0
    env.pop('SLUICE_STATS')
    result = mpi.launch(2, mpi.python, SOURCES / 'early_status.py', mpi.python, program,
                        'crash', sluice=with_sluice, env=env, cwd=tmp_path)
    assert 'Fatal Python error: Segmentation fault' in result.out, result.explain()
    assert 'string_at' in result.out, result.explain()
    assert re.search(r'ended \S+: signal 11', result.out), result.explain()


# ---- debuggers ---------------------------------------------------------------------------------------------

DEBUGGERS = {'gdb': ['gdb', '-nx', '-batch', '-iex', 'set debuginfod enabled off', '-ex', 'run', '-ex',
                     'backtrace', '--args'],
             'strace': ['strace', '-f', '-e', 'trace=none'], 'ltrace': ['ltrace', '-e', 'MPI_Bcast@MAIN']}


@pytest.mark.parametrize('tool', DEBUGGERS)
def test_a_debugger_sees_no_signal_of_sluice(tool, get_mpi, with_sluice, tmp_path):
    if not shutil.which(tool):
        pytest.skip(f'no {tool}')
    mpi = get_mpi('mpich')
    env = {**EARLY, 'SLUICE_STATS': str(tmp_path / 'stats')}
    result = mpi.launch(2, mpi.build('early_plus.cc'), sluice=with_sluice, env=env, before=DEBUGGERS[tool])
    if 'ptrace' in result.out and 'not permitted' in result.out:
        pytest.skip('ptrace is not permitted')
    assert 'ok early_plus' in result.out, result.explain()
    assert not re.search(r'SIGSYS|SIGSEGV|Segmentation', result.out), result.explain()
    if with_sluice:
        assert counters(env['SLUICE_STATS'], result)['early'] == 0


# ---- the end of a program ----------------------------------------------------------------------------------

ENDS = ['finalize', 'late_free', 'child', 'exit', 'exit_code', '_exit', 'quick_exit', 'thread_exit', 'exec',
        'mpi_abort', 'segv', 'abort', 'term', 'kill', 'bus', 'sys']
PAIRS = [('mpich', 'uffd'), ('mpich', 'mremap'), pytest.param('openmpi', 'uffd', marks=BY_NAME),
         pytest.param('openmpi', 'mremap', marks=BY_NAME), pytest.param('mpich', 'mprotect', marks=BY_NAME)]


def endings(result):
    """How each rank ended; which rank is first to end is chance, where the launcher ends the others. Lines
    of two ranks may run into each other."""
    found = set(re.findall(r'ended \S+: ((?:exit|signal) -?\d+(?:, core)?)', result.out))
    if forced.get('SLUICE_ENDPOINTS'): # the rank dumps core, and the launched process cannot say so
        found = {end.removesuffix(', core') for end in found}
    return sorted(found)


@pytest.fixture(scope='module')
def plain_ends():
    return {}


@pytest.mark.parametrize('end', ENDS)
@pytest.mark.parametrize('name, guard', PAIRS)
def test_end(name, guard, end, get_mpi, with_sluice, tmp_path, plain_ends):
    """Status, signal and core dump of a program that ends with broadcasts under way are those of the
    same program without Sluice; it ends soon, and what it looks at last is right."""
    mpi = get_mpi(name)
    program = mpi.build('early_exit.c')
    wrapped = [mpi.python, SOURCES / 'early_status.py'] if end != 'mpi_abort' else []
    if (name, end) not in plain_ends:
        plain_ends[name, end] = mpi.launch(2, program, end, sluice=False, cwd=tmp_path, before=wrapped)
    plain = plain_ends[name, end]
    env = {**EARLY, 'SLUICE_GUARD_KIND': guard, 'SLUICE_STATS': str(tmp_path / 'stats')}
    ours = mpi.launch(2, program, end, sluice=with_sluice, env=env, cwd=tmp_path, before=wrapped)
    explained = f'{ours.explain()}\nwithout Sluice:\n{plain.explain()}'
    assert not ours.timed_out and not ours.leftovers, explained
    if end in ('finalize', 'late_free', 'child', 'mpi_abort'):
        assert ours.status == plain.status, explained # else chance decides whom the launcher ends
    if wrapped:
        assert set(endings(ours)) <= set(endings(plain)) | {'signal 9', 'signal 15'}, explained
        assert set(endings(ours)) & set(endings(plain)), explained
    assert ('ok ' in ours.out) == ('ok ' in plain.out), explained
    assert 'slice' not in ours.out, explained
    assert ours.seconds < plain.seconds + 15, explained
