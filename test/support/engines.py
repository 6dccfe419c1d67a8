# SPDX-License-Identifier: BSD-3-Clause
"""Copy engines that MPI programs are tested with: test_early.py runs its programs over each of them, and
`pytest test/mpi --engine NAME` runs any test over one."""
from support.dsa import dsa_env

FAULTY = {'SLUICE_ENGINE': 'fault'}
ENGINES = {
    'sw': {'SLUICE_ENGINE': 'sw', 'SLUICE_WORKER_KIND': 'thread'},
    # not at idle priority: no CPU is idle in tests
    'process': {'SLUICE_WORKER_KIND': 'process', 'worker_cpus': '0-1',
                'fault': 'worker_idle:all'},
    # so slow that nearly every buffer is still guarded when it is touched, which is looked at
    'delay': {**FAULTY, 'engine_fault': 'delay=1500', 'HARNESS_LOOK': '1'},
    'rate': {**FAULTY, 'engine_fault': 'rate=1G'},
    'error': {**FAULTY, 'engine_fault': 'error=3'},
    'hang': {**FAULTY, 'engine_fault': 'hang=3', 'engine_timeout': '50'},
    'none': {'SLUICE_ENGINE': 'none'},
    # on a modelled device, so slow that buffers are still guarded when they are touched
    'dsa': {'SLUICE_ENGINE': 'dsa', 'SLUICE_WORKER_KIND': 'thread', 'DSA_MODEL': 'rate=500'},
    'dsa_faults': {'SLUICE_ENGINE': 'dsa', 'SLUICE_WORKER_KIND': 'thread', 'DSA_MODEL': 'fault=3'},
    # three other processes fill the queue
    'dsa_shared': {'SLUICE_ENGINE': 'dsa', 'SLUICE_WORKER_KIND': 'thread', 'DSA_MODEL': 'rate=500,others=3'},
    'dsa_hang': {'SLUICE_ENGINE': 'dsa', 'SLUICE_WORKER_KIND': 'thread', 'DSA_MODEL': 'hang=3',
                 'engine_timeout': '50'},
}


def engine_env(name):
    env = ENGINES[name]
    return {**dsa_env(env['DSA_MODEL']), **env} if 'DSA_MODEL' in env else env
