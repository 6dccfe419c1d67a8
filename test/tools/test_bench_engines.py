# SPDX-License-Identifier: BSD-3-Clause
"""bench/run dsa, kmod, cuda: figures of copy engines. Here they run over the models of the tests."""
import json
import os
import shutil
import subprocess

import pytest

from cli import ROOT, SLUICE, plain_env

MODEL = 'THIS IS A MODEL'


def bench(*args, **env):
    return subprocess.run([ROOT / 'bench/run', *map(str, args), '--sluice', SLUICE], env=plain_env(**env),
                          text=True, capture_output=True, timeout=170)


def figures(tmp_path, *args):
    done = bench(*args, '--json', tmp_path / 'out.json')
    assert (done.returncode, done.stderr) == (0, ''), done.stdout
    return json.loads((tmp_path / 'out.json').read_text()), done.stdout


def check_is_model(found, text, engine):
    assert found['engine'] == engine and found['is_model'] and MODEL in found['note']
    lines = text.splitlines()
    assert lines[0].startswith(MODEL) and MODEL in lines[-1]


def test_dsa_over_its_model(tmp_path):
    found, text = figures(tmp_path, 'dsa', '--model', '--quick', '--ranks', '1,2')
    check_is_model(found, text, 'dsa')
    assert all(s['ok'] for s in found['check']['steps'])
    by_kind = {kind: [r for r in found['records'] if r['what'] == kind]
               for kind in ('tables', 'copy', 'ranks')}
    assert [r['bytes'] for r in by_kind['tables']] == [64 << 10, 1 << 20, 4 << 20]
    assert all(r[f'{call}_{when}_ns'] > 0 for r in by_kind['tables'] for call in ('mprotect', 'mremap')
               for when in ('closed', 'open'))
    assert {(r['how'], r['to']) for r in by_kind['copy']} == {(h, t) for h in ('alone', 'full')
                                                              for t in ('cache', 'memory')}
    assert len(by_kind['copy']) == 12
    assert all(r['engine_us'] > 0 and r['cpu_us'] > 0 for r in by_kind['copy'])
    assert [r['processes'] for r in by_kind['ranks']] == [1, 2]
    assert all(r['all_gb_s'] >= r['least_gb_s'] > 0 for r in by_kind['ranks'])
    assert 'overlap' not in found and text.count('crossover') == 4


def test_cuda_over_the_fake_driver(tmp_path):
    found, text = figures(tmp_path, 'cuda', '--model', '--quick', '--ranks', '1,2', '--mpi', 'mpich')
    check_is_model(found, text, 'cuda')
    assert [(r['side'], r['what'], r['bytes'], r['us'] > 0) for r in found['collectives']] == [
        (side, what, size, True) for side in ('staged', 'staged, Sluice', 'direct')
        for what in ('bcast', 'gather', 'scatter', 'allgather', 'alltoall') for size in (64 << 10, 1 << 20)]
    assert 'staged / direct' in text and 'failed' not in text
    kinds = [(r['what'], r.get('how'), r.get('memory')) for r in found['records']]
    for memory in ('private', 'arena', 'private, registered', 'arena, registered'):
        assert ('host', 'to the GPU', memory) in kinds and ('host', 'from the GPU', memory) in kinds
        assert (('host', 'register', memory) in kinds) == ('registered' in memory)
    assert [r['processes'] for r in found['records'] if r['what'] == 'peer'] == [1, 1, 2, 2]
    assert [r['reads_pageable'] for r in found['records'] if r['what'] == 'device'] == [0]


@pytest.mark.parametrize('engine, why', [('dsa', 'found: '), ('kmod', 'found: there is no /dev/sluice'),
                                         ('cuda', 'no CUDA driver')])
def test_a_machine_without_the_device(engine, why, tmp_path):
    if any(os.path.exists(p) for p in ('/dev/sluice', '/dev/dsa', '/dev/nvidiactl')):
        pytest.skip('this machine has one')
    done = bench(engine, '--quick', '--json', tmp_path / 'out.json')
    assert done.returncode == 1 and done.stdout == '' and not (tmp_path / 'out.json').exists()
    assert done.stderr.startswith(f'bench: {engine}: ') and why in done.stderr
    assert done.stderr.count('\n') == 1


def test_the_module_has_no_model_outside_of_a_guest():
    done = bench('kmod', '--model')
    assert done.returncode == 1 and 'softdma.ko' in done.stderr and done.stderr.count('\n') == 1


def test_a_broken_device_is_told(tmp_path):
    """The first step of the check that fails is the line; nothing is measured."""
    folder = tmp_path / 'bin'
    folder.mkdir()
    broken = folder / 'sluice'
    broken.write_text('#!/bin/sh\nexport SLUICE_TEST=engine_fault=error=5\n'
                      'exec "$REAL_SLUICE" check --json fault\n')
    broken.chmod(0o755)
    done = subprocess.run([ROOT / 'bench/run', 'dsa', '--quick', '--sluice', broken],
                          env=plain_env(REAL_SLUICE=shutil.which(SLUICE) or str(SLUICE)),
                          text=True, capture_output=True, timeout=100)
    assert done.returncode == 1 and done.stderr.startswith('bench: dsa: copies: '), done.stderr
    assert 'Input/output error' in done.stderr and done.stderr.count('\n') == 1
