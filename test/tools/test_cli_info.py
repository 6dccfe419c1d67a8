# SPDX-License-Identifier: BSD-3-Clause
"""sluice info: text that lines up, JSON with the same content, and a reason for each no."""
import json
import os
import re
import subprocess
import time

import pytest

from support.dsa import dsa_env, machine

from cli import LIBRARY, SLUICE, compile_c, fake_mpi, plain_env, sluice


def info_json(env=None, code=0):
    result = sluice('info', '--json', env=env)
    assert (result.returncode, result.stderr) == (code, '')
    return json.loads(result.stdout)


def sections(text):
    """Heading -> lines."""
    out = {}
    for block in text.strip().split('\n\n'):
        head, *lines = block.splitlines()
        out[head] = lines
    return out


def section(text, start):
    return next(lines for head, lines in sections(text).items() if head.startswith(start))


def test_text_and_json_have_the_same_content(tools):
    env = {'PATH': f'{tools}/mpi/bin:{os.environ["PATH"]}', 'SLUICE_LOG': 'warn'}
    text = sluice('info', env=env).stdout
    data = info_json(env)
    assert data['library'] == str(LIBRARY) and data['library'] in text
    assert f'Sluice {data["version"]}\n' in text and data['kernel'] in text
    for m in data['mpis']:
        for part in (m['library'], m['version'] or 'unknown', m['found_by']):
            assert part in text
    for t in data['trials']:
        row = next(line for line in section(text, 'Access') if line.startswith(f'  {t["name"]} '))
        assert t['what'] in row and (' yes ' if t['works'] else ' no ') in row
        assert not t['remedy'] or t['remedy'] in text
    for o in data['options']:
        row = next(line for line in section(text, o['group']) if line.startswith(f'  {o["name"]} '))
        assert row.endswith(o['meaning']) and o['source'] in row and (o['value'] or '""') in row
    for kind in ('guards', 'system_calls', 'engines', 'workers'):
        assert data[kind]
        for way in data[kind]:
            row = next(line for line in section(text, 'Early return') if f' {way["name"]} ' in line)
            assert way['what'] in row and (' yes' if way['works'] else ' no ') in row
            assert bool(way['reason']) == (not way['works']) and (way['reason'] or '') in text
            assert (way['remedy'] or '') in text
    for t in data['tuned']:
        assert t['mpi'] in '\n'.join(section(text, 'Tuned')) and (t['file'] or t['writes']) in text
    machine = data['machine']
    assert machine['allowed'] in text and str(machine['pus']) in text
    assert machine['waiting'] in text
    assert len(machine['caches']) == sum(re.match(r'  (L\d|last)', line) is not None
                                         for line in section(text, 'Machine'))


@pytest.mark.parametrize('env, told', [
    ({}, 'blocked ranks give their CPUs away in jobs of more than {cpus} ranks on this node'),
    ({'SLUICE_WAIT': 'spin'}, 'blocked ranks wait as the MPI library does (SLUICE_WAIT)'),
    ({'SLUICE_WAIT': 'polite'}, 'blocked ranks give their CPUs away (SLUICE_WAIT)'),
    ({'MPI_LOCALNRANKS': '1'}, 'blocked ranks wait as the MPI library does: 1 rank, CPUs for {cpus}'),
    ({'MPI_LOCALNRANKS': '999'}, 'blocked ranks give their CPUs away: 999 ranks, CPUs for ')])
def test_how_ranks_wait(env, told):
    machine = json.loads(sluice('info', '--json', env=env).stdout)['machine']
    # a quota of the control group may be less
    expected = re.escape(told).replace(r'\{cpus\}', r'\d+')
    assert re.match(expected, machine['waiting']), machine['waiting']


def test_tables_line_up_and_have_no_colours():
    text = sluice('info').stdout
    assert '\033' not in text and '\t' not in text
    assert not [line for line in text.splitlines() if line != line.rstrip()]
    rows = section(text, 'Options')
    for word in ('value', 'default', 'unit', 'source', 'meaning'):
        column = rows[0].index(word)
        assert all(row[column - 2:column] == '  ' and row[column:column + 1] for row in rows)


def test_options_have_value_default_source_and_what_they_take():
    options = {o['name']: o for o in info_json({'SLUICE_COLL_THRESHOLD': '1048576'})['options']}
    changed = options['SLUICE_COLL_THRESHOLD']
    assert (changed['value'], changed['default'], changed['source']) == ('1M', '64K', 'environment')
    assert (changed['type'], changed['unit']) == ('bytes', 'bytes')
    assert options['SLUICE']['source'] == 'default' and options['SLUICE']['value'] == 'on'
    assert options['SLUICE_REGION_KIND']['accepts'] == 'auto, arena, cma or staged'


def test_a_process_that_does_not_exist_is_named_as_such():
    done = sluice('info', '--pid', str(2 ** 22 + 1))
    assert (done.returncode, done.stdout) == (1, '')
    assert done.stderr == f'sluice: info: process {2 ** 22 + 1}: No such process\n'


def test_a_wrong_environment_is_shown_and_is_exit_1():
    env = {'SLUICE_COLL_TRESHOLD': '1', 'region_max': 'many'}
    problems = info_json(env, code=1)['problems']
    assert len(problems) == 2 and any('SLUICE_COLL_THRESHOLD' in p for p in problems)
    result = sluice('info', env=env)
    assert result.returncode == 1
    assert sorted(line.strip() for line in section(result.stdout, 'Wrong')) == sorted(problems)
    assert section(result.stdout, 'Options')


def test_misuse_names_the_nearest_option():
    result = sluice('info', '--jsno')
    assert (result.returncode, result.stdout) == (2, '') and '--json' in result.stderr


# ---- MPIs -------------------------------------------------------------------------------

def found(data, path):
    return next((m for m in data['mpis'] if m['library'].startswith(str(path))), None)


def test_an_mpi_is_found_by_path_and_by_library_path(tools):
    by_path = found(info_json({'PATH': f'{tools}/mpi/bin:{os.environ["PATH"]}'}), tools)
    assert by_path == {'library': f'{tools}/mpi/lib/libmpi.so.12', 'version': 'MPICH 9.8.7',
                       'abi': 'MPICH', 'served': True, 'reason': None,
                       'found_by': 'mpiexec in PATH'}
    by_library = found(info_json({'LD_LIBRARY_PATH': f'{tools}/mpi/lib'}), tools)
    assert by_library['found_by'] == 'LD_LIBRARY_PATH'
    assert found(info_json(), tools) is None


def test_one_library_with_many_names_is_one_row(tmp_path):
    library = fake_mpi(tmp_path, name='libmpi.so.12.1.0')
    library.with_name('libmpi.so.12').symlink_to(library.name)
    library.with_name('libmpi.so').write_bytes(library.read_bytes())
    (tmp_path / 'lib64').symlink_to('lib')
    rows = [m for m in info_json({'PATH': f'{tmp_path}/bin:{os.environ["PATH"]}'})['mpis']
            if m['library'].startswith(str(tmp_path))]
    assert [m['library'] for m in rows] == [f'{tmp_path}/lib/libmpi.so.12']


def test_libraries_of_one_mpi_have_one_row_of_tuned_values(tmp_path):
    fake_mpi(tmp_path)
    fake_mpi(tmp_path, name='libmpi_abi.so.1')
    env = {'LD_LIBRARY_PATH': f'{tmp_path}/lib'}
    assert len([t for t in info_json(env)['tuned'] if t['library'].startswith(str(tmp_path))]) == 2
    assert '\n'.join(section(sluice('info', env=env).stdout, 'Tuned')).count('MPICH 9.8.7') == 1


@pytest.mark.parametrize('name, more, abi', [
    ('libmpi.so.40', 'int ompi_mpi_comm_world;\n', 'Open MPI'),
    ('libmpi.so.40', 'int OMPI_Affinity_str(void) { return 0; }\n', 'Open MPI'), # Open MPI 6
    ('libmpi_abi.so.1', '\n', 'standard'),
    ('libmpi_abi_mpich.so.1', '\n', 'standard'), # Debian's alternatives
    ('libmpich.so.12', '\n', 'MPICH'),
])
def test_the_abi_is_told_from_the_file(name, more, abi, tmp_path):
    fake_mpi(tmp_path, name=name, more=more)
    row = found(info_json({'LD_LIBRARY_PATH': f'{tmp_path}/lib'}), tmp_path)
    assert row['abi'] == abi and row['served']


def test_an_mpi_that_is_not_served_has_a_reason(tmp_path):
    fake_mpi(tmp_path, name='libmpi.so.7')
    env = {'LD_LIBRARY_PATH': f'{tmp_path}/lib'}
    row = found(info_json(env), tmp_path)
    assert not row['served'] and 'ABI' in row['reason'] and row['abi'] is None
    assert f'no: {row["reason"]}' in sluice('info', env=env).stdout


@pytest.mark.parametrize('body', ['for (;;);', '__builtin_trap();', 'puts("hello");'])
def test_a_library_that_hangs_crashes_or_prints_when_loaded_does_no_harm(body, tmp_path):
    fake_mpi(tmp_path, more='#include <stdio.h>\n__attribute__((constructor))'
             f'static void start(void) {{ {body} }}\n')
    start = time.monotonic()
    row = found(info_json({'LD_LIBRARY_PATH': f'{tmp_path}/lib'}), tmp_path)
    assert row['version'] == ('MPICH 9.8.7' if 'puts' in body else None)
    assert time.monotonic() - start < 10


def test_without_any_mpi_it_says_where_it_looked():
    env = {'PATH': '/nowhere', 'HOME': '/nowhere'}
    result = sluice('info', env=env)
    assert result.returncode == 0
    data = info_json(env)
    assert all(m['found_by'] == 'linker cache' for m in data['mpis'])
    if not data['mpis']:
        assert 'none found' in result.stdout


# ---- trials -----------------------------------------------------------------------------

def trials(data):
    return {t['name']: t for t in data['trials']}


def test_what_does_not_work_has_the_kernels_reason_and_a_remedy(tools):
    without = compile_c(tools / 'without_cma', 'without_cma.c')
    done = subprocess.run([without, SLUICE, 'info', '--json'], env=plain_env(), capture_output=True,
                          text=True, timeout=60, check=True)
    tried = trials(json.loads(done.stdout))
    for name in ('cma read', 'cma write'):
        assert not tried[name]['works']
        assert 'Operation not permitted' in tried[name]['reason']
        assert 'seccomp' in tried[name]['remedy'] or 'ptrace_scope' in tried[name]['remedy']
    assert tried['arena']['works'] and tried['staged']['works']


def trials_with_limit(limit):
    done = subprocess.run(['sh', '-c', f'ulimit {limit}; exec {SLUICE} info --json'],
                          env=plain_env(), capture_output=True, text=True, timeout=60, check=True)
    return trials(json.loads(done.stdout))


def test_few_descriptors_are_enough():
    assert trials_with_limit('-n 16')['arena']['works']


def test_too_little_address_space_is_told_with_a_remedy():
    arena = trials_with_limit('-v 500000')['arena']
    assert not arena['works'] and 'ulimit' in arena['reason'] + str(arena['remedy'])


def test_an_injected_failure_is_seen_by_the_trial():
    tried = trials(info_json({'fault': 'socket:all'}))
    assert not tried['arena']['works'] and not tried['staged']['works']
    assert 'Permission denied' in tried['arena']['reason']


def test_one_guard_and_one_engine_are_taken_and_nodes_have_channels():
    data = info_json()
    for kind in ('guards', 'engines'):
        taken = [way for way in data[kind] if way['chosen']]
        assert len(taken) <= 1 and all(way['works'] for way in taken)
        assert taken or not any(way['works'] for way in data[kind] if way['name'] not in ('dsa', 'fault'))
    for engine in data['engines']:
        assert len(engine['channels']) == data['machine']['numa_nodes']
        assert bool(sum(engine['channels'])) == engine['works']


def test_dsa_is_taken_by_name_and_each_step_that_fails_has_a_reason(tmp_path):
    env = {**dsa_env(root=tmp_path), 'DSA_MODEL_FOLLOWS': '1', 'SLUICE_ENGINE': 'dsa'}

    def dsa():
        data = info_json(env)
        return data, next(way for way in data['engines'] if way['name'] == 'dsa')

    for made, reason in [((), 'the kernel has no driver idxd'),
                         (('sys/bus/dsa/devices',), 'found no device')]:
        for name in made:
            (tmp_path / name).mkdir(parents=True)
        data, way = dsa()
        assert not way['works'] and reason in way['reason'] and reason in trials(data)['engine']['reason']
    machine(tmp_path)
    _, way = dsa()
    assert way['works'] and way['chosen'] and sum(way['channels']) == 1 and not way['remedy']
    del env['SLUICE_ENGINE']
    _, way = dsa()
    assert way['works'] and not way['chosen'] and 'SLUICE_ENGINE names it' in way['remedy']


def test_a_guard_that_an_option_asks_for_is_the_one_taken():
    data = info_json({'SLUICE_GUARD_KIND': 'mprotect'})
    assert [way['name'] for way in data['guards'] if way['chosen']] in (['mprotect'], [])
    none = info_json({'SLUICE_GUARD_KIND': 'none'})
    assert not any(way['chosen'] for way in none['guards']) and not trials(none)['guard']['works']


def test_the_trials_leave_nothing_behind(tmp_path):
    info_json({'TMPDIR': tmp_path})
    assert not os.listdir(tmp_path)
    assert not [name for name in os.listdir('/dev/shm') if 'sluice' in name]


def test_the_worker_is_found_when_the_dynamic_linker_starts_the_tool():
    linker = re.search(rb'/lib\S*/ld-\S+?\.so\S*?(?=\0)', SLUICE.read_bytes()).group().decode()
    told = json.loads(sluice(SLUICE, 'info', '--json', program=linker).stdout)
    assert told['workers'][0]['works'], told['workers']
