/* SPDX-License-Identifier: GPL-2.0 */
#ifndef _SHIM_STDINT_H
#define _SHIM_STDINT_H

#include <linux/limits.h>
#include <linux/types.h>

#ifndef UINT32_MAX
#define UINT32_MAX U32_MAX
#endif
#ifndef UINT64_MAX
#define UINT64_MAX U64_MAX
#endif

#endif
