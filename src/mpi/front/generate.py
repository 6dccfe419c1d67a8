#!/usr/bin/env python3
# SPDX-License-Identifier: BSD-3-Clause
"""Generate the trampolines, tables and wrappers of the functions in functions.table.

usage: generate.py WHAT functions.table OUTPUT

WHAT: trampolines, slots, host, signatures, collectives, gates, observe, narrow, record, record_optional
or profile
"""
import re
import sys

import recorders
import table
import trampolines

HEAD = '{0} SPDX-License-Identifier: BSD-3-Clause {1}\n{0} made by generate.py {1}\n'
C_HEAD = HEAD.format('/*', '*/')


def listed(name, comment, entries):
    return [f'/* {comment} */', f'#define {name} \\', *[f'\tX({e}) \\' for e in entries], '']


def slots(functions):
    """functions.h: numbers and names, for code without MPI types."""
    written = [f for f in functions if f.kind in table.WRITTEN + table.COLLECTIVES]
    made = [f for f in functions if f.kind in table.MADE]
    out = [C_HEAD, '#ifndef SLUICE_MPI_FUNCTIONS_H', '#define SLUICE_MPI_FUNCTIONS_H', '']
    out += listed('FRONT_WRAPPED(X)', 'X(name, is_init): the wrappers of wrappers.c',
                  [f'{f.name}, {int(f.kind == "init")}' for f in written])
    out += listed('FRONT_WRITTEN(X)', 'X(name): the first of them, which wrappers.c defines itself',
                  [f.name for f in written if f.kind in table.WRITTEN])
    out += listed('FRONT_COLLECTIVES(X)', 'X(name): the collectives',
                  [f.name for f in written if f.kind in table.COLLECTIVES])
    out += listed('FRONT_OBSERVED(X)', 'X(name): the wrappers of observers.h', [f.name for f in made])
    out += listed('FRONT_REAL(X)',
                  'X(name, other name or name, required) in the order of struct host_functions, '
                  'which begins with the exported ones',
                  [f'{f.name}, {f.names[-1]}, {int(f.required)}' for f in functions])
    out += listed('FRONT_OPTIONAL(X)', 'X(name): exported where the library has it',
                  [f.name for f in functions if f.is_optional])
    out += listed('FRONT_SIGNATURES(X)', 'X(name, since): the MPI that surely has it, 3 or 4',
                  [f'{f.name}, {f.since}' for f in functions])
    out += [f'#define FRONT_WRITTEN_COUNT {sum(f.kind in table.WRITTEN for f in written)}',
            f'#define FRONT_WRAPPED_COUNT {len(written)}', f'#define FRONT_OBSERVED_COUNT {len(made)}',
            f'#define FRONT_REAL_COUNT {len(functions)}', '', '#endif', '']
    return '\n'.join(out)


HANDLES = ('Comm', 'Datatype', 'Errhandler', 'Group', 'Info', 'Message', 'Op', 'Request', 'Session', 'Win')
HANDLE = re.compile(rf'(const )?MPI_(?:{"|".join(HANDLES)})( ?\*)?$')


def neutral(p):
    """A parameter as the front end declares it: handles in memory have no known width there."""
    match = HANDLE.match(p.type)
    if match and (match[2] or p.array):
        return f'{match[1] or ""}void *{p.name}'
    return str(p)


def neutral_args(f):
    return ', '.join(map(neutral, f.parameters)) or 'void'


def canonical(f):
    """Statements that clear the upper half of a handle's register, which an int leaves undefined."""
    return [f'\tCANONICAL({p.name});' for p in f.parameters
            if HANDLE.match(p.type) and not HANDLE.match(p.type)[2] and not p.array]


def host(functions):
    """host.h: the host MPI's functions, for the front end."""
    requests = [f for f in functions if f.kind in ('held', 'begin', 'drop')]
    return '\n'.join([C_HEAD, 'struct host_functions {',
                      *[f'\t{f.ret} (*{f.name})({neutral_args(f)});' for f in functions], '};', '',
                      *[f'{f.ret} request_{f.name}({neutral_args(f)});' for f in requests], '',
                      *[f'int {large_args(f)};' for f in functions if f.kind in table.COLLECTIVES],
                      *[f'int wrap_{f.name}({neutral_args(f)});' for f in functions
                        if f.kind in table.COLLECTIVES and not is_counted(f)], ''])


def signatures(functions):
    """host.h with the types of an mpi.h, for test/mpi/programs/abi_check.c."""
    return '\n'.join([C_HEAD, 'struct host_functions {', *[f'\t{f.ret} (*{f.name})({f.args});'
                                                           for f in functions],
                      '};', ''])


# ---- observers.h: included by observe.c -----------------------------------------------------------------

def observation(term):
    """The statement that completes what one term names."""
    args = list(term.args)
    if term.verb in ('part', 'parts'):
        args[1:3] = [f'WIDE({args[1]})', f'WIDE({args[2]})']
    elif term.verb == 'sum':
        args[1] = f'WIDE({args[1]})'
    elif term.verb == 'start' and args[0] == '1':
        args[1] = f'request ? 1 : 0, {args[1]}'
        args = args[1:]
    if term.who:
        args[-1] = f'comm, MEMBERS_{term.who.upper()}'
    call = f'observe_{term.verb}({", ".join(args)});'
    return [f'\tif (members_is_root(root, comm))', f'\t\t{call}'] if term.root else [f'\t{call}']


def bare(f):
    """The call of the host MPI's function."""
    callee = f'OR_NARROW({f.name})' if f.name.endswith('_c') and not f.is_optional else f'host.{f.name}'
    return f'{callee}({f.passed})'


# These return when nobody reads the message any more, and do not receive into its memory.
BLOCKING_SEND = re.compile(r'(Send|Ssend|Rsend|Sendrecv)(_c)?$')
# The requests of these end with the message.
POSTED_SEND = re.compile(r'(Isend|Issend|Irsend)(_c)?$')


def send_body(f, call):
    """Body of a wrapper that the program always enters, as its buffer is sent."""
    sends = [t for t in f.terms if t.verb == 'send']
    is_large = ' || '.join(f'!types_is_small({t.args[2]}, (uint64_t){t.args[1]}, message_gate)'
                           for t in sends)
    lines = [*canonical(f), f'\tif (base_unlikely(rt_has_pending() || {is_large}) &&',
             '\t    abi_is_program_call(CALLER())) {', '\t\tif (rt_has_pending()) {']
    lines += ['\t\t' + line for t in f.terms if t not in sends for line in observation(t)] + ['\t\t}']
    if BLOCKING_SEND.match(f.name):
        lines += ['\t\tstruct snapshot *snapshot = observe_blocking_send('
                  f'{", ".join(sends[0].args)}, dest);',
                  f'\t\treturn message_sent(snapshot, HOST_CALL({call}));', '\t}']
    elif POSTED_SEND.match(f.name):
        lines += ['\t\tstruct snapshot *snapshot = observe_posted_send('
                  f'{", ".join(sends[0].args)}, dest);',
                  f'\t\treturn observe_posted(snapshot, HOST_CALL({call}), request);', '\t}']
    else:
        lines += ['\t' + line for t in sends for line in observation(t)]
        lines += [f'\t\treturn HOST_CALL({call});', '\t}']
    return lines + [f'\treturn rt_is_intercepting() ? {call} : {bare(f)};']


COMMON = ('Cart_', 'Comm_', 'Dist_graph_', 'Graph_', 'Pready', 'Put', 'Start', 'Win_')


def waited(f, call):
    """The call of a function as wait/ sees it: one wait, or one test of what may come."""
    names = [p.name for p in f.parameters]
    found = 'flag' if 'flag' in names else 'outcount' if f.name == 'Testsome' else None
    if found:
        return f'WAIT_TEST({call}, {found})'
    if f.name in ('Probe', 'Mprobe'):
        return f'WAIT_CALL(wait_{f.name}({f.passed}))'
    if 'comm' in names and 'dest' in names:
        return f'WAIT_SEND({call}, comm, dest)'
    if 'comm' in names and 'source' in names:
        return f'WAIT_RECV({call}, comm, source)'
    if f.kind in table.COLLECTIVES or f.name.startswith(COMMON):
        return f'WAIT_COMMON({call})'
    return f'WAIT_CALL({call})'


def observe_body(f, call):
    if f.is_send:
        return send_body(f, call)
    if not f.terms:
        return ['\tbool is_hosted = untermed_begin(__builtin_frame_address(0));', '',
                f'\treturn untermed_end(is_hosted, {bare(f)});']
    sync = [t for t in f.terms if t.verb == 'sync']
    seen = ['\t' + line for term in f.terms if term not in sync for line in observation(term)]
    own = canonical(f)
    lines = ['\tbool is_hosted = false;', '']
    if sync:
        lines += [*own, '\tif (abi_is_program_call(CALLER()))', '\t\tcomm_state_sync(comm);']
        own = []
    lines += ['\tif (rt_has_pending() && abi_is_program_call(CALLER())) {', *['\t' + line for line in own],
              *seen, '\t\tis_hosted = rt_has_pending();', '\t}']
    return lines + [f'\treturn HOST_CALL_IF(is_hosted, {call});']


def held_body(f, call):
    """Body of a wrapper whose request_X runs while requests of Sluice exist."""
    lines = ['\tif (!abi_is_program_call(CALLER()))', f'\t\treturn {call};', *canonical(f)]
    if f.terms:
        lines += ['\tif (rt_has_pending()) {', *['\t' + line for t in f.terms for line in observation(t)],
                  '\t}']
    call = f'HOST_CALL({waited(f, f"request_{f.name}({f.passed})")})'
    requests = requests_of(f)
    if f.name.startswith(('Wait', 'Test')):
        lines = [f'\tuint64_t sends = observe_listed({requests});', '', *lines]
        call = f'observe_completed(sends, {requests}, {call})'
    else:
        lines.append(f'\tobserve_ending({requests});')
    return [*lines, f'\treturn {call};']


def requests_of(f):
    """Number and address of the requests that a function names."""
    p = next(p for p in f.parameters if 'MPI_Request' in p.type)
    if p.array:
        return f'{f.parameters[0].name}, {p.name}'
    return f'1, {p.name}' if p.type.endswith('*') else f'1, &{p.name}'


def keep_body(f, call):
    at = ', '.join(f.terms[0].args)
    is_sent = 'true' if f.name.startswith(('Send_', 'Ssend_', 'Rsend_')) else 'false'
    return ['\tint rc = HOST_CALL(' + call + ');', '', *canonical(f), '\tif (!rc)',
            f'\t\tobserve_keep(request, {is_sent}, {at});',
            '\treturn rc;']


def begin_body(f, call):
    lines = ['\tif (!abi_is_program_call(CALLER()))', f'\t\treturn {call};', '\tif (rt_has_pending()) {',
             *['\t' + line for t in f.terms for line in observation(t)], '\t}',
             f'\tobserve_starting({requests_of(f)});']
    call = waited(f, f'request_{f.name}({f.passed})')
    return lines + [f'\treturn observe_started({requests_of(f)}, HOST_CALL({call}));']


def drop_body(f, call):
    return ['\tif (request) {', '\t\tobserve_ending(1, request);', '\t\tobserve_drop(request);', '\t}',
            f'\treturn HOST_CALL({waited(f, f"request_{f.name}({f.passed})")});']


def made_body(f, call):
    return ['\tint rc;', '', '\tif (rt_has_pending() && abi_is_program_call(CALLER()))', '\t\tobserve_all();',
            f'\trc = HOST_CALL({call});', '\tif (!rc)', '\t\tobserve_made(baseptr, size);', '\treturn rc;']


BODIES = {'observe': observe_body, 'held': held_body, 'keep': keep_body, 'begin': begin_body,
          'drop': drop_body, 'made': made_body}


def observers(functions):
    """observers.h: a wrapper for each function that can observe pending operations."""
    out, ways = [C_HEAD], []
    for f in functions:
        if f.kind not in table.MADE:
            continue
        call = waited(f, bare(f))
        name = f'{f.kind}_{f.name}'
        out += [f'static {f.ret} {name}({neutral_args(f)})', '{', *BODIES[f.kind](f, call), '}', '']
        plain = 'NULL' if f.kind in ('observe', 'held') and not f.is_send else f'(void *){name}'
        ways.append(f'\t{{ {plain}, (void *){name} }},')
    return '\n'.join([*out, 'const struct front_way observe_ways[FRONT_OBSERVED_COUNT] = {', *ways, '};', ''])


# ---- collectives.h: included by wrappers.c -------------------------------------------------------------

def form_of(function):
    """(name of the collective, form) of a function; 'Scatter' for Scatter_c, Iscatter and
    Scatter_init."""
    name = function.small or function.name
    if name.endswith('_init'):
        return name.removesuffix('_init'), 'persistent'
    if name[0] == 'I':
        return name[1:].capitalize(), 'nonblocking'
    return name, 'blocking'


def base_of(function):
    return form_of(function)[0]


def side(term):
    """One member of struct coll_args."""
    args = list(term.args)
    if term.who:
        args[-1] = f'MEMBERS_{term.who.upper()}'
    root = ', .at_root = true' if term.root else ''
    return f'ARG_INIT_{term.verb.upper()}({", ".join(args)}){root}'


def args(f):
    """The initializer of struct coll_args."""
    names = [p.name for p in f.parameters]
    members = [f'.kind = COLL_{base_of(f).upper()}', f'.form = CALL_{form_of(f)[1].upper()}',
               f'.name = "MPI_{f.name}"', '.caller = caller',
               '.comm = CANONICAL_OF(comm)',
               f'.root = {"root" if "root" in names else "-1"}']
    members += ['.op = CANONICAL_OF(op)'] if 'op' in names else []
    members += [f'.{which} = {{ {side(term)} }}' for which, term in zip(('send', 'recv'), f.terms)
                if term.verb != 'all']
    return ['\tstruct coll_args args = {', *[f'\t\t{m},' for m in members], '\t};']


def is_passed(f, term, gate, prefix):
    """A negative int becomes a large count: the gate needs no check for products that overflow."""
    is_int = any(p.name == term.args[1] and p.type == 'int' for p in f.parameters)
    args = f'{term.args[2]}, ({"uint32_t" if is_int else "uint64_t"}){term.args[1]}'
    if form_of(f)[1] == 'blocking':
        return f'{prefix}_is_small({args}, {gate}.gate)'
    return f'{prefix}_is_passed({args}, &{gate})'


def is_counted(f):
    """Does the gate of this function check the size of the message?"""
    return form_of(f)[1] != 'persistent' and all(
        t.verb in ('buf', 'each') and t.who not in ('sources', 'targets') for t in f.terms)


def gate(f, prefix):
    """Condition under which the host MPI executes the call without another check."""
    kind = 'COLL_BLOCKING' if form_of(f)[1] == 'blocking' else 'COLL_NONBLOCKING'
    name = f'rt_gates[{kind}][COLL_{base_of(f).upper()}]'
    if not is_counted(f):
        return f'{name}.gate == UINT64_MAX'
    if len({t.args[1] for t in f.terms}) == 1:
        return is_passed(f, f.terms[-1], name, prefix)
    # Only the root knows which buffer is significant. Where the other buffer looks large, the full check
    # gives the right result.
    here, there = sorted(f.terms, key=lambda t: t.root)
    if there.root:
        return (f'(!{here.args[1]} || {here.args[0]} == abi.in_place || '
                f'{is_passed(f, here, name, prefix)}) &&\n'
                f'\t    (!{there.args[1]} || {is_passed(f, there, name, prefix)})')
    return is_passed(f, f.terms[-1], name, prefix)


def large_args(f):
    return f'large_{f.name}({neutral_args(f)}, const void *caller)'


def large_call(f):
    return f'large_{f.name}({f.passed}, CALLER())'


def collective(f):
    request, sync = 'request', []
    if form_of(f)[1] == 'blocking':
        request = 'NULL'
        sync = ['\tif (abi_is_program_call(CALLER()))', '\t\tcomm_state_sync(comm);']
    return [f'int {large_args(f)}', '{', *args(f), '\tint rc;', '',
            f'\tif (large_begin(&args, {request}, __builtin_frame_address(0), &rc))', '\t\treturn rc;',
            f'\treturn large_end(&args, {request}, {bare(f)});', '}', '',
            f'static int pend_{f.name}({neutral_args(f)})', '{', *canonical(f), *sync,
            '\tif (!rt_has_pending()) {', f'\t\tif ({gate(f, "types")})',
            f'\t\t\treturn {waited(f, bare(f))};',
            '\t} else if (abi_is_program_call(CALLER())) {',
            *['\t' + line for term in f.terms for line in observation(term)], '\t}',
            f'\treturn {large_call(f)};', '}', '']


def wrapper(f, prefix, storage):
    """wrap_X, which the program calls while nothing is pending."""
    return [f'{storage}int wrap_{f.name}({neutral_args(f)})', '{', f'\tif (base_likely({gate(f, prefix)}))',
            f'\t\treturn {bare(f)};', f'\treturn {large_call(f)};', '}', '']


def collectives(functions):
    """collectives.h: wrappers of the collectives that Sluice may execute."""
    out = [C_HEAD, '#include "mpi/front/large.h"', '']
    for f in functions:
        if f.kind in table.COLLECTIVES:
            out += collective(f)
            out += [] if is_counted(f) else wrapper(f, 'types', '')
    return '\n'.join(out)


# ---- gates.h: included by gate.h, once per ABI -------------------------------------------------------

def gates(functions):
    """gates.h: the wrappers whose gate checks a datatype, as the facts of an ABI permit."""
    out = [C_HEAD]
    for f in functions:
        if f.kind in table.COLLECTIVES and is_counted(f):
            out += wrapper(f, 'gate', 'static ')
    return '\n'.join(out)


# ---- narrow.h: included by narrow.c ------------------------------------------------------------------

def untyped(p):
    """A parameter's type without MPI's names."""
    words = p.type.replace('*', ' * ').split()
    wide = {'MPI_Count': 'int64_t', 'MPI_Aint': 'int64_t', 'MPI_Offset': 'int64_t'}
    pointer = '*' in words or p.array
    words = [wide.get(w, ('void' if pointer else 'uintptr_t') if w.startswith('MPI_') else w) for w in words]
    return ' '.join(words + (['*'] if p.array else [])).replace(' * *', ' **')


def declared(p):
    text = untyped(p)
    return f'{text}{"" if text.endswith("*") else " "}{p.name}'


def narrowed(f, large, small):
    """(before the call, argument, after the call) of one parameter."""
    name = large.name
    if untyped(large) == untyped(small):
        return None, name, []
    terms = [t for t in f.terms if name in t.args]
    # arguments of a buffer are significant where the buffer is
    at = terms[0].args[0] if len(terms) == 1 else 'NULL'
    root = 'root' if len(terms) == 1 and terms[0].root else 'NARROW_ALL_RANKS'
    if large.array:
        return f'narrow_list(&call, {at}, {root}, {name}, MEMBERS_{terms[0].who.upper()})', None, []
    if '*' in large.type:
        return f'narrow_int(&call, NULL, NARROW_ALL_RANKS, {name} ? *{name} : 0)', \
            f'{name} ? &{{0}} : NULL', \
            [f'\tif ({name})', f'\t\t*{name} = {{0}};']
    return f'narrow_int(&call, {at}, {root}, {name})', '{0}', []


def narrow_function(f, small):
    before, args, after = [], [], []
    for p, q in zip(f.parameters, small.parameters):
        make, arg, done = narrowed(f, p, q)
        local = f'small_{p.name}'
        if make:
            before.append(f'\t{"int *" if p.array else "int "}{local} = {make};')
        args.append((arg or local).replace('{0}', local))
        after += [line.replace('{0}', local) for line in done]
    has_comm = any(p.name == 'comm' for p in f.parameters)
    is_later = small.name[0] == 'I'
    return ['', f'static int narrow_{f.name}({", ".join(map(declared, f.parameters))})', '{',
            f'\ttypedef int narrower({", ".join(map(untyped, small.parameters))});',
            '\tstatic _Atomic(void *) known;',
            '\tstruct narrow_call call = '
            f'{{ .comm = {"comm" if has_comm else "0"}, .is_later = {int(is_later)} }};',
            f'\tnarrower *function = narrow_base(&call, &known, "PMPI_{small.name}", CALLER());', *before,
            f'\tint rc = call.failed ? call.failed : function({", ".join(args)});', '', *after,
            '\treturn narrow_end(&call, rc);', '}']


def narrow(functions):
    """narrow.h: X_c by means of X, for host MPIs without X_c."""
    by_name = {f.name: f for f in functions}
    pairs = [(f, by_name[f.name[:-2]]) for f in functions
             if f.exported and f.name.endswith('_c') and not f.is_optional and f.name[:-2] in by_name]
    out = [C_HEAD]
    for f, small in pairs:
        out += narrow_function(f, small)
    out += ['', *listed('NARROW_FUNCTIONS(X)', 'X(name)', [f.name for f, _ in pairs]), '']
    return '\n'.join(out)


def main():
    makers = {'trampolines': lambda functions: trampolines.write(functions, C_HEAD), 'slots': slots,
              'host': host, 'signatures': signatures, 'collectives': collectives,
              'gates': gates, 'observe': observers, 'narrow': narrow,
              'record_optional': lambda functions: recorders.write_optional(functions, C_HEAD, form_of),
              'profile': lambda functions: recorders.write_profile(functions, C_HEAD, neutral_args),
              'record': lambda functions: recorders.write(functions, C_HEAD, neutral_args, form_of)}
    if len(sys.argv) != 4 or sys.argv[1] not in makers:
        sys.exit(__doc__)
    text = makers[sys.argv[1]](table.read(sys.argv[2]))
    with open(sys.argv[3], 'w', encoding='ascii') as out:
        out.write(text)


if __name__ == '__main__':
    main()
