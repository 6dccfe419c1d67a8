/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Blocks of the C library's allocator that are mappings of their own, and how many bytes of them
 * the program has. A guard may close a page only when no other data lies in it. A large block
 * begins 16 bytes into its first page, behind the allocator's header, and ends anywhere in its last
 * page.
 *
 *   chunk     user                             user + bytes       chunk + size
 *   | header |############# the program's #####|..........| sign |      all page-aligned but `user`
 *   |<- page ->|                                     |<- page ->|
 *
 * Only malloc()'s caller knows how many bytes of the last page the program has. So the hooks
 * allocate 16 bytes more and write a sign there: the size, and a word computed from address and
 * size. No other memory has this word by accident, and the program destroys it when it writes
 * beyond its size.
 */
#ifndef SLUICE_REGION_BLOCKS_H
#define SLUICE_REGION_BLOCKS_H

#include "base/base.h"
#include "os/os.h"

#define BLOCK_SIGN_BYTES 16
#define BLOCK_SIGNED_MIN ((size_t)64 << 10) /* smaller blocks are rarely mappings or adopted */

/* malloc() and free() are the C library's, whose headers are known. Set once, by the hooks. */
extern bool blocks_are_known;

/* Is the C library's block p a mapping of its own? Reads p's header. */
bool block_is_mapping(const void *p, uintptr_t *out_start, uintptr_t *out_end);
/* Signs a block of which the program has `bytes` and that is at least BLOCK_SIGN_BYTES longer. */
void block_sign(void *p, size_t bytes);
/* Does a signed block with a mapping of its own begin at buf, with at least `bytes` of the program?
 * buf may be any address: only readable memory is read. *out_bytes: how many the program has. */
bool block_begins_at(uintptr_t buf, uint64_t bytes, uint64_t *out_bytes);

#endif
