/* SPDX-License-Identifier: BSD-3-Clause */
/* Where the bytes of a datatype lie. An attribute of a datatype with gaps caches the answer. */
#include <errno.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdlib.h>

#include "base/base.h"
#include "mpi/abi/abi.h"
#include "mpi/abi/flatten.h"

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
	struct types_shape *shape = value;

	typemap_put(shape->map); /* pending operations have references of their own */
	free(shape);
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

	if (types_measure(datatype, out, &true_extent))
		return -EINVAL;
	return types_bound(datatype) || is_committed(datatype) ? flatten(datatype, out) : -EINVAL;
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
			cache(datatype, out); /* without the attribute the map is never freed */
	}
	pthread_mutex_unlock(&lock);
	return rc;
}

/* Predefined, at every call. Returns: false: ask as for other datatypes. */
static bool is_block(MPI_Datatype datatype, struct types_shape *out)
{
	MPI_Count true_extent;

	if (!types_bound(datatype) || types_measure(datatype, out, &true_extent) ||
	    out->size != true_extent) /* a pair with a gap */
		return false;
	out->in_order = out->has_layout = true;
	out->layout = layout_block(out->true_lb, (uint64_t)out->size);
	out->map = NULL;
	return true;
}

int types_describe(MPI_Datatype datatype, struct types_shape *out)
{
	int rc;

	bypass++;
	rc = is_block(datatype, out) ? 0 : recall(datatype, out);
	bypass--;
	return rc;
}
