# SPDX-License-Identifier: BSD-3-Clause
"""The tutorials: the program of doc/tutorial.md computes the same under Sluice; the commands of
doc/tutorial-goal.md that go from a run to a schedule work, and print such lines."""
import re
import subprocess

from support.paths import PROGRAMS, ROOT, SLUICE


def check_of(done):
    assert done.status == 0, done.explain()
    return re.search(r'steps, the fastest [\d.]+ ms; check (\S+)', done.out).group(1)


def test_the_program_of_the_tutorial_computes_the_same_under_sluice(get_mpi):
    mpi = get_mpi('mpich')
    text = re.search(r'```c\n(.*?)```', (ROOT / 'doc/tutorial.md').read_text(), re.S).group(1)
    source = PROGRAMS / 'tutorial/steps.c'
    source.parent.mkdir(parents=True, exist_ok=True)
    source.write_text(text)
    program = mpi.build(source)
    assert check_of(mpi.launch(2, program, sluice=False)) == check_of(mpi.launch(2, program))


def shape(text):
    return [re.sub(r'[\d.]+', '0', line) for line in text.splitlines()]


def test_the_commands_from_a_run_to_a_schedule_work(get_mpi, tmp_path):
    mpi = get_mpi('mpich')
    section = (ROOT / 'doc/tutorial-goal.md').read_text().split('## 7.')[1]
    (tmp_path / 'examples').symlink_to(ROOT / 'examples')
    env = mpi.env()
    env['PATH'] = f'{SLUICE.parent}:{env["PATH"]}'
    commands = 0
    for block in re.findall(r'^```\n(.*?)```', section, re.S | re.M):
        for command, expected in re.findall(r'^\$ (.*)\n((?:(?!\$ ).*\n)*)', block, re.M):
            # a busy machine: the pauses of the traced ranks are replayed in each run
            command = re.sub(r'--times \d+', '--times 3', command)
            done = subprocess.run(command, shell=True, cwd=tmp_path, env=env, capture_output=True, text=True,
                                  timeout=60)
            assert done.returncode == 0, f'{command}\n{done.stdout}{done.stderr}'
            printed = shape((done.stdout + done.stderr).replace(f'{tmp_path}/', ''))
            assert [line for line in shape(expected) if line != '0' and line not in printed] == [], printed
            commands += 1
    assert commands == section.count('\n$ ')
    assert commands >= 10
