# SPDX-License-Identifier: BSD-3-Clause
"""Sluice from Python: sluice.goal builds, checks, runs and simulates GOAL schedules; sluice.chakra reads
execution traces of MLCommons Chakra. Everything is done by the `sluice` command of the same installation.
"""
