/* SPDX-License-Identifier: BSD-3-Clause */
/* Until guard/ is there. */
#include <errno.h>
#include "guard/guard.h"
#pragma GCC diagnostic ignored "-Wmissing-prototypes"
#define WEAK __attribute__((weak))
WEAK int guard_init(const struct guard_ops *ops) { (void)ops; return -ENOSYS; }
WEAK const char *guard_kind_name(void) { return "none"; }
WEAK const char *guard_reason(void) { return "not built yet"; }
WEAK void guard_fini(void) {}
WEAK bool guard_is_ready(void) { return false; }
WEAK int guard_arm(struct guard_range *r) { (void)r; return -ENOSYS; }
WEAK bool guard_release(struct guard_range *r, uintptr_t s, uintptr_t e) { (void)r, (void)s, (void)e; return true; }
WEAK void guard_enter(void) {}
WEAK void guard_leave(void) {}
WEAK void guard_wait_begin(void) {}
WEAK void guard_wait_end(void) {}
WEAK void guard_trust_begin(void) {}
WEAK void guard_trust_end(void) {}
WEAK void guard_own_thread(void) {}
WEAK bool guard_wait_interrupted(void) { return false; }
