# SPDX-License-Identifier: BSD-3-Clause
"""Medians, their confidence intervals, and when they have settled."""
import random
import statistics

RESAMPLES = 400
CONFIDENT = 0.95
FEWEST = 3
SMALL_SPREAD = 0.05  # half the interval relative to the value; below it a result has settled


def median(values):
    return statistics.median(values)


def interval(values, seed):
    """Returns (low, high) around the median with 95 % confidence, by resampling; the extremes of fewer than
    3."""
    if len(values) < FEWEST:
        return min(values), max(values)
    chance = random.Random(seed)
    found = sorted(median(chance.choices(values, k=len(values))) for _ in range(RESAMPLES))
    cut = int(RESAMPLES * (1 - CONFIDENT) / 2)
    return found[cut], found[-1 - cut]


def is_narrow(value, low, high, count):
    """Returns True for a settled result; one or two values never are."""
    return count >= FEWEST and (high - low) / 2 <= SMALL_SPREAD * abs(value)


def ratio(pairs, seed):
    """Returns reference/mine of (mine, reference) pairs of the same rounds."""
    quotients = [b / a for a, b in pairs if a]
    if not quotients:
        return None
    low, high = interval(quotients, seed)
    return {'value': median(quotients), 'low': low, 'high': high, 'pairs': len(quotients)}
