#!/usr/bin/env python3
# SPDX-License-Identifier: BSD-3-Clause
"""Check that the handlers of sud/ and guard/, and the memory hooks, which may run in handlers of the
program, call no function that is not async-signal-safe.

The files of FOLDERS are compiled with one section per function. From the functions in ROOTS every
call is followed; a function of the C library has to be in ALLOWED.

Usage: check_signal_safety.py [--root DIR] [--cc CC]   exit 0 clean, 1 something to fix, 2 misuse
"""
import argparse
import concurrent.futures
import os
import pathlib
import re
import subprocess
import sys
import tempfile

HERE = pathlib.Path(__file__).resolve().parent.parent

# Functions that the kernel calls, that are called through pointers, or that rt/ calls inside
# touched().
ROOTS = ['sigsegv', 'sigsys', 'guard_arm', 'guard_release', 'sud_enter', 'sud_exit',
         'guard_wait_begin', 'sud_wait_end', 'sud_wait_interrupted',
         'sud_allow_push', 'sud_allow_pop', 'guard_overlaps_sig', 'guard_touch_sig',
         'guard_complete_all_sig', 'guard_tidy_sig', 'guard_openings_sig',
         'mremap.c:kind_arm', 'mremap.c:kind_release', 'mprotect.c:kind_release', 'shadow_end',
         'mprotect_close',
         'uffd.c:kind_arm', 'uffd.c:kind_release', 'touch_it',
         # of rt/, exec/, xfer/ and engine/: the thread that touches copies
         'on_hold', 'on_touched', 'on_complete_all', 'on_tidy', 'channel_idle', 'view_at', 'xfer_move',
         'xfer_queue_start', 'xfer_queue_stop', 'xfer_queue_rescue', 'post_done', 'sw_post', 'sw_flush',
         'sw_poll', 'sw_cancel', 'sw_retire',
         'transfers.c:advance', 'transfers.c:fetch', 'transfers.c:poll_facts',
         'reduce.c:advance', 'reduce.c:fetch', 'reduce.c:poll_facts',
         'reclaim', 'engine_slots_post', 'engine_slots_flush', 'engine_slots_poll', 'engine_slots_cancel',
         'engine_slots_retire',
         'dsa_memory', 'dsa_fill', 'dsa_submit', 'dsa_is_ended', 'dsa_result', 'dsa_end', 'kmod_fill',
         'kmod_submit_slots', 'kmod_is_ended', 'kmod_result', 'kmod_cancel', 'kmod_end',
         'call_device',
         'fault_memory', 'fault_post', 'fault_flush', 'fault_poll', 'fault_cancel', 'fault_retire',
         # of preload/: programs call them in handlers of theirs
         'mmap', 'munmap', 'mremap', 'madvise', 'process_madvise', 'mprotect']
# Files, and folders whose files are followed.
FOLDERS = ['preload/memory.c', 'preload/advice.c', 'sud', 'sud/x86_64', 'guard', 'base', 'progress', 'os',
           'trace', 'node', 'region', 'engine', 'engine/sw', 'engine/fault', 'engine/dsa', 'engine/kmod',
           'goal', 'layout', 'xfer', 'reduce', 'exec', 'worker', 'rt', 'rt/comm', 'rt/coll', 'rt/request',
           'rt/early', 'rt/offload']
NOT_COMPILED = {'version.c', 'start.c'}  # they include generated headers
# Functions without locks, allocation and locale, and no cancellation points. Not __tls_get_addr, which may
# call malloc: TLS has to be initial-exec.
ALLOWED = {'memset', 'memcpy', 'memmove', 'memchr', 'memcmp', 'strcmp', 'strlen', '__errno_location',
           'clock_gettime', 'syscall', '__stack_chk_fail', '_GLOBAL_OFFSET_TABLE_', 'strchr', 'strrchr',
           'strcspn', 'strncmp', 'strspn', 'strstr', 'stat', 'fstat', 'fcntl', 'gnu_dev_major',
           'gnu_dev_minor', '__libc_single_threaded',
           'getpid', 'pthread_self', 'sched_yield', 'process_vm_readv', 'process_vm_writev',
           'readlink', 'pthread_setcancelstate', 'pthread_setcanceltype', '__cpu_model', '__udivti3',
           '__umodti3'}


# (caller, callee): why the call is safe.
EXCEPTIONS = {
    ('threads.c:enter_record', 'pthread_once'): 'has run since sud_init()',
    ('threads.c:enter_record', 'pthread_setspecific'): 'in a handler only for a thread made by a raw call',
    ('threads.c:at_thread_exit', 'pthread_setspecific'): 'never runs in a handler',
    ('threads.c:make_key', 'pthread_key_create'): 'only from pthread_once',
    ('base_log', 'snprintf'): 'numbers and strings: glibc takes no lock for them; only after a failure',
    ('base_log', 'vsnprintf'): 'as above',
    ('log.c:log_dropped', 'snprintf'): 'as above',
    ('log.c:log_prefix', 'snprintf'): 'as above',
    ('os_gpu_find', 'dlopen'): 'never inside another call of the loader: loader_begin()',
    ('os_gpu_find', 'dlsym'): 'as above',
    ('os_objects_visit', 'dl_iterate_phdr'): 'as above',
    ('memory.c:preload_next', 'dlsym'): 'once for each hook, at its first call',
    ('advice.c:preload_next', 'dlsym'): 'once for each hook, at its first call',
    ('region_lock', 'pthread_mutex_lock'): 'every signal is blocked while it is held',
    ('region_unlock', 'pthread_mutex_unlock'): 'as above',
    ('ends_make_private', 'strerror'): 'only after a failure',
    ('os_vma_open', 'snprintf'): 'numbers only',
    ('rt_error_text', 'strerror'): 'in a handler only where the job ends',
    ('dsa_portal_close', 'close'): 'a cancellation point; the model of the device replaces it',
    ('kmod_close', 'close'): 'a cancellation point',
    ('explain.c:add', 'snprintf'): 'as above',
    ('explain.c:describe', 'snprintf'): 'as above',
    ('explain.c:describe', '__ctype_tolower_loc'): 'as above',
    ('base_format_bytes', 'snprintf'): 'as above',
    ('os_place_of', 'snprintf'): 'as above',
    ('os_place_of', 'sscanf'): 'as above',
    ('os_process_start', 'snprintf'): 'numbers only',
    ('os_process_start', 'strtoull'): 'numbers only',
    ('cpu.c:cache_bytes', 'snprintf'): 'has run since os_copy_prepare()',
    ('cpu.c:caches_measure', 'sysconf'): 'as above',
    ('cpu.c:caches_measure', 'sched_getcpu'): 'as above',
}


def compile_all(root, cc, out):
    """(source, object) of each file."""
    files = []
    for folder in FOLDERS:
        path = root / 'src' / folder
        files += [path] if path.is_file() else sorted(f for f in path.glob('*.[cS]')
                                                      if f.name not in NOT_COMPILED)

    def compile_one(source):
        obj = pathlib.Path(out) / (str(source.relative_to(root / 'src')).replace('/', '_') + '.o')
        subprocess.run([cc, '-std=gnu11', '-D_GNU_SOURCE', '-O1', '-fno-inline', '-fPIC',
                        '-ffunction-sections',
                        '-w', f'-I{root}/src', f'-I{root}/include', f'-I{root}/kernel/include', '-c', source,
                        '-o', obj], check=True)
        return source, obj

    with concurrent.futures.ThreadPoolExecutor(os.cpu_count()) as pool:
        return list(pool.map(compile_one, files))


def read(tool, option, obj):
    return subprocess.run([tool, option, '-W', obj], check=True, capture_output=True, text=True).stdout


def calls_of(source, obj, defined, calls):
    """Fill defined (function or data -> 'f' or 'd') and calls (function -> symbols); a static function is
    called file:name."""
    local = {}
    for line in read('readelf', '-s', obj).splitlines():
        f = line.split()
        if len(f) < 8 or f[6] == 'UND' or f[3] not in ('FUNC', 'OBJECT', 'NOTYPE', 'TLS'):
            continue
        name = f[7] if f[4] != 'LOCAL' else f'{source.name}:{f[7]}'
        local[f[7]] = name
        defined[name] = 'd' if f[3] in ('OBJECT', 'TLS') else 'f'
    here = None
    for line in read('readelf', '-r', obj).splitlines():
        head = re.match(r"Relocation section '\.rela?(\.[^']+)'", line)
        if head:
            part = re.match(r'\.text\.(?:unlikely\.|hot\.)?(.+)', head.group(1))
            here = local.get(part.group(1), part.group(1)) if part else None
        f = line.split()
        if here is None or len(f) < 5 or not re.fullmatch('[0-9a-f]+', f[0]):
            continue
        # glibc's headers rename functions whose behaviour depends on the standard (__isoc23_strtoull)
        name = re.sub(r'^\.text\.(unlikely\.|hot\.)?|^__isoc\d\d_', '', f[4])
        if not name.startswith('.'):
            calls.setdefault(here, set()).add(local.get(name, name))


def problems(defined, calls):
    by_name = {}
    for name in defined:
        by_name.setdefault(name.split(':')[-1], []).append(name)
    todo = [(n, 'a handler') for r in ROOTS for n in (by_name.get(r) or ([r] if r in defined else []))]
    for r in ROOTS:
        if r not in by_name and r not in defined:
            yield f'{r} is to be checked, and does not exist'
    seen = set()
    while todo:
        name, caller = todo.pop()
        if name in seen:
            continue
        if name in defined:
            seen.add(name)
        if name not in defined:
            if name not in ALLOWED and (caller, name) not in EXCEPTIONS:
                yield f'{caller} calls {name}, which may not be called in a signal handler'
        elif defined[name] == 'f':
            todo += [(n, name) for n in calls.get(name, ())]


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument('--root', type=pathlib.Path, default=HERE)
    parser.add_argument('--cc', default='cc')
    args = parser.parse_args()
    defined, calls = {}, {}
    with tempfile.TemporaryDirectory() as out:
        for source, obj in compile_all(args.root, args.cc, out):
            calls_of(source, obj, defined, calls)
    found = sorted(set(problems(defined, calls)))
    for line in found:
        print(line)
    return 1 if found else 0


if __name__ == '__main__':
    sys.exit(main())
