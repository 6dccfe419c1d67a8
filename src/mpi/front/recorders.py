# SPDX-License-Identifier: BSD-3-Clause
"""recorders.h and profilers.h: the wrappers of libsluice-record.so and libsluice-profile.so (mpi/record)."""
import re

import table

# Functions that libsluice.so does not export, and this library does.
NOT_EXPORTED = """
use4 int Psend_init(const void *buf, int partitions, MPI_Count count, MPI_Datatype datatype, int \
dest, int tag, MPI_Comm comm, MPI_Info info, MPI_Request *request)
use4 int Precv_init(void *buf, int partitions, MPI_Count count, MPI_Datatype datatype, int source, \
int tag, MPI_Comm comm, MPI_Info info, MPI_Request *request)
"""
STATUS = ['char room[RECORD_STATUS_BYTES] __attribute__((aligned(8)));',
          'MPI_Status *used = record_status(status, room);']
# The status of a receive that fails because its message is too long tells what came.
CAME = ['if (!rc || record_came(used))']
CLEAR = ['record_clear(used);']
HANDLE = ['void **handles = record_handles(1, {0});']
HANDLES = ['void **handles = record_handles({0}, array_of_requests);']


def statuses(count):
    return HANDLES[0].format(count), f'MPI_Status *used = record_statuses(array_of_statuses, {count});'


def done(count, indices='NULL', all_='count'):
    array = 'request' if all_ == '1' else 'array_of_requests'
    return [f'record_failed(rc ? handles : NULL, {all_}, {array});',
            f'record_done(rc ? NULL : handles, {count}, {indices}, used);']


FREE = 'record_statuses_free(used, array_of_statuses);'
PASS = 'count, datatype, {0}, tag, comm'
# name: (statements before the call, statements after it); rc is the result of the call
MESSAGES = {
    'Mrecv': (STATUS + ['void *taken = abi_handle_get(message, 0);'] + CLEAR,
              CAME + ['\trecord_mrecv(taken, used);']),
    'Imrecv': (['void *taken = abi_handle_get(message, 0);'],
               ['if (!rc)', '\trecord_imrecv(taken, count, datatype, request);']),
    'Recv': (STATUS + CLEAR, CAME + ['\trecord_recv(used, CANONICAL_OF(comm));']),
    'Irecv': ([], ['if (!rc)', f'\trecord_irecv({PASS.format("source")}, request);']),
    'Sendrecv': (STATUS + CLEAR, CAME + ['\trecord_sendrecv(sendcount, sendtype, dest, sendtag, used, '
                          'CANONICAL_OF(comm));']),
    'Sendrecv_replace': (STATUS + CLEAR, CAME + ['\trecord_sendrecv(count, datatype, dest, sendtag, used, '
                                  'CANONICAL_OF(comm));']),
    'Isendrecv': ([], ['if (!rc)', '\trecord_isendrecv(sendcount, sendtype, dest, sendtag, recvcount, '
                       'recvtype, source, recvtag, comm, request);']),
    'Isendrecv_replace': ([], ['if (!rc)', '\trecord_isendrecv(count, datatype, dest, sendtag, count, '
                               'datatype, source, recvtag, comm, request);']),
    'Psend_init': ([], ['if (!rc)', '\trecord_partitioned_init(MESSAGES_ISEND, partitions, '
                        f'{PASS.format("dest")}, request);']),
    'Precv_init': ([], ['if (!rc)', '\trecord_partitioned_init(MESSAGES_IRECV, partitions, '
                        f'{PASS.format("source")}, request);']),
    'Pready': ([], ['if (!rc)', '\trecord_ready(1, request);']),
    'Pready_range': ([], ['if (!rc)', '\trecord_ready(partition_high - partition_low + 1, request);']),
    'Pready_list': ([], ['if (!rc)', '\trecord_ready(length, request);']),
    'Probe': ([], []),
    'Iprobe': ([], []),
    'Mprobe': ([], ['if (!rc)', '\trecord_probed(message, CANONICAL_OF(comm));']),
    'Improbe': ([], ['if (!rc && *flag)', '\trecord_probed(message, CANONICAL_OF(comm));']),
    'Recv_init': ([], ['if (!rc)', f'\trecord_init(MESSAGES_IRECV, {PASS.format("source")}, request);']),
    'Start': ([], ['if (!rc)', '\trecord_started(1, request);']),
    'Startall': ([], ['if (!rc)', '\trecord_started(count, array_of_requests);']),
    'Request_free': ([HANDLE[0].format('request')], ['record_freed(handles);']),
    'Wait': ([HANDLE[0].format('request'), *STATUS], done(1, all_='1')),
    'Test': ([HANDLE[0].format('request'), *STATUS], done('*flag ? 1 : 0', all_='1')),
    'Waitall': (statuses('count'), [*done('count'), FREE]),
    'Testall': (statuses('count'), [*done('*flag ? count : 0'), FREE]),
    'Waitany': ([HANDLES[0].format('count'), *STATUS], done('*index >= 0 ? 1 : 0', 'index')),
    'Testany': ([HANDLES[0].format('count'), *STATUS], done('*flag && *index >= 0 ? 1 : 0', 'index')),
    'Waitsome': (statuses('incount'), [*done('*outcount', 'array_of_indices', 'incount'), FREE]),
    'Testsome': (statuses('incount'), [*done('*outcount', 'array_of_indices', 'incount'), FREE]),
    'Finalize': (['record_stop();'], []),
    'Comm_free': (['record_comm_freed(comm);'], []),
    'Comm_disconnect': (['record_comm_freed(comm);'], []),
}
for mode in ('', 's', 'r'):
    MESSAGES[f'{mode}send'.capitalize()] = ([], ['if (!rc)', f'\trecord_send({PASS.format("dest")}, NULL);'])
    MESSAGES[f'I{mode}send'] = ([], ['if (!rc)', f'\trecord_send({PASS.format("dest")}, request);'])
for mode in ('', 's', 'r', 'b'):
    MESSAGES[f'{mode}send_init'.capitalize()] = (
        [], ['if (!rc)', f'\trecord_init(MESSAGES_ISEND, {PASS.format("dest")}, request);'])
MESSAGES['Bsend'] = MESSAGES['Ibsend'] = ([], ['if (!rc)', f'\trecord_bsend({PASS.format("dest")});'])

ORIGIN = 'record_bytes(origin_count, origin_datatype)'
RESULT = '(int64_t)record_bytes(result_count, result_datatype)'
# name: (bytes to the target, bytes that come back)
ONE_SIDED = {
    'Put': (ORIGIN, '-1'), 'Accumulate': (ORIGIN, '-1'), 'Get': ('0', f'(int64_t){ORIGIN}'),
    'Get_accumulate': (ORIGIN, RESULT),
    'Fetch_and_op': ('record_bytes(1, datatype)', '(int64_t)record_bytes(1, datatype)'),
    'Compare_and_swap': ('record_bytes(2, datatype)', '(int64_t)record_bytes(1, datatype)'),
}
for name, (there, back) in ONE_SIDED.items():
    MESSAGES[name] = ([], ['if (!rc)', f'\trecord_rma(win, target_rank, {there}, {back}, NULL);'])
    MESSAGES[f'R{name.lower()}'] = ([], ['if (!rc)',
                                        f'\trecord_rma(win, target_rank, {there}, {back}, request);'])
for name, hook in {'fence': 'record_fence(win)', 'post': 'record_win_post(group, win)',
                   'start': 'record_win_start(group, win)', 'complete': 'record_win_complete(win)',
                   'wait': 'record_win_wait(win)', 'unlock': 'record_flush(win, rank, true)',
                   'unlock_all': 'record_flush(win, -1, true)', 'flush': 'record_flush(win, rank, true)',
                   'flush_all': 'record_flush(win, -1, true)',
                   'flush_local': 'record_flush(win, rank, false)',
                   'flush_local_all': 'record_flush(win, -1, false)'}.items():
    MESSAGES[f'Win_{name}'] = ([], ['if (!rc)', f'\t{hook};'])
MESSAGES['Win_test'] = ([], ['if (!rc && *flag)', '\trecord_win_wait(win);'])
MESSAGES['Win_free'] = (['record_win_freed(win);'], [])
for name in 'create', 'create_c', 'allocate', 'create_dynamic', 'allocate_shared':
    MESSAGES[f'Win_{name}'] = ([], ['if (!rc)', '\trecord_win_made(comm, win);'])


def made(f):
    """The communicator that exists when a function returns."""
    names = [p.name for p in f.parameters if p.type == 'MPI_Comm *' or p.type == 'MPI_Comm' and p.array]
    is_made = f.name not in ('Comm_free', 'Comm_disconnect', 'Comm_idup', 'Comm_idup_with_info')
    return names[0] if names and is_made else None


def side(term):
    args = list(term.args)
    parts = {'buf': '.at = {0}, .count = {1}, .type = CANONICAL_OF({2})',
             'each': '.at = {0}, .count = {1}, .type = CANONICAL_OF({2})',
             'part': '.at = {0}, .counts = WIDE({1}), .type = CANONICAL_OF({3})',
             'parts': '.at = {0}, .counts = WIDE({1}), .types = {3}',
             'sum': '.at = {0}, .counts = WIDE({1}), .type = CANONICAL_OF({2})'}
    return '{ ' + parts[term.verb].format(*args) + ' }'


def collective(f, form_of):
    base, form = form_of(f)
    names = [p.name for p in f.parameters]
    terms = [t for t in f.terms if t.verb != 'all']
    members = [f'.kind = COLL_{base.upper()}', '.comm = CANONICAL_OF(comm)',
               f'.root = {"root" if "root" in names else "-1"}',
               *[f'.{which} = {side(t)}' for which, t in zip(('send', 'recv'), terms)],
               *(['.request = request'] if form != 'blocking' else []),
               *(['.is_persistent = true'] if form == 'persistent' else [])]
    return [], ['if (!rc)', '\trecord_coll(&(struct record_coll){',
                *[f'\t\t{m},' for m in members], '\t});']


def around(f, form_of):
    """(statements before, statements after) of the call; None: the function is not wrapped."""
    if f.kind in table.COLLECTIVES:
        return collective(f, form_of)
    if made(f):
        return [], ['if (!rc)', f'\trecord_comm_made({made(f)});']
    return MESSAGES.get(f.small or f.name)


# Calls that send, receive or wait for messages.
TIMED = re.compile(r'(I?[bsr]?send|I?m?recv|Sendrecv(_replace)?|Start(all)?|I?m?probe|'
                   r'(Wait|Test)(all|any|some)?)(_c)?$', re.I)


def timed(f, call):
    """The call, whose time is counted where TIMED names it."""
    if not is_timed(f):
        return call
    buffer = next((t.args[1:] for t in f.terms if t.verb == 'buf'), ('0', '0'))
    return f'PROFILED("MPI_{f.name}", site, {", ".join(buffer)}, {call})'


def is_timed(f):
    return f.exported and TIMED.match(f.name)


def parameters(f, args):
    site = ', const void *site' if is_timed(f) else ''
    return f'int (*next)({args}){site}{"" if args == "void" else ", " + args}'


def profiler(f, args):
    return [f'static int profile_{f.name}({parameters(f, args)})', '{',
            f'\treturn next ? {timed(f, f"next({f.passed})")} : PROFILE_LACKING;', '}', '',
            *exported(f, args, f'profile_{f.name}')]


def wrapper(f, neutral_args, form_of):
    before, after = around(f, form_of)
    args = neutral_args(f)
    passed = ', '.join('used' if 'used' in ' '.join(before) and p.name in ('status', 'array_of_statuses')
                       else p.name for p in f.parameters)
    is_declared = [s for s in before if '=' in s or s.startswith('char')]
    return [f'static int record_{f.name}({parameters(f, args)})', '{',
            '\tif (!next)', '\t\treturn PROFILE_LACKING;', '\tif (!record_enter())',
            f'\t\treturn {timed(f, f"next({f.passed})")};', '\t{',
            *['\t\t' + s for s in is_declared], '\t\tint rc;', '',
            *['\t\t' + s for s in before if s not in is_declared], f'\t\trc = {timed(f, f"next({passed})")};',
            *['\t\t' + s for s in after], '\t\trecord_exit();', '\t\treturn rc;', '\t}', '}', '',
            *exported(f, args, f'record_{f.name}')]


def is_optional(f):
    """Is the function exported only where the host MPI has it? (front/exports.c)"""
    return f.is_optional or f.since == 4 and not f.exported


def exported(f, args, body):
    out = []
    for prefix in ('MPI_', 'PMPI_'):
        name = f'{prefix}{f.name}'
        inner = f'found_{name}' if is_optional(f) else name
        out += [f'{"static" if is_optional(f) else "RECORD_EXPORT"} int {inner}({args});',
                f'{"static" if is_optional(f) else "RECORD_EXPORT"} int {inner}({args})', '{',
                '\tstatic _Atomic(void *) known;', '', f'\treturn {body}(record_next(&known, "{name}")'
                f'{", __builtin_return_address(0)" if is_timed(f) else ""}'
                f'{", " if f.passed else ""}{f.passed});', '}', '']
        if is_optional(f):
            out += [f'RECORD_EXPORT int {name}({args}) __attribute__((alias("{inner}")));',
                    f'RECORD_CHOICE({name}, {inner})', '']
    return out


def start(f, args):
    return [f'static int record_{f.name}(int (*next)({args}), {args})', '{', f'\tint rc = next({f.passed});',
            '', '\tif (!rc)', '\t\trecord_start();', '\treturn rc;', '}', '',
            *exported(f, args, f'record_{f.name}')]


def not_exported():
    lines = [table.LINE.match(line) for line in NOT_EXPORTED.strip().splitlines()]
    return [table.Function(match) for match in lines]


def write_optional(functions, head, form_of):
    names = [p + f.name for f in [*functions, *not_exported()] if f.kind != 'init' and is_optional(f) and
             around(f, form_of) for p in ('MPI_', 'PMPI_')]
    return '\n'.join([head, '/* X(name): exported where the library has it */',
                      ' \\\n'.join(['#define RECORD_OPTIONAL(X)', *[f'\tX({name})' for name in names]]), ''])


def write(functions, head, neutral_args, form_of):
    out = [head]
    for f in [*functions, *not_exported()]:
        if f.kind == 'init':
            out += start(f, neutral_args(f))
        elif around(f, form_of):
            out += wrapper(f, neutral_args, form_of)
    return '\n'.join(out)


def write_profile(functions, head, neutral_args):
    return '\n'.join([head, *[line for f in functions if is_timed(f) and not is_optional(f)
                              for line in profiler(f, neutral_args(f))]])
