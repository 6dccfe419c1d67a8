# SPDX-License-Identifier: BSD-3-Clause
"""Prints tables from the records of bench/run; as a program, from those of earlier runs."""
import argparse
import json
import statistics
from collections import defaultdict

NEAR_NS = 80
KIB, MIB = 1 << 10, 1 << 20
LIMIT_FACTOR = 1.25
TARGET_HOSTS = ("mpich", "openmpi")  # others are run to be compared with
LEGEND = """
us          median over launches of the median call (a call is as long as its slowest rank)
ratio       plain / Sluice, median over the pairs; spread: least and largest pair
vs fastest  the fastest of the plain MPIs / Sluice (* in targets)
limit       two processes that copy half of the bytes each, between mapped buffers in the same cache
            state; Sluice / limit is to be at most 1.25, and nothing can be faster by much more than
            plain / limit (where the owner's core reads its own cache faster, uneven halves are)
(cma)       here this host copies through process_vm_readv
pairs       compared / measured in this state; disturbed ones (a rank lost its core in more than a
            tenth of the samples) are left out where three others are there
?           not all pairs agree with the verdict"""
CALM_ENOUGH = 3
STATISTIC = "p50_us"  # of a launch; p0_us says what undisturbed calls take, on a busy machine
NOISE = 0.97  # "not slower", as far as it can be measured


def state_of(record):
    """near or far, moved when it changed meanwhile, "" where no ping-pong was played."""
    before, after = record.get("line_before_ns", 0), record.get("line_after_ns", 0)
    if not before or not after:
        return ""
    if (before < NEAR_NS) != (after < NEAR_NS):
        return "moved"
    return "near" if before < NEAR_NS else "far"


def size_text(n):
    for unit, name in ((MIB, " MB"), (KIB, " KB")):
        if n >= unit:
            return f"{n // unit}{name}"
    return f"{n} B" if n else "-"


def targets(section, what, ranks, n, state, cma):
    """Returns the requirements as a list of (against, least ratio); against is own or fastest."""
    if section in ("bcast", "huge") and what == "bcast" and n >= 64 * KIB:
        out = [("own", 1.2 if n == 64 * KIB else 1.0)] if n < 256 * KIB else \
            [("fastest", 1.5 if n == 64 * MIB else 2.0)]
        if n >= MIB and (state == "far" or cma):
            out.append(("own", 3.0))
        return out
    if section in ("gather", "huge") and n >= 64 * KIB:
        return [("own", 3.0 if n >= MIB else 1.2 if n == 64 * KIB else 1.0)]
    if section == "ranks":
        return [("own", 2.0)]
    if section in ("free", "whole"):
        return []
    return [("own", NOISE)]


def verdict(values, low, high, wanted):
    """Returns pass or miss for each target; ? when the pairs disagree about the first."""
    out = []
    for against, least in wanted:
        value = values.get(against)
        if value is None:
            out.append(f"{least:g} -")
            continue
        sure = against != "own" or low >= least or high < least
        out.append(f">={least:g}{'*' if against == 'fastest' else ''} "
                   f"{'pass' if value >= least else 'MISS'}{'' if sure else '?'}")
    return ", ".join(out)


def is_disturbed(r):
    """Returns whether a rank with a core of its own lost it often enough to move the median."""
    return r["ranks"] <= 2 and r.get("lost_core", 0) > r["samples"] / 10


class Cells:
    """Groups records by (what, ranks, bytes): medians of each state, pairs of the same round."""

    def __init__(self, records):
        self.cells = defaultdict(dict)  # key + (host or kernel, side, state) -> round -> record
        self.keys, self.line = [], defaultdict(list)
        self.cma, self.mismatches, self.moved, self.disturbed = set(), 0, 0, 0
        for r in records:
            if "p50_us" not in r:
                continue
            key = (r["what"].replace("limit-", ""), r["ranks"], r["bytes"])
            if key not in self.keys:
                self.keys.append(key)
            self.mismatches += r["mismatches"]
            self.moved += r["state"] == "moved"
            self.disturbed += is_disturbed(r)
            self.line[r["ranks"], r["state"]] += [r["line_before_ns"], r["line_after_ns"]]
            who = r.get("kernel") or r["host"]
            self.cells[key + (who, r["side"], r["state"])][r["round"]] = r
            if r["side"] == "plain" and r.get("cma_calls", 0) >= r["samples"]:
                self.cma.add(key + (who,))

    def median(self, key, host, side, state):
        records = list(self.cells.get(key + (host, side, state), {}).values())
        calm = [r for r in records if not is_disturbed(r)]
        used = calm if len(calm) >= CALM_ENOUGH else records
        return statistics.median(r[STATISTIC] for r in used) if used else None

    def ratios(self, key, host, state):
        """Returns plain / Sluice of the rounds in which both saw this state, and their number."""
        plain, ours = (self.cells.get(key + (host, s, state), {}) for s in ("plain", "sluice"))
        pairs = [(plain[n], ours[n]) for n in plain if n in ours and ours[n][STATISTIC]]
        calm = [p for p in pairs if not any(map(is_disturbed, p))]
        used = calm if len(calm) >= CALM_ENOUGH else pairs
        return [a[STATISTIC] / b[STATISTIC] for a, b in used], len(pairs)

    def wrong(self, key, host, state):
        return sum(r["mismatches"] for side in ("plain", "sluice")
                   for r in self.cells.get(key + (host, side, state), {}).values())

    def best(self, key, names, side, state):
        values = [m for n in names if (m := self.median(key, n, side, state)) is not None]
        return min(values) if values else None


def table(rows):
    widths = [max(len(str(r[i])) for r in rows) for i in range(len(rows[0]))]
    return "\n".join("  " + "  ".join(
        str(c).ljust(w) if i < 3 or i == len(r) - 1 else str(c).rjust(w)
        for i, (c, w) in enumerate(zip(r, widths))).rstrip() for r in rows)


def number(x, digits=4):
    """Returns x with `digits` significant digits."""
    if x is None:
        return "-"
    if x == 0:
        return "0"
    whole = len(str(int(abs(x)))) if abs(x) >= 1 else 0
    return f"{x:.{max(0, digits - whole)}f}"


def row(c, section, key, host, state, fastest, limit):
    plain, ours = (c.median(key, host.name, side, state) for side in ("plain", "sluice"))
    ratios, pairs = c.ratios(key, host.name, state)
    if plain is None and ours is None:
        return None
    wrong = c.wrong(key, host.name, state)
    values = {"own": statistics.median(ratios) if ratios else None,
              "fastest": fastest / ours if fastest and ours else None}
    cma = key + (host.name,) in c.cma
    spread = f"{min(ratios):.2f}..{max(ratios):.2f}" if ratios else "-"
    wanted = targets(section, *key, state, cma) if host.name in TARGET_HOSTS else []
    said = verdict(values, min(ratios, default=0), max(ratios, default=0), wanted)
    if limit and ours and section != "whole" and host.name in TARGET_HOSTS:
        said += f", limit {'pass' if ours / limit <= LIMIT_FACTOR else 'MISS'}"
    if wrong:
        said += f", {wrong} WRONG CONTENTS"
    said = said.removeprefix(", ")
    return [key[0], size_text(key[2]), host.title + (" (cma)" if cma else ""), number(plain),
            number(ours), number(values["own"], 3), spread, f"{len(ratios)}/{pairs}",
            number(values["fastest"], 3),
            number(plain / limit if limit and plain else None, 3),
            number(ours / limit if limit and ours else None, 3), said]


def pairs_section(name, records, hosts):
    c, out = Cells(records), []
    names = [h.name for h in hosts]
    kernels = ("memcpy", "movsb", "nontemporal")
    for ranks in sorted({k[1] for k in c.keys}):
        for state in ("near", "far", "moved"):
            rows = [["what", "size", "host", "plain us", "Sluice us", "ratio", "spread", "pairs",
                     "vs fastest", "plain/limit", "Sluice/limit", "target"]]
            for key in [k for k in c.keys if k[1] == ranks]:
                fastest = c.best(key, names, "plain", state)
                limit = c.best(key, kernels, "limit", state)
                rows += filter(None, (row(c, name, key, h, state, fastest, limit) for h in hosts))
            if len(rows) > 1:
                line = c.line[ranks, state]
                out.append(f"\n {ranks} ranks, cores {state}: ping-pong "
                           f"{statistics.median(line):.0f} ns ({min(line):.0f}..{max(line):.0f}) "
                           "there and back"
                           + ("; shown, but neither pass nor miss" if state == "moved" else ""))
                if state == "moved":
                    rows = [r[:-1] + [""] for r in rows]
                out.append(table(rows))
    out.append(f"\n {len(records)} measurements, {c.moved} of them while the cores moved, "
               f"{c.disturbed} disturbed; {c.mismatches} wrong contents")
    return "\n".join(out)


def startup_section(records, hosts):
    rows = [["what", "unit", "host", "plain", "Sluice", "difference", "spread", "pairs", "target"]]
    kinds = [("start to end", "ms", "hello", lambda r: r["launch"]["wall_s"] * 1000, 20),
             ("VmRSS", "KiB", "memory", lambda r: r["rss_kib"], 1024),
             ("private", "KiB", "memory", lambda r: r["private_kib"], 1024)]
    for what, unit, kind, value, most in kinds:
        for h in hosts:
            sides = {s: {r["round"]: value(r) for r in records
                         if r["what"] == kind and r["host"] == h.name and r["side"] == s}
                     for s in ("plain", "sluice")}
            diffs = [sides["sluice"][n] - v for n, v in sides["plain"].items()
                     if n in sides["sluice"]]
            if not diffs:
                continue
            mid = statistics.median(diffs)
            mids = [number(statistics.median(sides[s].values())) for s in sides]
            rows.append([what, unit, h.title, *mids, f"{mid:+.1f}",
                         f"{min(diffs):+.1f}..{max(diffs):+.1f}", len(diffs),
                         f"<{most} {'pass' if mid < most else 'MISS'}"
                         if h.name in TARGET_HOSTS else ""])
    return "\n" + table(rows)


def section(name, sentence, records, hosts):
    startup = name == "startup"
    body = startup_section(records, hosts) if startup else pairs_section(name, records, hosts)
    return f"\n== {name}: {sentence}{body if body.startswith(chr(10)) else chr(10) + body}"


def any_section(name, records, hosts):
    """Returns the text of one section."""
    import early_report
    import early_sections
    import run_sections
    mine = [r for r in records if r["section"] == name]
    if name in early_sections.FULL:
        return early_report.section(name, early_sections.FULL[name][2], mine)
    return section(name, run_sections.FULL[name][3], mine, hosts)


def about(m):
    lines = [f"{m['cpu']}, {m['cpus']} cores, {m['memory']}; Linux {m['kernel']}; THP {m['thp']}, "
             f"shmem {m['thp_shmem']}",
             f"Sluice: {m['sluice'] or '-'} ({m['source']}), as \"{m['before_program']}\"; "
             f"{m['when']}; load {m['load_at_start']:.2f} to {m['load_at_end']:.2f}"]
    lines += [f"{name}: {version}" for name, version in m["mpis"].items()]
    lines.append(LEGEND if STATISTIC == "p50_us" else
                 LEGEND.replace("the median call", "the fastest call"))
    return "\n".join(lines)


def summary(failures, path, printed):
    """Counts the verdicts in `printed`, the text of the sections."""
    misses = [" ".join(x.split()) for x in printed.splitlines() if "MISS" in x or "WRONG" in x]
    lines = ["", f"verdicts: {printed.count(' pass')} pass, {printed.count(' MISS')} MISS"]
    lines += ["  " + m for m in misses]
    lines.append(f"all records: {path}")
    if failures:
        lines.append(f"{len(failures)} launches FAILED:")
        lines += [f"  {f['section']} {f['host']} {f['side']} {f['ranks']} ranks: "
                  f"{f['why'].splitlines()[0][:120]}" for f in failures]
    return "\n".join(lines)


INTRO = """# Measured

Every figure is from one run of `bench/run` (`./dev bench`) on one machine, host MPIs alone and with
Sluice in turn, until the data has been used; `bench/run --help` says how, and what each section is.
This file is `bench/report.py --markdown RECORDS.json`; do not edit it.
"""


def print_report(data, name, markdown):
    import hosts as H
    hosts = [H.Host(n, "") for n in data["machine"]["mpis"]]
    parts = [any_section(s, data["records"], hosts)
             for s in dict.fromkeys(r["section"] for r in data["records"])]
    if not markdown:
        print("\n".join([about(data["machine"]), *parts,
                         summary(data["failures"], name, "\n".join(parts))]))
        return
    print(INTRO)
    print(f"```\n{about(data['machine'])}\n```")
    for part in parts:
        title, _, body = part.strip("\n").partition("\n")
        print(f"\n## {title.removeprefix('== ')}\n\n```\n{body.strip(chr(10))}\n```")


def main():
    global STATISTIC
    p = argparse.ArgumentParser(prog="bench/report.py", description=__doc__)
    p.add_argument("records", nargs="+", help="JSON of bench/run; of several of one machine, all")
    p.add_argument("--p0", action="store_true", help="the fastest calls instead of the medians")
    p.add_argument("--markdown", action="store_true")
    opt = p.parse_args()
    if opt.p0:
        STATISTIC = "p0_us"
    data = None
    for n, path in enumerate(opt.records):
        with open(path, encoding="utf-8") as f:
            more = json.load(f)
        for r in more["records"]:
            r["round"] += 1000 * n  # rounds of different runs make no pairs
        if data is None:
            data = more
        else:
            data["records"] += more["records"]
            data["failures"] += more["failures"]
    print_report(data, " ".join(opt.records), opt.markdown)


if __name__ == "__main__":
    main()
