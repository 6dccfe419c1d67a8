# SPDX-License-Identifier: BSD-3-Clause
"""Shared code of the tests: the MPIs, running programs under them, looking for what they leave behind."""
