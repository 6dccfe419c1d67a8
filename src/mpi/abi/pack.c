/* SPDX-License-Identifier: BSD-3-Clause */
/* A buffer with gaps as packed bytes, by its layout or type map. The host MPI only moves bytes from
 * and to memory of a device, which the CPU does not reach. */
#include <errno.h>
#include <string.h>

#include "base/base.h"
#include "mpi/abi/abi.h"
#include "os/os.h"

/* One copy of packed bytes: those of the part of a buffer that is next. */
struct copy {
	char *packed;
	bool is_unpack;
};

/* ---- memory of the CPU ------------------------------------------------------------------- */

static int copy_layout(void *ctx, const struct layout_end *memory, uint64_t bytes)
{
	struct copy *copy = ctx;
	const struct layout_end linear = { copy->packed, NULL, 0 };
	enum base_copy_kernel kernel;

	copy->packed += bytes;
	if (!memory->layout->level_count && bytes < 64) { /* lists have many of these */
		char *at = memory->addr + memory->layout->base + memory->at;

		if (copy->is_unpack)
			memcpy(at, linear.addr, bytes);
		else
			memcpy(linear.addr, at, bytes);
		return 0;
	}
	kernel = os_copy_pick(bytes, bytes);
	if (copy->is_unpack)
		layout_copy(memory, &linear, bytes, kernel);
	else
		layout_copy(&linear, memory, bytes, kernel);
	return 0;
}

/* ---- memory of a device ------------------------------------------------------------------ */

static int move_bytes(struct copy *copy, void *at, MPI_Datatype type, int count, int bytes)
{
	MPI_Comm scratch;
	int position = 0, rc;

	if (scratch_comm(&scratch))
		return -EIO;
	if (copy->is_unpack)
		rc = ON_SCRATCH(host.Unpack(copy->packed, bytes, &position, at, count, type,
					    scratch));
	else
		rc = ON_SCRATCH(host.Pack(at, count, type, copy->packed, bytes, &position,
					  scratch));
	copy->packed += bytes;
	return rc ? -EIO : 0;
}

/* Equal blocks go in one call, as the kernels of a device are slow to start. */
static int move_blocks(struct copy *copy, char *at, int64_t stride, int block, int blocks)
{
	MPI_Datatype rows = NULL;
	int ret = -EIO;

	if (blocks == 1)
		return move_bytes(copy, at, abi.byte, block, block);
	if (host.Type_create_hvector(blocks, block, stride, abi.byte, &rows))
		return -EIO;
	if (!host.Type_commit(&rows))
		ret = move_bytes(copy, at, rows, 1, block * blocks);
	host.Type_free(&rows);
	return ret;
}

static int copy_blocks(void *ctx, char *at, int64_t stride, uint64_t block, uint64_t blocks)
{
	enum { MOST = 1 << 30 }; /* within the range of int */
	struct copy *copy = ctx;
	int ret = 0;

	for (; blocks && block <= MOST && !ret; at += stride) {
		uint64_t n = base_min_u64(blocks, MOST / block);

		ret = move_blocks(copy, at, stride, (int)block, (int)n);
		blocks -= n;
		at += (int64_t)(n - 1) * stride;
	}
	for (; blocks && !ret; blocks--, at += stride) {
		for (uint64_t done = 0; done < block && !ret; done += MOST)
			ret = move_blocks(copy, at + done, 0,
					  (int)base_min_u64(block - done, MOST), 1);
	}
	return ret;
}

static int copy_on_device(void *ctx, const struct layout_end *memory, uint64_t bytes)
{
	return layout_visit(memory, bytes, copy_blocks, ctx);
}

/* ---- packed bytes ------------------------------------------------------------------------ */

static int copy_range(const struct pack *pack, uint64_t off, uint64_t bytes, struct copy *copy)
{
	typemap_visitor *visit = pack->is_device ? copy_on_device : copy_layout;
	const struct layout_end memory = { pack->base, &pack->layout, off };
	int ret;

	if (!bytes)
		return 0;
	if (pack->is_device)
		bypass++;
	ret = pack->map ? typemap_visit(pack->map, pack->extent, pack->base, off, bytes, visit,
					copy) :
			  visit(copy, &memory, bytes);
	if (pack->is_device)
		bypass--;
	return ret;
}

int pack_read(void *ctx, uint64_t off, uint64_t len, void *out)
{
	return copy_range(ctx, off, len, &(struct copy){ out, false });
}

int pack_write(void *ctx, uint64_t off, uint64_t len, const void *in)
{
	return copy_range(ctx, off, len, &(struct copy){ (char *)in, true });
}

/* ---- buffers ----------------------------------------------------------------------------- */

int pack_layout(const struct types_shape *shape, uintptr_t at, MPI_Count count,
		struct layout *out)
{
	*out = shape->layout;
	if (!shape->has_layout || __builtin_add_overflow(out->base, (int64_t)at, &out->base))
		return -ENOTSUP;
	return layout_repeat(out, (uint64_t)count, shape->extent);
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
			 "host MPI copies the bytes");
	return true;
}

/* Finds out whether the CPU reaches the first and the last element, and all between them. */
static bool is_on_device(const struct pack *pack, MPI_Count count, const struct types_shape *shape)
{
	int64_t lo = 0, hi = 0, reach;

	if (shape->map)
		typemap_bounds(shape->map, &lo, &hi);
	else
		layout_bounds(&shape->layout, &lo, &hi);
	if (lo == hi || count < 1 ||
	    __builtin_mul_overflow(count - 1, (int64_t)shape->extent, &reach))
		return false;
	lo += reach < 0 ? reach : 0;
	hi += reach > 0 ? reach : 0;
	return is_device_memory(pack->base + lo, (uint64_t)(hi - lo));
}

int pack_init_packed(struct pack *pack, void *base, MPI_Count count,
		     const struct types_shape *shape, struct coll_buf *out)
{
	*pack = (struct pack){ .base = base, .extent = shape->extent };
	*out = (struct coll_buf){
		.addr = (char *)base + shape->true_lb,
		.bytes = (uint64_t)count * (uint64_t)shape->size,
		.pack = pack_read,
		.unpack = pack_write,
		.ctx = pack,
	};
	if (!out->bytes)
		return 0;
	pack->is_device = is_on_device(pack, count, shape);
	if (!pack_layout(shape, 0, count, &pack->layout))
		return 0;
	pack->map = shape->has_layout ? typemap_create(&shape->layout) : typemap_get(shape->map);
	return pack->map ? 0 : -ENOMEM;
}

int pack_init(struct pack *pack, void *base, MPI_Count count, const struct types_shape *shape,
	      struct coll_buf *out)
{
	*out = (struct coll_buf){ .bytes = (uint64_t)count * (uint64_t)shape->size };
	out->addr = (char *)base + shape->true_lb;
	if (!shape->in_order || (count != 1 && shape->extent != shape->size) ||
	    is_device_memory(out->addr, out->bytes))
		return pack_init_packed(pack, base, count, shape, out);
	pack->map = NULL;
	return 0;
}

void pack_fini(struct pack *pack)
{
	typemap_put(pack->map);
	pack->map = NULL;
}
