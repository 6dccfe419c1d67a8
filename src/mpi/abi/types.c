/* SPDX-License-Identifier: BSD-3-Clause */
/* The layout of a datatype. An attribute of a derived datatype caches the answer. */
#include <errno.h>
#include <limits.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>

#include "base/base.h"
#include "mpi/abi/abi.h"

enum {
	PROBE_BYTES = 1 << 20, /* the constructor tells the layout of larger elements */
	PROBE_PASSES = 3,      /* bytes of an offset below PROBE_BYTES */
};

uint64_t types_bytes(MPI_Datatype datatype, MPI_Count count)
{
	MPI_Count size, bytes;

	if (host.Type_size_x(datatype, &size) || size <= 0 || count <= 0 ||
	    __builtin_mul_overflow(size, count, &bytes))
		return 0;
	if (types_bound(datatype))
		sizes_learn(&types_sizes, (uintptr_t)datatype, (uint64_t)size);
	return bytes < INT64_MAX / 2 ? (uint64_t)bytes : 0;
}

/* ---- is the packed form the memory itself? ----------------------------------------------- */

static bool probe_order(MPI_Datatype datatype, const struct types_shape *shape, MPI_Comm scratch,
			unsigned char *code, unsigned char *packed)
{
	/* packing preserves bytes: number the bytes, and read where each number comes out */
	struct pack pack = {
		.base = (void *)((uintptr_t)code - (uintptr_t)shape->true_lb),
		.datatype = datatype,
		.shape = *shape,
		.scratch = scratch,
	};

	for (int pass = 0; pass < PROBE_PASSES; pass++) {
		for (MPI_Count i = 0; i < shape->size; i++)
			code[i] = (unsigned char)(i >> (8 * pass));
		if (pack_elements(&pack, 0, 1, packed) ||
		    memcmp(code, packed, (size_t)shape->size))
			return false;
	}
	return true;
}

static bool is_in_order_by_probe(MPI_Datatype datatype, const struct types_shape *shape)
{
	unsigned char *code = malloc(2 * (size_t)shape->size);
	MPI_Comm scratch;
	bool in_order;

	if (!code)
		return false;
	in_order = !scratch_comm(&scratch) &&
		   probe_order(datatype, shape, scratch, code, code + shape->size);
	free(code);
	return in_order;
}

static int measure(MPI_Datatype datatype, struct types_shape *out, MPI_Count *true_extent)
{
	MPI_Count lb;

	return host.Type_size_x(datatype, &out->size) ||
	       host.Type_get_extent_x(datatype, &lb, &out->extent) ||
	       host.Type_get_true_extent_x(datatype, &out->true_lb, true_extent);
}

struct origin {
	int combiner;
	MPI_Count count;
	MPI_Datatype old;
};

/* Finds how a datatype with one old datatype was made, by either generation of functions: the
 * first refuses datatypes of large counts. Returns: 0, or -errno for every other combiner. */
static int origin_get(MPI_Datatype datatype, struct origin *out)
{
	MPI_Count ints = 0, addresses = 0, counts = 0, types = 0, large[3] = { 0 };
	MPI_Aint address[2];
	int small[3] = { 0 }, n[3];

	if (host.Type_get_envelope_c && host.Type_get_contents_c) {
		if (host.Type_get_envelope_c(datatype, &ints, &addresses, &counts, &types,
					     &out->combiner))
			return -EIO;
	} else {
		if (host.Type_get_envelope(datatype, &n[0], &n[1], &n[2], &out->combiner))
			return -EIO;
		ints = n[0];
		addresses = n[1];
		types = n[2];
	}
	if (types != 1 || ints > 1 || addresses > 2 || counts > 2)
		return -ENOTSUP;
	if (host.Type_get_envelope_c && host.Type_get_contents_c) {
		if (host.Type_get_contents_c(datatype, ints, addresses, counts, types, small,
					     address, large, &out->old))
			return -EIO;
	} else if (host.Type_get_contents(datatype, (int)ints, (int)addresses, (int)types, small,
					  address, &out->old)) {
		return -EIO;
	}
	out->count = counts ? large[0] : small[0];
	return 0;
}

/* Frees the datatypes of get_contents, except predefined ones. */
static void origin_put(struct origin *origin)
{
	int n[3], combiner;
	MPI_Count c[4];

	if (host.Type_get_envelope_c) {
		if (host.Type_get_envelope_c(origin->old, &c[0], &c[1], &c[2], &c[3], &combiner))
			return;
	} else if (host.Type_get_envelope(origin->old, &n[0], &n[1], &n[2], &combiner)) {
		return;
	}
	if (combiner != abi.combiner_named)
		host.Type_free(&origin->old);
}

static bool is_in_order(MPI_Datatype datatype, const struct types_shape *shape, int depth);

/* Judges elements that are too large to probe: true in evident cases only. */
static bool is_in_order_by_origin(MPI_Datatype datatype, int depth)
{
	struct origin origin = { 0 };
	struct types_shape old;
	MPI_Count true_extent;
	bool in_order = false;

	if (depth > 16 || origin_get(datatype, &origin))
		return false;
	if (!measure(origin.old, &old, &true_extent) && old.size == true_extent) {
		if (origin.combiner == abi.combiner_contiguous)
			in_order = (origin.count == 1 || old.extent == old.size) &&
				   is_in_order(origin.old, &old, depth + 1);
		else if (origin.combiner == abi.combiner_dup ||
			 origin.combiner == abi.combiner_resized)
			in_order = is_in_order(origin.old, &old, depth + 1);
	}
	origin_put(&origin);
	return in_order;
}

/* Context: shape->size equals the true extent. */
static bool is_in_order(MPI_Datatype datatype, const struct types_shape *shape, int depth)
{
	if (types_bound(datatype) || !shape->size)
		return true;
	if (shape->size <= PROBE_BYTES && is_in_order_by_probe(datatype, shape))
		return true;
	/* an inner datatype may not be committed, and some host MPIs refuse to pack it */
	return (depth || shape->size > PROBE_BYTES) && is_in_order_by_origin(datatype, depth);
}

/* ---- description ------------------------------------------------------------------------- */

static pthread_mutex_t keyval_lock = PTHREAD_MUTEX_INITIALIZER;
static int type_keyval;             /* written under keyval_lock, before has_keyval */
static _Atomic bool has_keyval;

static int copy_none(MPI_Datatype type, int keyval, void *extra, void *in, void *out, int *flag)
{
	*flag = 0;
	return 0;
}

static int delete_shape(MPI_Datatype type, int keyval, void *value, void *extra)
{
	free(value);
	return 0;
}

static int ensure_keyval(void)
{
	int rc = 0;

	if (atomic_load_explicit(&has_keyval, memory_order_acquire))
		return 0;
	pthread_mutex_lock(&keyval_lock);
	if (!atomic_load_explicit(&has_keyval, memory_order_relaxed)) {
		rc = host.Type_create_keyval(copy_none, delete_shape, &type_keyval, NULL);
		atomic_store_explicit(&has_keyval, !rc, memory_order_release);
	}
	pthread_mutex_unlock(&keyval_lock);
	return rc ? -EIO : 0;
}

/* Asks the host MPI, by an empty call on the scratch communicator, whether it communicates with
 * the datatype. MPI_Gather checks in all host MPIs; packing and an empty MPI_Bcast do not. */
static bool is_committed(MPI_Datatype datatype)
{
	MPI_Comm scratch;
	char send = 0, recv = 0;

	return !scratch_comm(&scratch) &&
	       !ON_SCRATCH_LOCKED(host.Gather(&send, 0, datatype, &recv, 0, datatype, 0, scratch));
}

static int examine(MPI_Datatype datatype, struct types_shape *out)
{
	MPI_Count true_extent;

	if (measure(datatype, out, &true_extent))
		return -EINVAL;
	if (!types_bound(datatype) && !is_committed(datatype))
		return -EINVAL;
	out->in_order = out->size == true_extent && is_in_order(datatype, out, 0);
	return 0;
}

static bool is_cached(MPI_Datatype datatype, struct types_shape *out, int *rc)
{
	struct types_shape *cached = NULL;
	int found = 0;

	*rc = host.Type_get_attr(datatype, type_keyval, &cached, &found) ? -EINVAL : 0;
	if (!*rc && found)
		*out = *cached;
	return found;
}

static int cache(MPI_Datatype datatype, const struct types_shape *shape)
{
	struct types_shape *cached = malloc(sizeof(*cached));

	if (!cached)
		return -ENOMEM;
	*cached = *shape;
	if (!host.Type_set_attr(datatype, type_keyval, cached))
		return 0;
	free(cached);
	return -EIO;
}

static int recall(MPI_Datatype datatype, struct types_shape *out)
{
	static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
	int rc = ensure_keyval();

	if (rc || is_cached(datatype, out, &rc) || rc)
		return rc;
	/* one thread at a time: the cached shape lives as long as the datatype */
	pthread_mutex_lock(&lock);
	if (!is_cached(datatype, out, &rc) && !rc) {
		rc = examine(datatype, out);
		if (!rc)
			cache(datatype, out); /* without the attribute the next call probes again */
	}
	pthread_mutex_unlock(&lock);
	return rc;
}

int types_describe(MPI_Datatype datatype, struct types_shape *out)
{
	int rc;

	bypass++;
	rc = types_bound(datatype) ? examine(datatype, out) : recall(datatype, out);
	bypass--;
	return rc;
}

/* ---- many elements as one ---------------------------------------------------------------- */

int types_repeat(MPI_Count count, MPI_Datatype datatype, MPI_Datatype *out)
{
	enum { BLOCK = 1 << 30 };
	MPI_Datatype block = NULL, parts[2] = { NULL };
	void *old[2]; /* room for handles of either width */
	MPI_Count lb, extent;
	int lengths[2] = { 1, 1 }, rc;
	MPI_Aint offsets[2] = { 0, 0 };

	if (count / BLOCK > INT_MAX)
		return abi.err_count;
	rc = host.Type_get_extent_x(datatype, &lb, &extent);
	if (rc)
		return rc;
	rc = host.Type_contiguous(BLOCK, datatype, &block);
	if (rc)
		return rc;
	rc = host.Type_contiguous((int)(count / BLOCK), block, &parts[0]);
	host.Type_free(&block);
	if (rc)
		return rc;
	rc = host.Type_contiguous((int)(count % BLOCK), datatype, &parts[1]);
	if (rc)
		goto free_head;
	offsets[1] = (MPI_Aint)(count / BLOCK * BLOCK * extent);
	for (int i = 0; i < 2; i++)
		abi_handle_set(old, i, parts[i]);
	*out = NULL;
	rc = host.Type_create_struct(2, lengths, offsets, old, out);
	if (!rc)
		rc = host.Type_commit(out);
	host.Type_free(&parts[1]);
free_head:
	host.Type_free(&parts[0]);
	return rc;
}
