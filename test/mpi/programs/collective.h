/* SPDX-License-Identifier: BSD-3-Clause */
/* Buffers for tests of collectives: every byte is either of a message or must stay what it was. */
#ifndef COLLECTIVE_H
#define COLLECTIVE_H

#include "check.h"

enum { UNTOUCHED = 0xe5 };

struct buffer {
	char *block, *at; /* what is used begins at `at` */
	size_t bytes;     /* from `block` on */
};

static inline void buffer_make(struct buffer *b, size_t bytes)
{
	b->block = b->at = check_alloc(bytes + 64);
	b->bytes = bytes + 64;
}

static inline void buffer_free(struct buffer *b) { free(b->block); }
static inline void buffer_shift(struct buffer *b, size_t by) { b->at = b->block + by; }
static inline void buffer_clear(struct buffer *b) { memset(b->block, UNTOUCHED, b->bytes); }

/* Packed bytes of count elements, and where they are kept. */
static inline int buffer_size(MPI_Datatype type, int count, char **out)
{
	int size;

	MPI_Type_size(type, &size);
	*out = check_alloc((size_t)size * (size_t)count + 1);
	return size * count;
}

static inline void buffer_move(struct buffer *b, MPI_Aint at, MPI_Datatype type, int count,
			       char *packed, int bytes, bool is_in)
{
	int position = 0;

	if (bytes && is_in)
		MPI_Unpack(packed, bytes, &position, b->at + at, count, type, MPI_COMM_SELF);
	else if (bytes)
		MPI_Pack(b->at + at, count, type, packed, bytes, &position, MPI_COMM_SELF);
}

/* A message of this seed. */
static inline void buffer_put(struct buffer *b, MPI_Aint at, MPI_Datatype type, int count,
			      uint64_t seed)
{
	char *packed;
	int bytes = buffer_size(type, count, &packed);

	check_fill(packed, (size_t)bytes, seed);
	buffer_move(b, at, type, count, packed, bytes, true);
	free(packed);
}

/* It is there; from now on it counts as untouched. */
static inline void buffer_see(struct buffer *b, MPI_Aint at, MPI_Datatype type, int count,
			      uint64_t seed, const char *what)
{
	char *packed;
	int bytes = buffer_size(type, count, &packed);

	buffer_move(b, at, type, count, packed, bytes, false);
	check_same(packed, (size_t)bytes, seed, what);
	memset(packed, UNTOUCHED, (size_t)bytes);
	buffer_move(b, at, type, count, packed, bytes, true);
	free(packed);
}

/* All that has not been seen is as it was. */
static inline void buffer_rest(struct buffer *b, const char *what)
{
	for (size_t i = 0; i < b->bytes; i++) {
		if ((unsigned char)b->block[i] == UNTOUCHED)
			continue;
		check_fail("%s: byte %zu, which belongs to nothing received, was written", what, i);
		return;
	}
}

#endif
