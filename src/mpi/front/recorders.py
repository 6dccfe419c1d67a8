# SPDX-License-Identifier: BSD-3-Clause
"""recorders.h: the wrappers of libsluice-record.so (mpi/record)."""
import table

# Functions that libsluice.so does not export, and this library does: they make communicators.
CREATORS = """
use int Comm_create(MPI_Comm comm, MPI_Group group, MPI_Comm *newcomm)
use int Comm_dup(MPI_Comm comm, MPI_Comm *newcomm)
use int Comm_dup_with_info(MPI_Comm comm, MPI_Info info, MPI_Comm *newcomm)
use int Comm_split_type(MPI_Comm comm, int split_type, int key, MPI_Info info, MPI_Comm *newcomm)
use int Cart_create(MPI_Comm comm_old, int ndims, const int dims[], const int periods[], int \
reorder, MPI_Comm *newcomm)
use int Cart_sub(MPI_Comm comm, const int remain_dims[], MPI_Comm *newcomm)
use int Graph_create(MPI_Comm comm_old, int nnodes, const int index[], const int edges[], int \
reorder, MPI_Comm *newcomm)
use int Dist_graph_create(MPI_Comm comm_old, int n, const int sources[], const int degrees[], const \
int destinations[], const int weights[], MPI_Info info, int reorder, MPI_Comm *newcomm)
use int Dist_graph_create_adjacent(MPI_Comm comm_old, int indegree, const int sources[], const int \
sourceweights[], int outdegree, const int destinations[], const int destweights[], MPI_Info info, \
int reorder, MPI_Comm *newcomm)
"""
STATUS = ['char room[RECORD_STATUS_BYTES] __attribute__((aligned(8)));',
          'MPI_Status *used = record_status(status, room);']
HANDLE = ['void **handles = record_handles(1, {0});']
HANDLES = ['void **handles = record_handles({0}, array_of_requests);']


def statuses(count):
    return HANDLES[0].format(count), f'MPI_Status *used = record_statuses(array_of_statuses, {count});'


def done(count, indices='NULL'):
    return f'record_done(rc ? NULL : handles, {count}, {indices}, used);'


FREE = 'record_statuses_free(used, array_of_statuses);'
PASS = 'count, datatype, {0}, tag, comm'
# name: (statements before the call, statements after it); rc is the result of the call
MESSAGES = {
    'Mrecv': (STATUS + ['void *taken = abi_handle_get(message, 0);'],
              ['if (!rc)', '\trecord_mrecv(taken, used);']),
    'Imrecv': (['void *taken = abi_handle_get(message, 0);'],
               ['if (!rc)', '\trecord_imrecv(taken, count, datatype, request);']),
    'Recv': (STATUS, ['if (!rc)', '\trecord_recv(used, CANONICAL_OF(comm));']),
    'Irecv': ([], ['if (!rc)', f'\trecord_irecv({PASS.format("source")}, request);']),
    'Sendrecv': (STATUS, ['if (!rc)', '\trecord_sendrecv(sendcount, sendtype, dest, sendtag, used, '
                          'CANONICAL_OF(comm));']),
    'Sendrecv_replace': (STATUS, ['if (!rc)', '\trecord_sendrecv(count, datatype, dest, sendtag, used, '
                                  'CANONICAL_OF(comm));']),
    'Mprobe': ([], ['if (!rc)', '\trecord_probed(message, CANONICAL_OF(comm));']),
    'Improbe': ([], ['if (!rc && *flag)', '\trecord_probed(message, CANONICAL_OF(comm));']),
    'Recv_init': ([], ['if (!rc)', f'\trecord_recv_init({PASS.format("source")}, request);']),
    'Start': ([], ['if (!rc)', '\trecord_started(1, request);']),
    'Startall': ([], ['if (!rc)', '\trecord_started(count, array_of_requests);']),
    'Request_free': ([HANDLE[0].format('request')], ['record_freed(handles);']),
    'Wait': ([HANDLE[0].format('request'), *STATUS], [done(1)]),
    'Test': ([HANDLE[0].format('request'), *STATUS], [done('*flag ? 1 : 0')]),
    'Waitall': (statuses('count'), [done('count'), FREE]),
    'Testall': (statuses('count'), [done('*flag ? count : 0'), FREE]),
    'Waitany': ([HANDLES[0].format('count'), *STATUS], [done('*index >= 0 ? 1 : 0', 'index')]),
    'Testany': ([HANDLES[0].format('count'), *STATUS], [done('*flag && *index >= 0 ? 1 : 0', 'index')]),
    'Waitsome': (statuses('incount'), [done('*outcount', 'array_of_indices'), FREE]),
    'Testsome': (statuses('incount'), [done('*outcount', 'array_of_indices'), FREE]),
    'Finalize': (['record_stop();'], []),
    'Comm_free': (['record_comm_freed(comm);'], []),
    'Comm_disconnect': (['record_comm_freed(comm);'], []),
}
for mode in ('', 's', 'r'):
    MESSAGES[f'{mode}send'.capitalize()] = ([], ['if (!rc)', f'\trecord_send({PASS.format("dest")}, NULL);'])
    MESSAGES[f'I{mode}send'] = ([], ['if (!rc)', f'\trecord_send({PASS.format("dest")}, request);'])
for mode in ('', 's', 'r', 'b'):
    MESSAGES[f'{mode}send_init'.capitalize()] = (
        [], ['if (!rc)', f'\trecord_send_init({PASS.format("dest")}, request);'])
MESSAGES['Bsend'] = ([], ['if (!rc)', f'\trecord_bsend({PASS.format("dest")}, NULL);'])
MESSAGES['Ibsend'] = ([], ['if (!rc)', f'\trecord_bsend({PASS.format("dest")}, request);'])


def made(f):
    """The communicator that a function makes."""
    names = [p.name for p in f.parameters if p.type == 'MPI_Comm *' or p.type == 'MPI_Comm' and p.array]
    return names[0] if names and f.name not in ('Comm_free', 'Comm_disconnect') else None


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
               *(['.request = request'] if form == 'nonblocking' else [])]
    return [], ['if (!rc)', '\trecord_coll(&(struct record_coll){',
                *[f'\t\t{m},' for m in members], '\t});']


def around(f, form_of):
    """(statements before, statements after) of the call; None: the function is not wrapped."""
    if f.kind in table.COLLECTIVES:
        return None if form_of(f)[1] == 'persistent' else collective(f, form_of)
    if f.since == 4 and not f.small:
        return None
    if made(f):
        return [], ['if (!rc)', f'\trecord_comm_made({made(f)});']
    return MESSAGES.get(f.small or f.name)


def wrapper(f, neutral_args, form_of):
    before, after = around(f, form_of)
    args = neutral_args(f)
    passed = ', '.join('used' if 'used' in ' '.join(before) and p.name in ('status', 'array_of_statuses')
                       else p.name for p in f.parameters)
    is_declared = [s for s in before if '=' in s or s.startswith('char')]
    return [f'static int record_{f.name}(int (*next)({args}){"" if args == "void" else ", " + args})', '{',
            '\tif (!next)', '\t\treturn RECORD_LACKING;', '\tif (!record_enter())',
            f'\t\treturn next({f.passed});', '\t{',
            *['\t\t' + s for s in is_declared], '\t\tint rc;', '',
            *['\t\t' + s for s in before if s not in is_declared], f'\t\trc = next({passed});',
            *['\t\t' + s for s in after], '\t\trecord_exit();', '\t\treturn rc;', '\t}', '}', '',
            *exported(f, args, f'record_{f.name}')]


def exported(f, args, body):
    out = []
    for prefix in ('MPI_', 'PMPI_'):
        out += [f'RECORD_EXPORT int {prefix}{f.name}({args});',
                f'RECORD_EXPORT int {prefix}{f.name}({args})', '{', '\tstatic _Atomic(void *) known;', '',
                f'\treturn {body}(record_next(&known, "{prefix}{f.name}")'
                f'{", " if f.passed else ""}{f.passed});', '}', '']
    return out


def start(f, args):
    return [f'static int record_{f.name}(int (*next)({args}), {args})', '{', f'\tint rc = next({f.passed});',
            '', '\tif (!rc)', '\t\trecord_start();', '\treturn rc;', '}', '',
            *exported(f, args, f'record_{f.name}')]


def write(functions, head, neutral_args, form_of):
    creators = [table.Function(table.LINE.match(line)) for line in CREATORS.strip().splitlines()]
    out = [head]
    for f in [*functions, *creators]:
        if f.kind == 'init':
            out += start(f, neutral_args(f))
        elif around(f, form_of):
            out += wrapper(f, neutral_args, form_of)
    return '\n'.join(out)
