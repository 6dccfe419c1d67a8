# SPDX-License-Identifier: BSD-3-Clause
"""Several hosts on this machine: each a network, a hostname, a /dev/shm and processes' ids of its own.

    switch (a network namespace with a bridge)
      |-- veth -- eth0 of host 1: 10.77.0.1
      |-- veth -- eth0 of host 2: 10.77.0.2 ...

Every host is one process that holds the namespaces; when it has ended, so have they. It reads from
us, so that it ends with us, however we end. A launcher starts
its daemons there through a script in place of ssh.
"""
import os
import shutil
import signal
import subprocess
import time

TOOLS = ('ip', 'unshare', 'nsenter')
HOLD = 'mount -t tmpfs none /dev/shm && hostname "$0" && ip link set lo up && echo ready && exec cat'


def address(i):
    return f'10.77.0.{i + 1}'


def missing():
    """Why there can be no such hosts here, or None."""
    for tool in TOOLS:
        if not shutil.which(tool):
            return f'simulated hosts need {tool}'
    done = subprocess.run(['unshare', '--net', '--uts', '--mount', 'sh', '-c',
                           'ip link add x type bridge && ip link add y type veth peer name z'],
                          capture_output=True, text=True)
    return f'namespaces are not permitted here: {done.stderr.strip()}' if done.returncode else None


class Hosts:
    """with Hosts(2, folder) as hosts: ...; folder: for the script."""

    def __init__(self, n, folder):
        self.n, self.folder, self.holders = n, folder, []
        self.ssh = folder / 'ssh'

    def __enter__(self):
        try:
            self.hold('switch', ['--net', '--uts', '--mount'])
            self.at(0, 'ip', 'link', 'add', 'bridge', 'type', 'bridge')
            self.at(0, 'ip', 'link', 'set', 'bridge', 'up')
            for i in range(self.n):
                self.add(i)
            self.write_script()
        except BaseException:
            self.__exit__()
            raise
        return self

    def hold(self, name, namespaces):
        holder = subprocess.Popen(['unshare', *namespaces, 'sh', '-c', HOLD, name], stdout=subprocess.PIPE,
                                  stdin=subprocess.PIPE, text=True, start_new_session=True)
        self.holders.append(holder)
        assert holder.stdout.readline() == 'ready\n', f'no host {name}'

    def add(self, i):
        self.hold(f'host{i + 1}', ['--net', '--uts', '--mount', '--ipc'])
        self.at(0, 'ip', 'link', 'add', f'port{i}', 'type', 'veth', 'peer', 'name', 'eth0',
                'netns', str(self.holders[-1].pid))
        self.at(0, 'ip', 'link', 'set', f'port{i}', 'master', 'bridge', 'up')
        self.at(i + 1, 'ip', 'address', 'add', f'{address(i)}/24', 'dev', 'eth0')
        self.at(i + 1, 'ip', 'link', 'set', 'eth0', 'up')

    def inside(self, holder):
        """The words before a command that runs on this host; 0 is the switch."""
        return ['nsenter', '-t', str(self.holders[holder].pid), '--net', '--uts', '--mount', '--ipc']

    def at(self, holder, *command):
        subprocess.run([*self.inside(holder), *command], check=True, stdout=subprocess.DEVNULL)

    def write_script(self):
        """ssh [options] host command..., for these hosts."""
        lines = ['#!/bin/sh', 'while :; do case $1 in -*) shift;; *) break;; esac; done', 'host=$1; shift',
                 'case $host in']
        for i in range(self.n):
            lines.append(f'{address(i)}) exec {" ".join(self.inside(i + 1))} sh -c "$*";;')
        self.ssh.write_text('\n'.join([*lines, 'esac', 'exit 255', '']))
        self.ssh.chmod(0o755)

    def launcher(self, mpi, ranks):
        """(before mpiexec, its arguments, environment) for so many ranks on each host, in blocks."""
        hosts = ','.join(f'{address(i)}:{n}' for i, n in enumerate(ranks))
        if mpi.abi == 'openmpi':
            return {'outer': self.inside(1), 'launcher': ['--host', hosts, '--map-by', 'slot', '--prtemca',
                                                          'plm_ssh_agent', self.ssh],
                    'env': {'PRTE_MCA_rmaps_default_mapping_policy': 'slot:oversubscribe'}}
        return {'outer': self.inside(1), 'launcher': ['-launcher', 'ssh', '-launcher-exec', self.ssh,
                                                      '-hosts', hosts,
                                                      '-localhost', address(0), '-iface', 'eth0'], 'env': {}}

    def cut(self, i):
        """The network of host i is gone."""
        self.at(0, 'ip', 'link', 'set', f'port{i}', 'down')

    def mend(self, i):
        self.at(0, 'ip', 'link', 'set', f'port{i}', 'up')

    def shared_memory(self, i, name):
        """Files in /dev/shm of host i whose names contain `name`."""
        shown = subprocess.run([*self.inside(i + 1), 'ls', '/dev/shm'], check=True, capture_output=True,
                               text=True)
        return [file for file in shown.stdout.split() if name in file]

    def close_connections(self, i, program):
        """Every connection of that program on host i breaks, with an error on both sides."""
        shown = subprocess.run([*self.inside(i + 1), 'ss', '-tnpH'], check=True, capture_output=True,
                               text=True)
        for line in shown.stdout.splitlines():
            here, there = line.split()[3:5]
            if program in line:
                self.at(i + 1, 'ss', '-K', 'src', here, 'dst', there)

    def __exit__(self, *_):
        for holder in self.holders:
            os.killpg(holder.pid, signal.SIGKILL)
            holder.wait()
            holder.stdin.close()
            holder.stdout.close()
