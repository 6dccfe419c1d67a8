# SPDX-License-Identifier: BSD-3-Clause
"""Runs a command with core dumps allowed and says on stdout how it ended: "ended: exit 3", or "ended:
signal 11, core"; ends with status 0 so that launchers do not interfere."""
import os
import resource
import sys
import tempfile

os.chdir(tempfile.mkdtemp(dir='.'))  # a place for its own core
limit = resource.getrlimit(resource.RLIMIT_CORE)[1]
resource.setrlimit(resource.RLIMIT_CORE, (limit, limit))
pid = os.posix_spawnp(sys.argv[1], sys.argv[1:], os.environ)
status = os.waitpid(pid, 0)[1]
if os.WIFSIGNALED(status):
    how = f'signal {os.WTERMSIG(status)}{", core" if os.WCOREDUMP(status) else ""}'
else:
    how = f'exit {os.WEXITSTATUS(status)}'
rank = os.environ.get('PMI_RANK', os.environ.get('OMPI_COMM_WORLD_RANK', '?'))
print(f'ended {rank}: {how}', flush=True)
