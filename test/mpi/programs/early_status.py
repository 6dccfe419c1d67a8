# SPDX-License-Identifier: BSD-3-Clause
"""Runs a command with core dumps allowed and says on stdout how it ended: "ended: exit 3", or "ended:
signal 11, core", after what it said on stderr, which launchers drop when a rank has crashed; ends with
status 0 so that they do not interfere."""
import os
import resource
import sys
import tempfile

os.chdir(tempfile.mkdtemp(dir='.'))  # a place for its own core
limit = resource.getrlimit(resource.RLIMIT_CORE)[1]
resource.setrlimit(resource.RLIMIT_CORE, (limit, limit))
said = os.open('stderr', os.O_CREAT | os.O_RDWR | os.O_CLOEXEC, 0o600)
pid = os.posix_spawnp(sys.argv[1], sys.argv[1:], os.environ,
                      file_actions=[(os.POSIX_SPAWN_DUP2, said, 2)])
status = os.waitpid(pid, 0)[1]
if os.WIFSIGNALED(status):
    how = f'signal {os.WTERMSIG(status)}{", core" if os.WCOREDUMP(status) else ""}'
else:
    how = f'exit {os.WEXITSTATUS(status)}'
rank = os.environ.get('PMI_RANK', os.environ.get('OMPI_COMM_WORLD_RANK', '?'))
with open('stderr', errors='replace', encoding='utf-8') as f:
    print(f'{f.read()}\nended {rank}: {how}', flush=True)
