// SPDX-License-Identifier: GPL-2.0
/*
 * Contexts. A job is in use from ENTER until its record is written. A closed context lives on until
 * its last job has ended, as devices may write until then.
 */
#include <linux/uaccess.h>
#include <linux/vmalloc.h>

#include "sluice.h"

static struct workqueue_struct *closing;

struct sluice_context *sluice_context_new(void)
{
	struct sluice_context *c = kvzalloc(sizeof(*c), GFP_KERNEL_ACCOUNT);

	if (!c)
		return NULL;
	BUILD_BUG_ON(sizeof(struct sluice_record) * SLUICE_SLOTS > SLUICE_RECORDS_BYTES);
	c->records = vmalloc_user(PAGE_ALIGN(SLUICE_RECORDS_BYTES));
	if (!c->records) {
		kvfree(c);
		return NULL;
	}
	c->mm = current->mm;
	mmgrab(c->mm);
	mutex_init(&c->enter);
	spin_lock_init(&c->lock);
	INIT_LIST_HEAD(&c->regions);
	INIT_LIST_HEAD(&c->list);
	INIT_LIST_HEAD(&c->queue);
	init_waitqueue_head(&c->idle);
	INIT_WORK(&c->reap, sluice_region_reap);
	for (unsigned int i = 0; i < SLUICE_SLOTS; i++) {
		c->jobs[i].context = c;
		INIT_LIST_HEAD(&c->jobs[i].list);
	}
	sluice_count(contexts, 1);
	return c;
}

int sluice_context_attach(struct sluice_context *c, struct sluice_attach *a)
{
	if (c->channel)
		return -EBUSY;
	c->channel = sluice_channel(a->channel);
	sluice_channel_describe(c->channel, a);
	return 0;
}

/* ---- jobs --------------------------------------------------------------------------------- */

static void record(struct sluice_context *c, unsigned int slot, int result)
{
	struct sluice_record *r = &c->records[slot];

	WRITE_ONCE(r->result, result);
	/* release: the result and the copied bytes; partner: user space */
	smp_store_release(&r->state, SLUICE_RECORD_ENDED);
}

bool sluice_slot_claim(struct sluice_context *c, unsigned int slot)
{
	bool is_free;

	spin_lock(&c->lock);
	is_free = !(c->busy & BIT_ULL(slot));
	c->busy |= BIT_ULL(slot);
	spin_unlock(&c->lock);
	return is_free;
}

/* The record comes after the slot is free: user space may submit it again as soon as it sees it.
 * Under the lock, without which nobody finds the context idle and frees it. */
void sluice_slot_end(struct sluice_context *c, unsigned int slot, int result)
{
	spin_lock(&c->lock);
	c->busy &= ~BIT_ULL(slot);
	record(c, slot, result);
	if (!c->busy)
		wake_up_all(&c->idle);
	spin_unlock(&c->lock);
}

void sluice_job_end(struct sluice_job *job)
{
	struct sluice_context *c = job->context;

	sluice_region_put(job->src);
	sluice_region_put(job->dst);
	sluice_slot_end(c, job - c->jobs, job->result);
}

static bool is_well_formed(const struct sluice_entry *e)
{
	return e->slot < SLUICE_SLOTS && e->op == SLUICE_OP_COPY && e->bytes &&
	       e->bytes <= SLUICE_MAX_BYTES && e->src + e->bytes > e->src &&
	       e->dst + e->bytes > e->dst && !memchr_inv(e->zero, 0, sizeof(e->zero));
}

static void queue(struct sluice_context *c, struct sluice_job *job)
{
	spin_lock(&c->channel->lock);
	if (list_empty(&c->queue))
		list_add_tail(&c->list, &c->channel->contexts);
	list_add_tail(&job->list, &c->queue);
	spin_unlock(&c->channel->lock);
}

/* Pins both ends and queues the copy. A failure is the copy's, and stands in its record. */
static int start(struct sluice_context *c, const struct sluice_entry *e)
{
	struct sluice_job *job;

	if (!is_well_formed(e))
		return -EINVAL;
	if (!sluice_slot_claim(c, e->slot))
		return -EBUSY;
	job = &c->jobs[e->slot];
	sluice_count(copies, 1);
	job->src = sluice_region_get(c, e->src, e->bytes, false);
	if (IS_ERR(job->src)) {
		sluice_slot_end(c, e->slot, PTR_ERR(job->src));
		return 0;
	}
	job->dst = sluice_region_get(c, e->dst, e->bytes, true);
	if (IS_ERR(job->dst)) {
		sluice_region_put(job->src);
		sluice_slot_end(c, e->slot, PTR_ERR(job->dst));
		return 0;
	}
	job->src_address = e->src;
	job->dst_address = e->dst;
	job->bytes = e->bytes;
	job->cookie = e->cookie;
	job->next = 0;
	job->items = 0;
	job->result = 0;
	job->cancelled = false;
	queue(c, job);
	return 0;
}

int sluice_context_enter(struct sluice_context *c, struct sluice_enter *e)
{
	struct sluice_entry __user *from = u64_to_user_ptr(e->entries);
	struct sluice_entry entry;
	int rc = 0;

	if (c->retired)
		return -ESHUTDOWN;
	sluice_count(enters, 1);
	for (e->accepted = 0; e->accepted < e->count; e->accepted++) {
		rc = -EFAULT;
		if (copy_from_user(&entry, from + e->accepted, sizeof(entry)))
			break;
		rc = start(c, &entry);
		if (rc)
			break;
	}
	if (e->accepted)
		sluice_channel_kick(c->channel);
	return rc;
}

/* ---- ends --------------------------------------------------------------------------------- */

void sluice_context_cancel(struct sluice_context *c, u64 from, u64 bytes)
{
	struct sluice_job *job;

	sluice_run_cancel(c, from, bytes);
	if (!c->channel)
		return;
	spin_lock(&c->channel->lock);
	list_for_each_entry(job, &c->queue, list)
		if (bytes == U64_MAX || job->cookie - from < bytes)
			job->cancelled = true;
	spin_unlock(&c->channel->lock);
	sluice_channel_kick(c->channel);
}

static bool is_idle(struct sluice_context *c)
{
	bool is_idle;

	spin_lock(&c->lock);
	is_idle = !c->busy;
	spin_unlock(&c->lock);
	return is_idle;
}

/* From now on a device that hangs is stopped. */
static void begin_retiring(struct sluice_context *c)
{
	sluice_context_cancel(c, 0, U64_MAX);
	if (!c->channel)
		return;
	atomic_inc(&c->channel->retiring);
	sluice_channel_kick(c->channel);
}

static void end_retiring(struct sluice_context *c)
{
	if (c->channel)
		atomic_dec(&c->channel->retiring);
}

int sluice_context_retire(struct sluice_context *c)
{
	int rc;

	c->retired = true;
	begin_retiring(c);
	rc = wait_event_killable(c->idle, is_idle(c));
	end_retiring(c);
	return rc;
}

static void fini(struct work_struct *work)
{
	struct sluice_context *c = container_of(work, struct sluice_context, fini);

	begin_retiring(c);
	wait_event_idle(c->idle, is_idle(c));
	end_retiring(c);
	sluice_group_leave(c);
	sluice_region_fini(c);
	mmdrop(c->mm);
	vfree(c->records);
	kvfree(c);
	sluice_channels_put();
	sluice_count(contexts, -1);
}

void sluice_context_close(struct sluice_context *c)
{
	sluice_context_cancel(c, 0, U64_MAX);
	INIT_WORK(&c->fini, fini);
	queue_work(closing, &c->fini);
}

int sluice_context_init(void)
{
	closing = alloc_workqueue("sluice", WQ_UNBOUND, WQ_UNBOUND_MAX_ACTIVE);
	return closing ? 0 : -ENOMEM;
}

void sluice_context_exit(void)
{
	destroy_workqueue(closing);
}
