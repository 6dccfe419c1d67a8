# SPDX-License-Identifier: BSD-3-Clause
"""MPI programs with a sanitized libsluice.so: our code is instrumented, the MPI library is not.

The runtime of the sanitizer is preloaded before Sluice, so its allocator stands before our hooks and tells
only what is freed: what depends on seeing more of it is the other tests' business. TSan cannot live with
UCX's memory hooks and its trial of process_vm_readv, which are switched off for it. Run alone: ./dev check
sanitize -k tsan-threads
"""
import json
import os
import subprocess

import pytest

from support import mpi as mpis
from support.behaviours import Runner, behaviours
from support.paths import BUILD

LIBRARIES = {'asan': 'libasan.so', 'tsan': 'libtsan.so'}
ENV = {
    'asan': {'ASAN_OPTIONS': 'verify_asan_link_order=0:detect_leaks=0:exitcode=99',
             'UBSAN_OPTIONS': 'print_stacktrace=1:halt_on_error=1'},
    # its own handlers would be installed through our sigaction before it can bear instrumented code
    'tsan': {'TSAN_OPTIONS': 'exitcode=99:halt_on_error=1:handle_segv=0:handle_sigbus=0:handle_abort=0:'
                             'handle_sigill=0:handle_sigfpe=0', 'UCX_MEM_EVENTS': 'no',
             'UCX_TLS': '^cma',
             # a process started as by vfork shares TSan's own memory, which takes it for a forked child
             'SLUICE_WORKER_KIND': 'thread'},
}
# Everything returned from early. userfaultfd is taken where it can be had.
EARLY = {'SLUICE_COLL_THRESHOLD': '1', 'SLUICE_REGION_ADOPT_AFTER': '0', 'region_adopt_min': '16K',
         'SLUICE_EARLY': 'on', 'SLUICE_EARLY_MIN': '1', 'SLUICE_WORKERS': '1',
         'HARNESS_TRIALS': '6', 'HARNESS_COUNT': '3000', 'HARNESS_STEPS': '60'}
KINDS = ['SCATTER', 'ALLGATHER', 'ALLTOALL', 'REDUCE', 'ALLREDUCE', 'SCAN', 'REDUCE_SCATTER', 'VECTOR',
         'NEIGHBOR', 'BARRIER',
         'NONBLOCKING']
TAKEN = {'SLUICE_COLL_THRESHOLD': '1', **{f'coll:{kind}': 'on' for kind in KINDS},
         'CHECK_REQUESTS': '500',
         'HARNESS_STEPS': '250'}
WAYS = {
    'default': {},
    # requests: all of them, with a queue behind few places
    'taken': TAKEN,
    'taken_few': {**TAKEN, 'SLUICE_REGION_ADOPT_AFTER': '1', 'region_adopt_min': '16K',
                  'fault': 'slots:all'},
    'taken_early': {**EARLY, **TAKEN, 'SLUICE_GUARD_KIND': 'uffd', 'fault': 'slots:all'},
    'one_byte': {'SLUICE_COLL_THRESHOLD': '1'},
    'adopt': {'SLUICE_COLL_THRESHOLD': '1', 'SLUICE_REGION_ADOPT_AFTER': '1',
              'region_adopt_min': '16K'},
    'staged': {'SLUICE_COLL_THRESHOLD': '1', 'SLUICE_REGION_KIND': 'staged'},
    'early': {**EARLY, 'SLUICE_GUARD_KIND': 'uffd'},
    'early_mremap': {**EARLY, 'SLUICE_GUARD_KIND': 'mremap'},
}
# ASan makes mlock a no-op and keeps freed memory for a while.
NOT_UNDER_ASAN = {'locked_memory_stays_locked', 'many_different_buffers', 'many_buffers_at_once',
                  'huge_pages_are_kept', 'library_that_is_closed'}
# TSan does not know these or forbids them: threads that the C library makes by itself, memory shared with
# a process, stacks that overflow, a thread that is cancelled anywhere.
NOT_UNDER_TSAN = {'threads_of_the_c_library', 'clone_with_shared_memory', 'handler_on_a_small_stack',
                  'stack_overflow_caught_on_another_stack', 'threads_cancelled_while_they_touch'}
REDUCED = {('asan', 'semantics', 'adopt'), ('asan', 'datatypes', 'one_byte'), ('tsan', 'threads', 'adopt'),
           ('asan', 'early_memory', 'early_mremap'), ('tsan', 'early_many', 'early'),
           ('asan', 'requests_threads', 'taken_early'), ('asan', 'requests_random', 'taken_early'),
           ('tsan', 'requests_random', 'taken_few'), ('tsan', 'requests_short', 'taken_few')}
# Threads are what TSan is for; forks are what it does not support. It has a thread of its own that no
# guard but userfaultfd could stop, so that calls return early with that one only.
PROGRAMS = {'asan': ['semantics', 'datatypes', 'threads', 'adoption', 'forks', 'memory', 'random_ops'],
            'tsan': ['semantics', 'datatypes', 'threads', 'random_ops']}
PROGRAMS_EARLY = {'asan': ['early_touch', 'early_files', 'early_calls', 'early_memory', 'early_mpi',
                           'early_many'],
                  'tsan': ['early_touch', 'early_many', 'early_threads']}
# Nonblocking ones; those that are taken in buffers that are used again only are so by default. That
# two threads write into
# the same memory of a peer one after the other is the peer's doing, in a process that TSan does not see.
PROGRAMS_REQUESTS = {'tsan': ['requests', 'requests_short', 'requests_held_up', 'requests_random',
                              'requests_said',
                              'requests_neighbours', 'persistent']}
PROGRAMS_REQUESTS['asan'] = [*PROGRAMS_REQUESTS['tsan'], 'requests_threads']
PROGRAMS_REQUESTS['tsan'] += ['persistent_ends'] # which has threads that start requests of one communicator
WAYS_REQUESTS = ['taken', 'taken_few', 'taken_early']
WAYS_EARLY = {'asan': ['early', 'early_mremap'], 'tsan': ['early']}


def jobs():
    for kind in PROGRAMS:
        for program in PROGRAMS[kind]:
            for way in ('one_byte', 'adopt', 'staged', *WAYS_EARLY[kind]):
                yield kind, program, way
        for program in PROGRAMS_EARLY[kind]:
            for way in WAYS_EARLY[kind]:
                yield kind, program, way
        for program in PROGRAMS_REQUESTS[kind]:
            for way in WAYS_REQUESTS:
                yield kind, program, way
        yield kind, 'again_nonblocking', 'default'
        yield kind, 'requests_random', 'default'


def cases():
    for job in jobs():
        marks = [] if job in REDUCED else [pytest.mark.complete]
        yield pytest.param(*job, id='-'.join(job), marks=marks)


def preload(kind):
    runtime = subprocess.run(['gcc', f'-print-file-name={LIBRARIES[kind]}'], capture_output=True,
                             text=True).stdout.strip()
    if not os.path.isabs(runtime):
        pytest.skip(f'{kind}: no {runtime}')
    library = BUILD / kind / 'src/mpi/libsluice.so'
    fixed = ['setarch', '-R'] if kind == 'tsan' else []
    return [*fixed, 'env', f'LD_PRELOAD={os.path.realpath(runtime)}:{library}']


@pytest.mark.usefixtures('built')
@pytest.mark.timeout(400, func_only=True)
@pytest.mark.parametrize('build, program, way', cases())
def test_sanitized(build, program, way, tmp_path):
    """Every behaviour of the program holds, and the sanitizer has nothing to say."""
    mpi = mpis.need('mpich')
    source = f'{program}.c'
    left_out = NOT_UNDER_ASAN | (NOT_UNDER_TSAN if build == 'tsan' else set())
    names = [name for name, least in behaviours(source) if least <= 2 and name not in left_out]
    env = {**ENV[build], **WAYS[way], 'SLUICE_STATS': str(tmp_path / 'stats')}
    job = Runner({}).job(mpi, source, 2, False, env, names, 300, preload(build))
    bad = [name for name in names if job.verdicts.get(name, ('fail',))[0] == 'fail']
    assert not bad and job.result.status == 0, f'{bad}\n{job.result.explain()}'
    assert 'Sanitizer' not in job.result.err and 'runtime error' not in job.result.err, job.result.explain()
    if program.startswith('early'):
        early = [json.loads(path.read_text())['early'] for path in tmp_path.glob('stats.*.json')]
        assert sum(early) > 0, early


@pytest.mark.usefixtures('built')
@pytest.mark.parametrize('build', LIBRARIES)
def test_freed_meanwhile(build):
    """The allocator of a sanitizer tells Sluice what is freed while its data still moves."""
    mpi = mpis.need('mpich')
    env = {**ENV[build], **WAYS['early'], 'SLUICE_DECIDE': 'table'}
    if build == 'asan': # which else unmaps it much later
        env['ASAN_OPTIONS'] += ':quarantine_size_mb=0:thread_local_quarantine_size_kb=0'
    job = Runner({}).job(mpi, 'early_many.c', 2, False, env, ['freed_and_mapped_again'], 100, preload(build))
    assert job.verdicts.get('freed_and_mapped_again') == ('ok', '') and job.result.status == 0, \
        f'{job.why}\n{job.result.explain()}'


@pytest.mark.usefixtures('built')
@pytest.mark.parametrize('build', ['tsan'])
def test_memory_flushed(build):
    """A thread of TSan's own, which may run no instrumented code, calls sched_yield() to empty its tables."""
    mpi = mpis.need('mpich')
    env = {**ENV[build], **WAYS['early'], 'TSAN_OPTIONS': ENV[build]['TSAN_OPTIONS'] + ':flush_memory_ms=300'}
    job = Runner({}).job(mpi, 'early_many.c', 2, False, env, ['strided_types'], 100, preload(build))
    assert job.verdicts.get('strided_types') == ('ok', '') and job.result.status == 0, job.result.explain()
