# SPDX-License-Identifier: BSD-3-Clause
"""Prints tables of the sections of early_sections.py, with each requirement and its verdict."""
import statistics
from collections import defaultdict

from early_sections import FORMS, SIDES
from report import MIB, TARGET_HOSTS, is_disturbed, number, size_text, table

OVERLAP_MOST, OVERLAP_LEAST, SAME, LOSS_MOST, SWITCH_MOST = 1.15, 85.0, 1.03, 5.0, 1.2
WIDE = 0.10  # a spread of more than this share of the median is said to be wide
FEWEST = 3   # undisturbed samples of a launch, undisturbed launches of a side
PIECES = 256 << 10  # what a channel has at a time and cannot give back: two pieces (xfer/queue.c)
JUDGED = ("auto",)
LEGEND = {
    "overlap": """
comm, comp, both: medians of the median call; a call is as long as its slowest rank, from the instant at
which the last rank was there. comm: the blocking collective, the data used at once (ratios: of the side
"blocking" in the same round, for the plain MPI its own). comp: the computations alone, as they share the
cores. both: the collective, the computation, then the data used; call and use: the parts of it before and
after the computation. who=one: the rank that waits for data computes as long as comm, the other one has
called before it and is idle, as if it had a core of its own; times are of the rank that computes, from
its call on, and nothing can be shorter than the longer of comm and comp. who=all: every rank computes
as long as comm; on one core the computations alone take twice as long, and since a copy begins when the
last rank has called, which may be after the first has computed, all that can be hidden is comm.
both/max   both / the longer of comm and comp; at most 1.15 where a core is free
overlap    1 - (both - comp) / comm; at least 85 % where a core is free
to block   both / both of the side "blocking"; at most 1.03 where no core is free
plain/     both of the plain MPI / both of this side""",
    "touch": """
comm       the collective, the data used at once: what early return can only lose
to block   comm / comm of the side "blocking", same round; at most 1.03
plain/     the plain MPI / this side, same round""",
    "lateroot": """
late       root calls d after the others; those compute d after the call and then use (broadcast) or
           rewrite (gather) their data: the time of the last of them. Without loss it is the longer of d
           and their computation alone, and comm of the side "blocking": data cannot move before root has
           called.
loss       what it takes longer, in % of d; less than 5""",
    "switch": """
touch      from the first touch until all data has been used, while an engine of 1 GB/s copies
left       what CPUs had to copy: the bytes of all calls less those that the channel copied
allowed    a copy of what was left by one process between mapped buffers, and the two pieces of 128 KB
           that a channel has at a time, at 1 GB/s
ratio      touch / allowed; less than 1.2""",
    "idle": """
voluntary  wake-ups; forced: somebody else wanted the core. Both of the calling threads of both ranks in the
           time given, others: of all other threads. Not more than without Sluice (forced ones of the
           calling thread follow from the load of the machine and are not judged)""",
    "synthetic": """
total      all iterations, until all data has been used; parts: the slowest rank's sums. Where no core is
           free at most 1.03 x blocking""",
    "regress": """
us         medians of the median call; ratios: medians over the rounds. before: an older build (--before)
ref        before, or blocking where there is no older build; auto/ref is to be at most 1.03""",
}


def us(record, part):
    """Returns a part's median, or None where too few samples were undisturbed."""
    p = record.get(part)
    if not p or p.get("samples", FEWEST) < min(FEWEST, p.get("calls", FEWEST)):
        return None
    return p["us"] or None


class Rounds:
    """Groups the records of one section by measurement, side and round."""

    def __init__(self, records):
        self.cells = defaultdict(lambda: defaultdict(dict))
        self.mismatches = sum(r.get("mismatches", 0) for r in records)
        self.line = [r["line_before_ns"] for r in records if r.get("line_before_ns")]
        for r in records:
            if r["side"] in SIDES:
                self.cells[self.key(r)][r["side"]][r["round"]] = r

    @staticmethod
    def key(r):
        return (r["form"], r["host"], r["what"], r.get("who", ""), r["bytes"], r["ranks"],
                r.get("delay_us", 0))

    def values(self, key, side, fn, other=None):
        """fn(record, the other side's record of the same round), where both are there and the cores
        were equally far apart."""
        mine, theirs = self.cells[key][side], self.cells[key].get(other or side, {})
        out = [fn(r, theirs[n]) for n, r in sorted(mine.items())
               if n in theirs and r["state"] == theirs[n]["state"]]
        return [v for v in out if v is not None]


def mid(values):
    return statistics.median(values) if values else None


def spread(values, digits=2):
    return f"{min(values):.{digits}f}..{max(values):.{digits}f}" if values else "-"


def is_wide(values):
    """Returns whether the middle half of the rounds differs by more than noise."""
    if len(values) < 3:
        return False
    q = statistics.quantiles(values, n=4)
    return q[2] - q[0] > WIDE * abs(statistics.median(values))


def verdict(name, values, most=None, least=None):
    """Returns pass or MISS for the median; ? when the rounds disagree."""
    if not values:
        return f"{name} -"
    good = [(v <= most) if most is not None else (v >= least) for v in values]
    m = statistics.median(values)
    ok = m <= most if most is not None else m >= least
    bound = f"<={most:g}" if most is not None else f">={least:g}"
    return f"{name}{bound} {'pass' if ok else 'MISS'}{'' if all(x == ok for x in good) else '?'}"


def ratio(part, other=None):
    def fn(mine, theirs):
        a, b = us(mine, part), us(theirs, other or part)
        return a / b if a and b else None
    return fn


def said(key, side, judged, *verdicts):
    return ", ".join(filter(None, verdicts)) if side in judged and key[1] in TARGET_HOSTS else ""


# ---- overlap --------------------------------------------------------------------------------


def longest(mine, block):
    comm, comp, both = us(block, "comm"), us(mine, "comp"), us(mine, "both")
    return both / max(comm, comp) if comm and comp and both else None


def overlap(mine, block):
    comm, comp, both = us(block, "comm"), us(mine, "comp"), us(mine, "both")
    return 100 * (1 - (both - comp) / comm) if comm and comp and both else None


def overlap_rows(c, key, sides):
    for side in sides:
        if side not in c.cells[key]:
            continue
        reference = "plain" if side == "plain" else "blocking"
        most = c.values(key, side, longest, reference)
        share = c.values(key, side, overlap, reference)
        block = c.values(key, side, ratio("both"), "blocking")
        plain = c.values(key, side, lambda a, b: ratio("both")(b, a), "plain")
        part = {p: mid(c.values(key, side, lambda r, _, p=p: us(r, p)))
                for p in ("comm", "comp", "both", "call", "use")}
        free = key[0] == "free"
        verdicts = [verdict("", most, most=OVERLAP_MOST), verdict("", share, least=OVERLAP_LEAST)] \
            if free else [verdict("", block, most=SAME)]
        if key[3] == "all" and free:
            verdicts.pop(0)
        yield [key[2].removeprefix("overlap-"), size_text(key[4]), key[1], key[3], side,
               number(part["comm"]), number(part["comp"]), number(part["both"]),
               number(part["call"], 3), number(part["use"], 3), number(mid(most), 3),
               number(mid(share), 3), spread(share, 0), number(mid(block), 3), spread(block),
               number(mid(plain), 3), len(share),
               said(key, side, JUDGED, *verdicts, "wide" if is_wide(share if free else block) else "")]


# ---- the others --------------------------------------------------------------------------------


def touch_rows(c, key, sides):
    for side in sides:
        if side not in c.cells[key]:
            continue
        block = c.values(key, side, ratio("comm"), "blocking")
        plain = c.values(key, side, lambda a, b: ratio("comm")(b, a), "plain")
        yield [key[2].removeprefix("touch-"), size_text(key[4]), key[1], side,
               number(mid(c.values(key, side, lambda r, _: us(r, "comm")))), number(mid(block), 3),
               spread(block), number(mid(plain), 3), len(block),
               said(key, side, JUDGED, verdict("", block, most=SAME),
                    "wide" if is_wide(block) else "")]


def late_rows(c, key, sides):
    d = key[6]
    for side in sides:
        if side not in c.cells[key]:
            continue
        comm = {}
        for other, rounds in c.cells.items():
            if other[:6] == key[:6]:
                for n, r in rounds["blocking"].items():
                    comm[n] = us(r, "comm") or comm.get(n)
        loss = []
        for n, r in sorted(c.cells[key][side].items()):
            late, comp = us(r, "late"), us(r, "comp")
            if late and comp and comm.get(n):
                loss.append(100 * (late - max(comp, d) - comm[n]) / d)
        yield [key[2].removeprefix("late-"), size_text(key[4]), key[1], f"{d / 1000:g}", side,
               number(mid([v for v in comm.values() if v])),
               number(mid(c.values(key, side, lambda r, _: us(r, "late")))),
               f"{mid(loss):.1f}" if loss else "-", spread(loss, 1), len(loss),
               said(key, side, ("auto",), verdict("", loss, most=LOSS_MOST))]


def switch_rows(c, key, sides):
    for side in sides:
        ratios, left_mb, allowed_us = [], [], []
        for _, r in sorted(c.cells[key].get(side, {}).items()):
            touch, copy = us(r, "touch"), us(r, "copy")
            if not touch or not copy:
                continue
            moved = r["launch"]["counters"].get("bytes_engine", 0) / r["touch"]["calls"]
            left = max(0, key[4] - moved)
            allowed = copy * left / key[4] + PIECES / 1000
            ratios.append(touch / allowed)
            left_mb.append(left / MIB)
            allowed_us.append(allowed)
        if ratios:
            yield [key[2].removeprefix("switch-"), size_text(key[4]), key[1], f"{key[6] / 1000:g}",
                   f"{mid(left_mb):.2f}", number(mid(allowed_us)),
                   number(mid(c.values(key, side, lambda r, _: us(r, "touch")))),
                   number(mid(ratios), 3), spread(ratios), len(ratios),
                   said(key, side, ("on",), verdict("", ratios, most=SWITCH_MOST))]


IDLE = ("voluntary", "forced", "others_voluntary", "others_forced", "threads", "cpu_us")


def idle_rows(c, key, sides):
    plain = {f: mid(c.values(key, "plain", lambda r, _, f=f: r[f])) for f in IDLE}
    for side in sides:
        if side not in c.cells[key]:
            continue
        m = {f: mid(c.values(key, side, lambda r, _, f=f: r[f])) for f in IDLE}
        seconds = next(iter(c.cells[key][side].values()))["seconds"]
        word = ""
        if plain["voluntary"] is not None:
            more = [f for f in ("voluntary", "others_voluntary", "others_forced") if m[f] > plain[f]]
            word = f"as plain {'MISS: ' + ' '.join(more) if more else 'pass'}"
        yield [key[2], f"{seconds:g} s", key[1], side, *(f"{m[f]:.0f}" for f in IDLE),
               said(key, side, ("auto", "on"), word)]


def synthetic_rows(c, key, sides):
    for side in sides:
        if side not in c.cells[key]:
            continue
        total = c.values(key, side, lambda r, _: us(r, "total"))
        block = c.values(key, side, ratio("total"), "blocking")
        plain = c.values(key, side, lambda a, b: ratio("total")(b, a), "plain")
        parts = [number(mid(c.values(key, side, lambda r, _, p=p: r[p]["us"] / 1000)))
                 for p in ("init", "bcast", "compute", "gather")]
        order = round((key[4] / 4) ** 0.5)
        yield ["synthetic", f"{order}", key[1], side, number(mid([t / 1000 for t in total])), *parts,
               number(mid(block), 3), spread(block), number(mid(plain), 3), len(total),
               said(key, side, JUDGED, verdict("", block, most=SAME),
                    "wide" if is_wide(block) else "")]


def calm(c, key):
    """Drops launches in which a rank often lost its core, where enough others remain."""
    for side, rounds in c.cells[key].items():
        good = {n: r for n, r in rounds.items() if not is_disturbed(r)}
        if len(good) >= FEWEST:
            c.cells[key][side] = good


def regress_rows(c, key, _):
    def quotient(a, b):
        return c.values(key, a, lambda x, y: x["p50_us"] / y["p50_us"], b)
    calm(c, key)
    reference = "before" if c.cells[key].get("before") else "blocking"
    block, auto = quotient("plain", reference), quotient("plain", "auto")
    both = quotient("auto", reference)
    mids = [number(mid(c.values(key, s, lambda r, _: r["p50_us"])))
            for s in ("plain", "before", "blocking", "auto")]
    yield [key[2], size_text(key[4]), key[1], f"{key[5]}", *mids, number(mid(block), 3),
           number(mid(auto), 3), number(mid(both), 3), spread(both), len(both),
           said(key, "auto", JUDGED, verdict("", both, most=SAME), "wide" if is_wide(both) else "")]


TABLES = {
    "overlap": (["what", "size", "host", "who", "side", "comm us", "comp us", "both us", "call",
                 "use", "both/max",
                 "overlap %", "spread", "to block", "spread", "plain/", "rounds", "target"],
                overlap_rows),
    "touch": (["what", "size", "host", "side", "comm us", "to block", "spread", "plain/", "rounds",
               "target"], touch_rows),
    "lateroot": (["what", "size", "host", "d ms", "side", "comm us", "late us", "loss %", "spread",
                  "rounds", "target"], late_rows),
    "switch": (["what", "size", "host", "wait ms", "left MB", "allowed us", "touch us", "ratio",
                "spread", "rounds", "target"], switch_rows),
    "idle": (["what", "time", "host", "side", "voluntary", "forced", "others vol.",
              "others forced", "threads", "CPU us", "target"], idle_rows),
    "synthetic": (["what", "order", "host", "side", "total ms", "init", "bcast", "compute", "gather",
                   "to block", "spread", "plain/", "rounds", "target"], synthetic_rows),
    "regress": (["what", "size", "host", "ranks", "plain us", "before us", "block us", "auto us",
                 "plain/ref", "plain/auto", "auto/ref", "spread", "rounds", "target"],
                regress_rows),
}


def counters_line(records):
    """Prints the counters of each side over all launches: they show sides that never returned early."""
    out, seen = [], set()
    for side in SIDES:
        total = defaultdict(int)
        for r in records:
            mark = (r["form"], r["host"], r["side"], r["round"], id(r["launch"]))
            if r["side"] == side and mark not in seen:
                seen.add(mark)
                for name, n in r["launch"].get("counters", {}).items():
                    total[name] += n
        if total:
            out.append(f"  {side}: " + ", ".join(f"{k} {v}" for k, v in total.items()))
    return "\n".join(out)


def body(section, records):
    c, out = Rounds(records), []
    head, rows_of = TABLES[section]
    for form in FORMS:
        rows = [row for key in c.cells if key[0] == form for row in rows_of(c, key, list(SIDES))]
        if rows:
            out += [f"\n {FORMS[form][2]}" if section != "regress" else "", table([head, *rows])]
    if c.line:
        out.append(f"\n ping-pong of the two cores {statistics.median(c.line):.0f} ns "
                   f"({min(c.line):.0f}..{max(c.line):.0f}) there and back: near below 80")
    dropped = sum(p.get("dropped", 0) for r in records for p in r.values() if isinstance(p, dict))
    kept = sum(p.get("samples", 0) for r in records for p in r.values() if isinstance(p, dict))
    out.append(f" {len(records)} measurements, {kept} samples and {dropped} disturbed ones that were "
               f"dropped; {c.mismatches} wrong contents")
    counters = counters_line(records)
    return "\n".join(out + ([" counters of all launches:", counters] if counters else []))


def section(name, sentence, records):
    return f"\n== {name}: {sentence}\n{LEGEND[name].strip(chr(10))}\n{body(name, records)}"


def unsettled(name, records):
    """Returns the number of judged rows with a wide spread, a reason for more rounds."""
    c = Rounds(records)
    if all(len(rounds) < 3 for cell in c.cells.values() for rounds in cell.values()):
        return 0
    rows = [row for key in c.cells for row in TABLES[name][1](c, key, list(SIDES))]
    return sum("wide" in str(row[-1]) or "?" in str(row[-1]) for row in rows)
