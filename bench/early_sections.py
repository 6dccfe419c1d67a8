# SPDX-License-Identifier: BSD-3-Clause
"""Defines the measurements of early return of bench/run by section: forms, sides, sizes and rounds."""

# form: (what stands before the program, arguments, sentence)
FORMS = {
    "free": (["taskset", "-c", "0"], ["shared=1"], "two ranks on one core, the other core is free"),
    "none": ([], ["pin=1"], "two ranks on two cores, no core is free"),
}
# side: (does Sluice take part, options). All sides of a round run one after the other.
SIDES = {
    "plain": (False, {}),
    "before": (True, {}),
    "blocking": (True, {"SLUICE_EARLY": "off"}),
    "auto": (True, {"SLUICE_EARLY": "auto"}),
    "threads": (True, {"SLUICE_EARLY": "auto", "SLUICE_WORKER_KIND": "thread"}),
    "on": (True, {"SLUICE_EARLY": "on"}),
}
SLOW = {"SLUICE_ENGINE": "fault", "SLUICE_TEST": "engine_fault=rate=1G", "SLUICE_EARLY": "on",
        "SLUICE_WORKERS": "@1"}
ALL = "1M,2M,4M,8M,16M"
SOME = "1M,4M,16M"
BOTH = ("bcast", "gather")


class Job:
    """One kind of launch: a program, its arguments, and the sides that run it in turn."""

    def __init__(self, program, form, sides, args, sizes="", calibrated=None, ranks=2, env=None):
        self.program, self.form, self.sides, self.args = program, form, sides, args
        self.sizes, self.calibrated, self.ranks, self.env = sizes, calibrated, ranks, env or {}


def overlaps(form, sides, sizes, whos, ms):
    return [Job("overlap_bench", form, sides, [f"what=overlap-{x}", f"who={who}", f"ms={ms}"],
                sizes, calibrated=x) for x in BOTH for who in whos]


def touches(form, sides, sizes, ms):
    who = "one" if form == "free" else "all"
    return [Job("overlap_bench", form, sides, [f"what=touch-{x}", f"who={who}", f"ms={ms}"], sizes)
            for x in BOTH]


def lates(sizes, delays, ms):
    return [Job("overlap_bench", "none", ["plain", "blocking", "auto", "on"],
                [f"what=late-{x}", f"delays={delays}", f"ms={ms}", "min=5"], sizes) for x in BOTH]


def switches(sizes, waits):
    return [Job("overlap_bench", "free", ["on"], ["what=switch-bcast", f"delays={w}", "ms=200"],
                s, env=SLOW) for s in sizes for w in waits]


FREE = ["blocking", "auto", "threads", "on"]
NONE = ["plain", "blocking", "auto", "on"]
REGRESS = ["plain", "before", "blocking", "auto"]


def regress(large, small, ranks, first):
    def collective(what, sizes, *more, n=2):
        return Job("collective_bench", "none", REGRESS, [f"what={what}", *more], sizes, ranks=n)
    return [collective("bcast,gather", large, "ms=40"),
            collective("small-bcast,small-gather,sendrecv,barrier", small, "ms=25"),
            collective("first-bcast,first-gather", first, "ms=80"),
            collective("bcast,gather", ranks, "ms=60", "min=2", n=4)]


# section: (rounds, jobs, sentence)
FULL = {
    "overlap": (4, overlaps("free", FREE, ALL, ("one", "all"), 60) +
                overlaps("none", NONE, ALL, ("all",), 60),
                "a collective and a computation that takes as long, then the data used"),
    "lateroot": (3, lates(SOME, "1000,5000,20000", 40),
                 "root calls d after the others, which compute d before they touch"),
    "touch": (6, touches("none", NONE, ALL, 80) + touches("free", FREE, ALL, 80),
              "the data used at once after the call"),
    "switch": (4, switches(["4M", "16M"], [1000, 4000]),
               "touched while an engine of 1 GB/s is at work"),
    "idle": (3, [Job("idle_bench", f, ["plain", "blocking", "auto", "on"], ["ms=500"])
                 for f in FORMS], "context switches with nothing pending"),
    "synthetic": (4, [Job("synthetic_bench", "none", NONE, ["orders=512,1024,2048"]),
                      Job("synthetic_bench", "free", FREE, ["orders=512,1024,2048"])],
                  "the model paper's application"),
    "regress": (5, regress("64K,256K,1M,4M,16M", "8,16K", "1M,4M", "64K,1M"),
                "the foundation's measurements, blocking and with early return"),
}
QUICK = {
    "overlap": (1, overlaps("free", FREE, SOME, ("one",), 40) +
                overlaps("none", NONE, SOME, ("all",), 40), None),
    "lateroot": (1, lates("4M", "1000,5000", 60), None),
    "touch": (1, touches("none", NONE, SOME, 40), None),
    "switch": (1, switches(["16M"], [4000]), None),
    "idle": (1, [Job("idle_bench", "none", ["plain", "auto"], ["ms=200"])], None),
    "synthetic": (1, [Job("synthetic_bench", "none", NONE, ["orders=512,1024", "repeats=1"])], None),
    "regress": (1, regress("64K,1M,16M", "8,16K", "1M", "1M"), None),
}
