# SPDX-License-Identifier: BSD-3-Clause
"""What the tests share: the MPIs, running programs under them, looking for what they leave behind."""
