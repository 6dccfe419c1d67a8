# SPDX-License-Identifier: BSD-3-Clause
"""A machine with Intel DSA: sysfs as files, and in each process a thread that stands for the device."""
import fcntl

from support.build import compile_once
from support.paths import PROGRAMS, SOURCES

FILES = {'dsa0/pasid_enabled': '1', 'dsa0/numa_node': '0', 'dsa0/state': 'enabled', 'wq0.0/type': 'user',
         'wq0.0/state': 'enabled', 'wq0.0/mode': 'shared', 'wq0.0/size': '64',
         'wq0.0/max_transfer_size': '2097152'}


def machine(root=PROGRAMS / 'dsa-machine'):
    """Makes the folder that stands for /."""
    root.mkdir(parents=True, exist_ok=True)
    with open(root / '.lock', 'w', encoding='utf-8') as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        for name, text in FILES.items():
            path = root / 'sys/bus/dsa/devices' / name
            path.parent.mkdir(parents=True, exist_ok=True)
            if not path.exists():
                path.write_text(text + '\n', encoding='utf-8')
        queue = root / 'dev/dsa/wq0.0'
        queue.parent.mkdir(parents=True, exist_ok=True)
        if not queue.is_symlink():
            queue.symlink_to('/proc/self/fd/900')
    return root


def dsa_env(model='', root=None):
    """The environment of programs on such a machine; test/mpi/programs/lib/dsa_model.h has the settings."""
    library = compile_once(PROGRAMS / 'dsa_model.so', 'cc',
                           ['-shared', '-fPIC', '-O2', '-DDSA_MODEL_PRELOADED', '-lpthread'],
                           [SOURCES / 'lib/dsa_model.c'])
    return {'LD_PRELOAD': str(library), 'DSA_MODEL': model, 'dsa_root': str(root or machine())}
