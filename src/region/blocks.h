/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Blocks of the C library's allocator that are mappings of their own, and how much of their pages
 * is the program's. A guard may close a page only when nothing else lies in it; a large block
 * begins 16 bytes into its first page, after the allocator's word about it, and ends anywhere in
 * its last.
 *
 *   chunk     user                             user + bytes       chunk + size
 *   | header |############# the program's #####|..........| sign |      all page-aligned but `user`
 *   |<- page ->|                                     |<- page ->|
 *
 * How much of the last page the program asked for is known to nobody but malloc()'s caller, so the
 * hooks ask for 16 bytes more and leave a sign there: the size, and a word made of the address,
 * which no other memory has by accident and which is gone when the program writes beyond its size.
 */
#ifndef SLUICE_REGION_BLOCKS_H
#define SLUICE_REGION_BLOCKS_H

#include "base/base.h"
#include "os/os.h"

#define BLOCK_SIGN_BYTES 16
#define BLOCK_SIGNED_MIN                                                                           \
	((size_t)64 << 10) /* smaller blocks are hardly ever mappings, nor adopted */

/* Said once, by the hooks: malloc() and free() are those of the C library, whose headers we know.
 */
extern bool blocks_are_known;

/* Is p, which the C library's malloc gave, a mapping of its own? Then the mapping. Reads p's
 * header. */
bool block_is_mapping(const void *p, uintptr_t *out_start, uintptr_t *out_end);
/* A block of which `bytes` are the program's and at least BLOCK_SIGN_BYTES more were asked for. */
void block_sign(void *p, size_t bytes);
/* The same for any address: does a signed block of its own mapping begin at buf, so that buf and
 * the next `bytes` lie in it? *out_bytes: how many are the program's. Nothing but readable memory
 * is read. */
bool block_begins_at(uintptr_t buf, uint64_t bytes, uint64_t *out_bytes);

#endif
