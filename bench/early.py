# SPDX-License-Identifier: BSD-3-Clause
"""Rounds of launches with several sides in turn: plain, Sluice's blocking form, early return."""
import json
import os
import shutil
import tempfile
from pathlib import Path

import hosts as H
from early_sections import FORMS, SIDES

PROGRAMS = ("overlap_bench", "synthetic_bench", "idle_bench", "collective_bench")
RAISED = ("overlap_bench", "synthetic_bench")
COUNTERS = ("early", "early_not", "early_touched", "early_called", "early_unseen", "faults",
            "dispatched", "bytes_engine", "bytes_direct", "engine_errors", "engine_retired")


def counters_in(folder):
    """Returns the counters of one launch, summed over its ranks, without zeros."""
    out = {}
    for path in Path(folder).glob("*.json"):
        try:
            one = json.loads(path.read_text(encoding="utf-8"))
        except ValueError:
            continue
        for name in COUNTERS:
            if one.get(name):
                out[name] = out.get(name, 0) + one[name]
    return out


class Early:
    """opt: of bench/run. note(record, where, facts), fail(where, error), tick(): given by it."""

    def __init__(self, opt, hosts, note, fail, tick):
        self.opt, self.hosts, self.note, self.fail, self.tick = opt, hosts, note, fail, tick
        self.units = {}
        if os.cpu_count() < 2:
            raise H.Failed("these sections need two cores")

    def compile(self):
        for h in self.hosts:
            for p in PROGRAMS:
                h.compile(p)

    def launch(self, host, job, side, args):
        """Returns the JSON lines and the facts of one launch."""
        takes_part, options = SIDES[side]
        before, more, _ = FORMS[job.form]
        if job.program == "collective_bench":
            more = ["pin=1"] if job.ranks <= os.cpu_count() else []
        env = host.env()
        folder = tempfile.mkdtemp(prefix="bench-")
        if takes_part:
            env.update(options, **job.env, SLUICE_STATS=f"{folder}/rank")
        if takes_part and self.opt.options:
            env.update(x.split("=", 1) for x in self.opt.options)
        nice = [f"nice={self.opt.nice}"] if self.opt.nice else []
        if self.opt.busy and job.form == "free" and job.program in RAISED:
            more = [*more, "raise=1"]
        sluice = self.opt.before if side == "before" else self.opt.sluice
        sizes = [f"sizes={job.sizes}"] if job.sizes else []
        door = [str(sluice), "run"] if takes_part else []
        cmd = host.command(job.ranks, [*before, *door], [*args, *sizes, *more, *nice], job.program)
        try:
            lines, facts = H.launch(cmd, env, self.opt.limit, self.opt.nice)
            facts["counters"] = counters_in(folder)
        finally:
            shutil.rmtree(folder, ignore_errors=True)
        return [x for x in lines if x["what"] != "run"], facts

    def calibrate(self, host, job):
        """Returns units of computation as long as the blocking collective, a number for each size."""
        who = [a for a in job.args if a.startswith("who=")]
        key = (host.name, job.form, job.calibrated, job.sizes, *who)
        if key not in self.units:
            lines, _ = self.launch(host, job, "blocking",
                                   [f"what=calibrate-{job.calibrated}", *who, "ms=80"])
            self.units[key] = [max(1, round(x["comm"]["us"] * 1000 / x["unit_ns"])) for x in lines]
        return ["units=" + ",".join(map(str, self.units[key]))]

    def one_job(self, section, number, job, host):
        turn = number % len(job.sides)
        where = {"section": section, "round": number, "host": host.name, "form": job.form,
                 "side": "calibration"}
        try:
            args = job.args + (self.calibrate(host, job) if job.calibrated else [])
        except (H.Failed, KeyError) as e:
            self.fail(where, e)
            return
        for side in job.sides[turn:] + job.sides[:turn]:
            if side == "before" and not self.opt.before:
                continue
            where = {**where, "side": side}
            try:
                lines, facts = self.launch(host, job, side, args)
            except H.Failed as e:
                self.fail(where, e)
                continue
            finally:
                self.tick(section, number)
            for x in lines:
                self.note(x, where, facts)

    def one_round(self, section, number, jobs):
        for job in jobs:
            for host in self.hosts:
                self.one_job(section, number, job, host)


def launches(jobs):
    return sum(len(j.sides) for j in jobs)
