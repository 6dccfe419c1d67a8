/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * A model of sluice.ko in this process: its calls, and a thread that copies. It checks entries as
 * the module does. Where /dev/sluice exists (in the guest of test/kmod), the tests use that.
 */
#ifndef SLUICE_UNIT_KMOD_MODEL_H
#define SLUICE_UNIT_KMOD_MODEL_H

#include "engine/kmod/kmod.h"

struct kmod_model {
	unsigned hang_at;  /* the n-th copy from now on, and all after it, never end */
	unsigned error_at; /* the n-th copy fails: -EIO, or copy_error */
	unsigned accepts;  /* copies accepted by one call; 0: all */
	int open_error, enter_error, attach_error, copy_error; /* -errno */
	unsigned abi, channels;
	_Atomic unsigned copies, enters;
};
extern struct kmod_model kmod_model;

/* Returns: true with the real module, or where a sanitizer cannot follow the model's thread. */
bool kmod_model_is_absent(void);
/* No fault, and counters at 0. */
void kmod_model_reset(void);

#endif
