// SPDX-License-Identifier: GPL-2.0
/* One run: its private copy of the block, its memory, and its operations. */
#include <linux/highmem.h>
#include <linux/ktime.h>
#include <linux/moduleparam.h>
#include <linux/overflow.h>
#include <linux/uaccess.h>
#ifdef CONFIG_X86
#include <asm/fpu/api.h>
#endif

#include "run.h"

#define SCRATCH_MAX ((u64)16 << 20)
#define BUFFER_MAX ((u64)256 << 20)
#define BLOCK_MAX ((u64)256 << 10)

static unsigned long run_mb = 1024;
module_param(run_mb, ulong, 0644);
MODULE_PARM_DESC(run_mb, "Most MiB that the operations of one schedule may name in sum; 0: no schedules");

/* ---- memory of a run ---------------------------------------------------------------------- */

/* The next bytes of an operand. */
struct cursor {
	const struct run *run;
	const struct goal_segment *more; /* segments after this one */
	u32 more_count;
	u32 mem;
	u64 off, left;
};

static void load_segment(struct cursor *at)
{
	while (!at->left && at->more_count) {
		at->mem = at->more->mem;
		at->off = at->more->off;
		at->left = at->more->bytes;
		at->more++;
		at->more_count--;
	}
}

static struct cursor cursor_at(const struct run *r, u32 mem, u64 off, u64 bytes)
{
	return (struct cursor){ .run = r, .mem = mem, .off = off, .left = bytes };
}

/* The memory of a send or receive. */
static struct cursor cursor_of(const struct run *r, const struct goal_op *op)
{
	struct cursor at = cursor_at(r, op->mem, op->off, op->bytes);

	if (!op->segment_count)
		return at;
	at.left = 0;
	at.more = goal_segments(r->block) + op->segment;
	at.more_count = op->segment_count;
	load_segment(&at);
	return at;
}

/* Maps the next bytes, at most *n of them. Returns: where; unmap_cursor() must follow. */
static u8 *map_cursor(const struct cursor *at, size_t *n)
{
	const struct sluice_region *region = at->run->regions[at->mem];
	u64 address = at->run->bases[at->mem] + at->off;

	*n = min_t(u64, *n, at->left);
	if (at->mem == GOAL_SCRATCH)
		return at->run->scratch + at->off;
	*n = min_t(size_t, *n, PAGE_SIZE - offset_in_page(address));
	return (u8 *)kmap_local_page(region->pages[(address - region->start) >> PAGE_SHIFT]) +
	       offset_in_page(address);
}

static void unmap_cursor(const struct cursor *at, u8 *p)
{
	if (at->mem != GOAL_SCRATCH)
		kunmap_local(p);
}

static void advance_cursor(struct cursor *at, size_t n)
{
	at->off += n;
	at->left -= n;
	load_segment(at);
}

/* Copies until one of them ends. */
static void copy(struct cursor dst, struct cursor src)
{
	while (dst.left && src.left) {
		size_t n = PAGE_SIZE, rest;
		u8 *from = map_cursor(&src, &n), *to;

		rest = n;
		to = map_cursor(&dst, &n);
		n = min(n, rest);
		memmove(to, from, n);
		unmap_cursor(&dst, to);
		unmap_cursor(&src, from);
		advance_cursor(&src, n);
		advance_cursor(&dst, n);
		cond_resched();
	}
}

static void read_bytes(u8 *to, struct cursor src, size_t bytes)
{
	for (size_t n; bytes; to += n, bytes -= n) {
		u8 *from;

		n = bytes;
		from = map_cursor(&src, &n);
		memcpy(to, from, n);
		unmap_cursor(&src, from);
		advance_cursor(&src, n);
	}
}

static void write_bytes(struct cursor dst, const u8 *from, size_t bytes)
{
	for (size_t n; bytes; from += n, bytes -= n) {
		u8 *to;

		n = bytes;
		to = map_cursor(&dst, &n);
		memcpy(to, from, n);
		unmap_cursor(&dst, to);
		advance_cursor(&dst, n);
	}
}

/* ---- operations --------------------------------------------------------------------------- */

static void compute(const struct run *r, const struct goal_op *op)
{
	u8 *a = r->group->bounce, *b = a + RUN_BOUNCE_BYTES;

	for (u64 at = 0; at < op->bytes; at += RUN_BOUNCE_BYTES) {
		size_t n = min_t(u64, op->bytes - at, RUN_BOUNCE_BYTES);

		/* private copies: user space may write to its memory meanwhile */
		read_bytes(a, cursor_at(r, op->src_mem, op->src_off + at, n), n);
		read_bytes(b, cursor_at(r, op->src2_mem, op->src2_off + at, n), n);
#ifdef CONFIG_X86
		kernel_fpu_begin();
#endif
		goal_local(GOAL_ISA_BASE, op->type, op->dtype, a, a, b, n);
#ifdef CONFIG_X86
		kernel_fpu_end();
#endif
		write_bytes(cursor_at(r, op->mem, op->off + at, n), a, n);
		cond_resched();
	}
}

static void stamp(const struct run *r, const struct goal_op *op)
{
	u64 ns = ktime_to_ns(ktime_sub(ktime_get(), r->begun));

	write_bytes(cursor_at(r, op->mem, op->off, sizeof(ns)), (u8 *)&ns, sizeof(ns));
}

static bool is_match(const struct run *receiver, const struct goal_op *recv,
		     const struct run *sender, const struct goal_op *send)
{
	return (recv->peer == GOAL_ANY || recv->peer == sender->rank) &&
	       send->peer == receiver->rank && (recv->tag == GOAL_ANY || recv->tag == send->tag);
}

/* Finds the first partner of operation i of r among the posted ones of `peer`. */
static struct run_op *find_in(struct run *peer, const struct run *r, const struct goal_op *op)
{
	bool is_send = op->type == GOAL_SEND;
	struct run_op *o;

	list_for_each_entry(o, is_send ? &peer->recvs : &peer->sends, list) {
		const struct goal_op *other = run_op_at(peer, run_op_number(peer, o));

		if (is_send ? is_match(peer, other, r, op) : is_match(r, op, peer, other))
			return o;
		cond_resched();
	}
	return NULL;
}

static struct run_op *find_partner(struct run *r, const struct goal_op *op, struct run **out)
{
	struct run_op *o;
	struct run *peer;

	if (op->peer != GOAL_ANY) {
		*out = run_find(r->group, op->peer, r->id);
		return *out ? find_in(*out, r, op) : NULL;
	}
	list_for_each_entry(peer, &r->group->runs, list) {
		o = peer->id == r->id ? find_in(peer, r, op) : NULL;
		*out = peer;
		if (o)
			return o;
	}
	return NULL;
}

/* Delivers a message, or leaves the operation to its partner. */
static int transfer(struct run *r, u32 i)
{
	const struct goal_op *op = run_op_at(r, i), *other;
	bool is_send = op->type == GOAL_SEND;
	struct run *peer;
	struct run_op *o = find_partner(r, op, &peer);

	if (!o) {
		list_add_tail(&r->ops[i].list, is_send ? &r->sends : &r->recvs);
		return 0;
	}
	other = run_op_at(peer, run_op_number(peer, o));
	if (op->bytes != other->bytes)
		return -EMSGSIZE;
	list_del_init(&o->list);
	if (is_send)
		copy(cursor_of(peer, other), cursor_of(r, op));
	else
		copy(cursor_of(r, op), cursor_of(peer, other));
	sluice_count(messages, 1);
	goal_end(peer->block, peer->state, run_op_number(peer, o));
	goal_end(r->block, r->state, i);
	return 0;
}

static int start(struct run *r, u32 i)
{
	const struct goal_op *op = run_op_at(r, i);

	goal_begin(r->block, r->state, i);
	if (goal_is_transfer(op))
		return transfer(r, i);
	if (op->type == GOAL_COPY)
		copy(cursor_at(r, op->mem, op->off, op->bytes),
		     cursor_at(r, op->src_mem, op->src_off, op->bytes));
	else if (goal_is_arithmetic(op))
		compute(r, op);
	else if (op->type == GOAL_STAMP)
		stamp(r, op);
	goal_end(r->block, r->state, i);
	return 0;
}

int run_advance(struct run *r)
{
	int some = 0, rc;
	u32 i;

	while ((i = goal_claim(r->block, r->state)) != GOAL_NONE) {
		rc = READ_ONCE(r->cancelled) ? -ECANCELED : start(r, i);
		if (rc)
			return rc;
		some = 1;
		cond_resched();
	}
	return some;
}

/* ---- making a run ------------------------------------------------------------------------- */

static int copy_block(struct run *r, const struct sluice_run *arg)
{
	r->block = kvmalloc(arg->bytes, GFP_KERNEL_ACCOUNT);
	if (!r->block)
		return -ENOMEM;
	return copy_from_user(r->block, u64_to_user_ptr(arg->program), arg->bytes) ? -EFAULT : 0;
}

/* Sizes of the spaces, and where they begin. */
static int copy_buffers(struct run *r, const struct sluice_run *arg, u64 *sizes)
{
	struct sluice_buffer __user *from = u64_to_user_ptr(arg->buffers);
	struct sluice_buffer b;
	u64 end;

	sizes[GOAL_SCRATCH] = SCRATCH_MAX;
	for (u32 i = 0; i < arg->buffer_count; i++) {
		if (copy_from_user(&b, from + i, sizeof(b)))
			return -EFAULT;
		/* a page more, as addresses are rounded up */
		if (check_add_overflow(b.address, b.bytes, &end) || end > U64_MAX - PAGE_SIZE)
			return -EINVAL;
		r->bases[GOAL_USER + i] = b.address;
		sizes[GOAL_USER + i] = min(b.bytes, BUFFER_MAX);
	}
	return 0;
}

static int verify(struct run *r, const struct sluice_run *arg, const u64 *sizes)
{
	struct goal_limits limits = { .ranks = r->group->ranks,
				      .mems = GOAL_USER + arg->buffer_count,
				      .mem_bytes = sizes };
	u32 *work = kvmalloc_array(arg->bytes / sizeof(struct goal_op), sizeof(*work),
				   GFP_KERNEL_ACCOUNT);
	int rc;

	if (!work)
		return -ENOMEM;
	rc = goal_verify(r->block, arg->bytes, &limits, work);
	kvfree(work);
	return rc;
}

/* What a verified block may not ask for. *out_written: bits of the spaces that it writes to. */
static int check_ops(const struct run *r, u64 *written)
{
	const struct goal_segment *s = goal_segments(r->block);
	u64 rest = (u64)run_mb << 20;

	for (u32 i = 0; i < r->block->op_count; i++) {
		const struct goal_op *op = run_op_at(r, i);

		if (op->type == GOAL_CALC)
			return -EOPNOTSUPP;
		if (!IS_ENABLED(CONFIG_X86) && goal_is_arithmetic(op) &&
		    goal_dtype_is_float(op->dtype))
			return -EOPNOTSUPP;
		if (op->bytes > rest)
			return -E2BIG;
		rest -= op->bytes;
		if (op->type == GOAL_SEND || op->type == GOAL_NOP)
			continue;
		if (!goal_is_transfer(op) || !op->segment_count)
			__set_bit(op->mem, (unsigned long *)written);
		for (u32 k = 0; goal_is_transfer(op) && k < op->segment_count; k++)
			__set_bit(s[op->segment + k].mem, (unsigned long *)written);
	}
	return 0;
}

static int pin_buffers(struct run *r, const u64 *written)
{
	u64 *extents = kcalloc(GOAL_SPACES_MAX, sizeof(*extents), GFP_KERNEL);
	int rc = 0;

	if (!extents)
		return -ENOMEM;
	goal_extents(r->block, extents);
	for (u32 i = GOAL_USER; i < GOAL_SPACES_MAX && !rc; i++) {
		struct sluice_region *region;

		if (!extents[i])
			continue;
		region = sluice_region_get(r->context, r->bases[i], extents[i],
					   test_bit(i, (const unsigned long *)written));
		if (IS_ERR(region))
			rc = PTR_ERR(region);
		else
			r->regions[i] = region;
	}
	kfree(extents);
	return rc;
}

static int allocate(struct run *r)
{
	const struct goal_block *b = r->block;

	r->state = kvmalloc(goal_state_bytes(b->op_count), GFP_KERNEL_ACCOUNT);
	r->ops = kvmalloc_array(max(b->op_count, 1u), sizeof(*r->ops), GFP_KERNEL_ACCOUNT);
	if (b->scratch_bytes)
		r->scratch = kvzalloc(b->scratch_bytes, GFP_KERNEL_ACCOUNT);
	if (!r->state || !r->ops || (b->scratch_bytes && !r->scratch))
		return -ENOMEM;
	goal_state_init(b, r->state);
	for (u32 i = 0; i < b->op_count; i++)
		INIT_LIST_HEAD(&r->ops[i].list);
	return 0;
}

static int fill(struct run *r, const struct sluice_run *arg)
{
	u64 written[DIV_ROUND_UP(GOAL_SPACES_MAX, 64)] = { 0 };
	u64 *sizes = kcalloc(GOAL_SPACES_MAX, sizeof(*sizes), GFP_KERNEL);
	int rc;

	if (!sizes)
		return -ENOMEM;
	rc = copy_buffers(r, arg, sizes);
	rc = rc ?: copy_block(r, arg);
	rc = rc ?: verify(r, arg, sizes);
	kfree(sizes);
	rc = rc ?: check_ops(r, written);
	rc = rc ?: pin_buffers(r, written);
	return rc ?: allocate(r);
}

struct run *run_new(struct sluice_context *c, const struct sluice_run *arg)
{
	struct run *r;
	int rc;

	if (!run_mb)
		return ERR_PTR(-EOPNOTSUPP);
	if (arg->slot >= SLUICE_SLOTS || arg->buffer_count > GOAL_USERS_MAX ||
	    arg->bytes < sizeof(struct goal_block) || arg->bytes > BLOCK_MAX ||
	    memchr_inv(arg->zero, 0, sizeof(arg->zero)))
		return ERR_PTR(-EINVAL);
	r = kzalloc(sizeof(*r), GFP_KERNEL_ACCOUNT);
	if (!r)
		return ERR_PTR(-ENOMEM);
	r->context = c;
	r->group = c->group;
	r->rank = c->rank;
	r->slot = arg->slot;
	r->id = arg->id;
	r->cookie = arg->cookie;
	r->begun = ktime_get();
	INIT_LIST_HEAD(&r->list);
	INIT_LIST_HEAD(&r->sends);
	INIT_LIST_HEAD(&r->recvs);
	rc = fill(r, arg);
	if (!rc)
		return r;
	run_free(r);
	return ERR_PTR(rc);
}

void run_free(struct run *r)
{
	for (u32 i = 0; i < GOAL_SPACES_MAX; i++)
		if (r->regions[i])
			sluice_region_put(r->regions[i]);
	kvfree(r->scratch);
	kvfree(r->ops);
	kvfree(r->state);
	kvfree(r->block);
	kfree(r);
}
