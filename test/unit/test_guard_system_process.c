/* SPDX-License-Identifier: BSD-3-Clause */
#include "system_case.h"
