# SPDX-License-Identifier: BSD-3-Clause
"""The unit tests under ASan + UBSan and under TSan. Run alone: ./dev check sanitize -k NAME"""
import os
import re
import subprocess

import pytest

from support.paths import BUILD, ROOT
from test_unit import FAILURE, known_to_meson

OPTIONS = {
    'asan': {'ASAN_OPTIONS': 'detect_leaks=1:exitcode=99:allocator_may_return_null=1',
             'UBSAN_OPTIONS': 'halt_on_error=1:print_stacktrace=1:exitcode=99'},
    # ranks are forked, and start threads: of engines, guards, and for those that wait
    'tsan': {'TSAN_OPTIONS': 'halt_on_error=1:exitcode=99:allocator_may_return_null=1:die_after_fork=0'},
}
# Tests that cannot hold with a sanitizer in the process, and why.
ALLOCATOR = 'is about the C library\'s allocator, in whose place the sanitizer has its own'
SPACE = 'limits the address space, of which the sanitizer needs terabytes'
STACK_MARKS = 'leaves a handler by setcontext, of which ASan hears nothing: marks of its frames stay'
MAPPINGS = 'counts mappings, among which are those of the sanitizer'
LOCKS = 'is about errors of mlockall(), in whose place the sanitizer does nothing'
EXCEPT = {
    'mlockall_refuses_flags_as_ever': LOCKS,
    'memory_freed_while_nothing_can_be_mapped_is_usable': ALLOCATOR,
    'freed_memory_is_anonymous_again': ALLOCATOR,
    'every_kind_of_block_is_given_back_by_free': ALLOCATOR,
    'calloc_after_free_is_zero': ALLOCATOR,
    'realloc_grows_and_shrinks_with_the_contents': ALLOCATOR,
    'realloc_that_fails_leaves_the_block_as_it_was': ALLOCATOR,
    'buffers_that_die_young_are_soon_left_alone': ALLOCATOR,
    'many_short_lived_buffers_leave_nothing': ALLOCATOR,
    'the_heap_works_with_any_allocator': ALLOCATOR,
    'other_allocators_work_below_ours': ALLOCATOR,
    'a_small_address_space_leaves_room_for_the_program': SPACE,
    'arenas_of_many_ranks_take_little_of_a_limited_address_space': SPACE,
    'many_live_buffers_of_a_program_with_threads_leave_few_mappings': MAPPINGS,
    'groups_made_one_after_the_other_leave_nothing': MAPPINGS,
    'engine_leaves_nothing_behind': MAPPINGS,
    'a_context_set_in_the_handler_unblocks_as_it_should_mremap': STACK_MARKS,
    'a_context_set_in_the_handler_unblocks_as_it_should_mprotect': STACK_MARKS,
    **{f'{name}_{kind}': MAPPINGS for kind in ('uffd', 'mremap', 'mprotect')
       for name in ('a_thousand_cycles_leave_nothing', 'what_stays_for_the_next_range_is_bounded')},
}
# Half a minute each: by name only.
LONG = {('tsan', 'engine'), ('tsan', 'xfer'), ('tsan', 'exec'), ('asan', 'region_older_kernel')}


def cases():
    """TSan gets the tests with threads (test/unit/meson.build)."""
    for build in OPTIONS:
        for test in known_to_meson('dev'):
            if build != 'tsan' or 'sluice:threads' in test['suite']:
                marks = [pytest.mark.complete] if (build, test['name']) in LONG else []
                yield pytest.param(build, test, id=f'{build}-{test["name"]}', marks=marks)


def of_build(build, test):
    """The command of the same test in another build."""
    return [word.replace(str(BUILD / 'dev'), str(BUILD / build)) for word in test['cmd']]


@pytest.mark.usefixtures('built')
@pytest.mark.timeout(400, func_only=True)
@pytest.mark.parametrize('build, test', cases())
def test_sanitized(build, test):
    """Nothing that a sanitizer would say, and no failure but those that it causes itself."""
    env = {**os.environ, **test['env'], **OPTIONS[build]}
    command = of_build(build, test)
    done = subprocess.run(command, cwd=test['workdir'] or ROOT, env=env, capture_output=True, text=True,
                          errors='replace', stdin=subprocess.DEVNULL, timeout=300)
    text = done.stdout + done.stderr
    failed = re.findall(r'^FAILED (\w+)', text, re.M)
    shown = '\n'.join(FAILURE.findall(text))[-4000:]
    explained = f'run alone: {" ".join(command)}\n{shown}\n...\n{text[-3000:]}'
    assert not re.search(r'^SUMMARY: (?!.*allocation-size)|runtime error:', text, re.M), explained
    assert set(failed) <= set(EXCEPT), f'{sorted(set(failed) - set(EXCEPT))}\n{explained}'
    assert done.returncode in (0, 77) or failed, f'exit {done.returncode}\n{explained}'
