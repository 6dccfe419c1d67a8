/* SPDX-License-Identifier: BSD-3-Clause */
/* xfer/protocol.c with its atomics as scheduling points, under names of its own (model_claim for
 * xfer_claim ...). Include after all other headers. */
#include "interleave_atomics.h"

#define xfer_open          model_open
#define xfer_claim         model_claim
#define xfer_unclaim       model_unclaim
#define xfer_complete      model_complete
#define xfer_is_done       model_is_done
#define xfer_is_all_claimed model_is_all_claimed
#define xfer_claim_marked  model_claim_marked
#define xfer_unmark        model_unmark
#define xfer_was_claimed   model_was_claimed
#define UNUSED             __attribute__((unused))
static void model_open(struct xfer *x, uint64_t tag) UNUSED;
static uint32_t model_claim(struct xfer *x, uint64_t tag, uint32_t units, uint32_t start) UNUSED;
static void model_unclaim(struct xfer *x, uint32_t unit) UNUSED;
static uint32_t model_claim_marked(struct xfer *x, uint64_t tag, uint32_t units,
				   _Atomic uint64_t *intent, uint64_t name) UNUSED;
static void model_unmark(struct xfer *x) UNUSED;
static bool model_was_claimed(struct xfer *x, uint64_t tag, uint32_t unit) UNUSED;
static bool model_complete(struct xfer *x, uint64_t bits, uint64_t total) UNUSED;
static bool model_is_done(struct xfer *x, uint64_t tag, uint64_t bits) UNUSED;
static bool model_is_all_claimed(struct xfer *x, uint64_t tag, uint32_t units) UNUSED;
#include "xfer/protocol.c"
