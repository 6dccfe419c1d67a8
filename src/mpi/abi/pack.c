/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * A buffer with gaps as packed bytes. Elements with a layout are copied by it. Otherwise the host
 * MPI packs whole elements. Of an element that a byte
 * range cuts, struct pack holds the packed form until a range cuts another element or the call
 * ends. The buffer supplies its missing bytes, so writing a part back changes no other byte.
 */
#include <errno.h>
#include <limits.h>
#include <stdlib.h>
#include <string.h>

#include "base/base.h"
#include "mpi/abi/abi.h"
#include "os/os.h"

enum { BATCH_BYTES = 1 << 30 }; /* within the range of functions with int counts */

static void *element_at(const struct pack *pack, MPI_Count index)
{
	return (void *)((uintptr_t)pack->base + (uintptr_t)(index * pack->shape.extent));
}

/* Converts one element of any size, also at address 0, where some host MPIs refuse to pack, by a
 * message to this rank. */
static int send_to_self(const struct pack *pack, void *element, void *packed, bool is_unpack)
{
	_Alignas(16) char status[256]; /* larger than any host MPI's MPI_Status */
	MPI_Datatype bytes = NULL;
	int rc;

	if (types_repeat(pack->shape.size, abi.byte, &bytes))
		return -EIO;
	if (is_unpack)
		rc = ON_SCRATCH_LOCKED(host.Sendrecv(packed, 1, bytes, 0, 0, element, 1,
						     pack->datatype, 0, 0, pack->scratch,
						     (void *)status));
	else
		rc = ON_SCRATCH_LOCKED(host.Sendrecv(element, 1, pack->datatype, 0, 0, packed, 1,
						     bytes, 0, 0, pack->scratch, (void *)status));
	host.Type_free(&bytes);
	return rc ? -EIO : 0;
}

static int pack_some(const struct pack *pack, void *from, MPI_Count n, void *out)
{
	MPI_Count bytes = n * pack->shape.size, position = 0;
	int small = 0, rc;

	if (!from || (bytes > BATCH_BYTES && !host.Pack_c))
		return send_to_self(pack, from, out, false);
	if (bytes > BATCH_BYTES)
		rc = ON_SCRATCH(host.Pack_c(from, n, pack->datatype, out, bytes, &position,
					   pack->scratch));
	else
		rc = ON_SCRATCH(host.Pack(from, (int)n, pack->datatype, out, (int)bytes, &small,
					 pack->scratch));
	return rc ? -EIO : 0;
}

static int unpack_some(const struct pack *pack, void *to, MPI_Count n, const void *in)
{
	MPI_Count bytes = n * pack->shape.size, position = 0;
	int small = 0, rc;

	if (!to || (bytes > BATCH_BYTES && !host.Unpack_c))
		return send_to_self(pack, to, (void *)in, true);
	if (bytes > BATCH_BYTES)
		rc = ON_SCRATCH(host.Unpack_c(in, bytes, &position, to, n, pack->datatype,
					     pack->scratch));
	else
		rc = ON_SCRATCH(host.Unpack(in, (int)bytes, &small, to, (int)n, pack->datatype,
					   pack->scratch));
	return rc ? -EIO : 0;
}

/* Returns: number of elements that one call may convert: an element larger than a batch goes
 * alone. */
static MPI_Count batch(const struct pack *pack, const void *at, MPI_Count n)
{
	MPI_Count most = BATCH_BYTES / pack->shape.size;

	if (most < 1 || !at)
		return 1;
	return n < most ? n : most;
}

int pack_elements(const struct pack *pack, MPI_Count first, MPI_Count n, void *out)
{
	while (n > 0) {
		void *at = element_at(pack, first);
		MPI_Count some = batch(pack, at, n);
		int rc = pack_some(pack, at, some, out);

		if (rc)
			return rc;
		out = (char *)out + some * pack->shape.size;
		first += some;
		n -= some;
	}
	return 0;
}

static int unpack_elements(const struct pack *pack, MPI_Count first, MPI_Count n, const void *in)
{
	while (n > 0) {
		void *at = element_at(pack, first);
		MPI_Count some = batch(pack, at, n);
		int rc = unpack_some(pack, at, some, in);

		if (rc)
			return rc;
		in = (const char *)in + some * pack->shape.size;
		first += some;
		n -= some;
	}
	return 0;
}

/* ---- parts of elements ------------------------------------------------------------------- */

static int release(struct pack *pack)
{
	int rc = 0;

	if (pack->element_is_dirty)
		rc = unpack_elements(pack, pack->element_index, 1, pack->element);
	pack->element_is_dirty = false;
	pack->element_index = -1;
	return rc;
}

static int hold(struct pack *pack, MPI_Count index)
{
	int rc;

	if (pack->element_index == index)
		return 0;
	rc = release(pack);
	if (rc)
		return rc;
	if (!pack->element)
		pack->element = malloc((size_t)pack->shape.size);
	if (!pack->element)
		return -ENOMEM;
	rc = pack_elements(pack, index, 1, pack->element);
	if (!rc)
		pack->element_index = index;
	return rc;
}

/* Finds the next run of [off, off + len): whole elements (then *within is 0 and *n > 0), or
 * bytes [*within, *within + returned) of element *index. */
static uint64_t next_piece(const struct pack *pack, uint64_t off, uint64_t len, MPI_Count *index,
			   uint64_t *within, MPI_Count *n)
{
	uint64_t size = (uint64_t)pack->shape.size;

	*index = (MPI_Count)(off / size);
	*within = off % size;
	*n = *within ? 0 : (MPI_Count)(len / size);
	if (*n)
		return (uint64_t)*n * size;
	return base_min_u64(len, size - *within);
}

/* Packs or unpacks without the host MPI. */
static int copy_by_layout(const struct pack *pack, uint64_t off, uint64_t len, void *packed,
			  bool is_unpack)
{
	const struct layout_end memory = { pack->base_of_layout, &pack->layout, off },
				linear = { packed, NULL, 0 };

	if (is_unpack)
		layout_copy(&memory, &linear, len, os_copy_pick(len, len));
	else
		layout_copy(&linear, &memory, len, os_copy_pick(len, len));
	return 0;
}

int pack_read(void *ctx, uint64_t off, uint64_t len, void *out)
{
	struct pack *pack = ctx;
	int rc = pack->element_is_dirty ? release(pack) : 0;

	if (pack->has_layout)
		return copy_by_layout(pack, off, len, out, false);
	bypass++;
	while (!rc && len) {
		uint64_t within, piece;
		MPI_Count index, n;

		piece = next_piece(pack, off, len, &index, &within, &n);
		if (n)
			rc = pack_elements(pack, index, n, out);
		else
			rc = hold(pack, index);
		if (!rc && !n)
			memcpy(out, pack->element + within, piece);
		off += piece;
		len -= piece;
		out = (char *)out + piece;
	}
	bypass--;
	return rc;
}

int pack_write(void *ctx, uint64_t off, uint64_t len, const void *in)
{
	struct pack *pack = ctx;
	int rc = 0;

	if (pack->has_layout)
		return copy_by_layout(pack, off, len, (void *)in, true);
	bypass++;
	while (!rc && len) {
		uint64_t within, piece;
		MPI_Count index, n;

		piece = next_piece(pack, off, len, &index, &within, &n);
		if (n) {
			rc = release(pack);
			if (!rc)
				rc = unpack_elements(pack, index, n, in);
		} else {
			rc = hold(pack, index);
			if (!rc) {
				memcpy(pack->element + within, in, piece);
				pack->element_is_dirty = true;
			}
		}
		off += piece;
		len -= piece;
		in = (const char *)in + piece;
	}
	bypass--;
	return rc;
}

int pack_layout(const struct types_shape *shape, uintptr_t at, MPI_Count count,
		struct layout *out)
{
	*out = shape->layout;
	if (!shape->has_layout || __builtin_add_overflow(out->base, (int64_t)at, &out->base))
		return -ENOTSUP;
	return layout_repeat(out, (uint64_t)count, shape->extent);
}

/* The CPU does not reach memory of a device. */
static bool find_layout(struct pack *pack, MPI_Count count)
{
	struct layout *l = &pack->layout;
	int64_t lo, hi;

	if (pack_layout(&pack->shape, (uintptr_t)pack->base, count, l) || !layout_bytes(l) ||
	    layout_bounds(l, &lo, &hi) ||
	    os_is_device_memory((void *)(uintptr_t)lo, (uint64_t)(hi - lo)))
		return false;
	pack->base_of_layout = (char *)(uintptr_t)l->base;
	l->base = 0;
	return true;
}

int pack_init_packed(struct pack *pack, void *base, MPI_Count count, MPI_Datatype datatype,
		     const struct types_shape *shape, struct coll_buf *out)
{
	*pack = (struct pack){
		.element_index = -1,
		.base = base,
		.datatype = datatype,
		.shape = *shape,
	};
	*out = (struct coll_buf){
		.addr = (char *)base + shape->true_lb,
		.bytes = (uint64_t)count * (uint64_t)shape->size,
		.pack = pack_read,
		.unpack = pack_write,
		.ctx = pack,
	};
	pack->has_layout = find_layout(pack, count);
	return scratch_comm(&pack->scratch);
}

/* Announces device memory once. */
static bool is_device_memory(const void *addr, uint64_t bytes)
{
	static atomic_bool is_announced;

	if (base_likely(!os_is_device_memory(addr, bytes)))
		return false;
	if (base_log_rank() <= 0 && !atomic_exchange(&is_announced, true))
		base_log(BASE_LOG_ERROR, "mpi",
			 "device memory (CUDA and others) is left alone: in collectives on it the "
			 "host MPI packs and unpacks the data");
	return true;
}

int pack_init(struct pack *pack, void *base, MPI_Count count, MPI_Datatype datatype,
	      const struct types_shape *shape, struct coll_buf *out)
{
	*out = (struct coll_buf){ .bytes = (uint64_t)count * (uint64_t)shape->size };
	out->addr = (char *)base + shape->true_lb;
	if (!shape->in_order || (count != 1 && shape->extent != shape->size) ||
	    is_device_memory(out->addr, out->bytes))
		return pack_init_packed(pack, base, count, datatype, shape, out);
	pack->element = NULL;
	pack->element_is_dirty = false;
	return 0;
}

int pack_flush(struct pack *pack)
{
	int rc;

	bypass++;
	rc = release(pack);
	bypass--;
	return rc;
}

int pack_fini(struct pack *pack)
{
	int rc = pack_flush(pack);

	free(pack->element);
	return rc;
}
