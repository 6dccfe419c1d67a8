// SPDX-License-Identifier: GPL-2.0
/*
 * Groups: ranks that exchange messages by schedules. A descriptor of a group is the right to become
 * one of its ranks; messages go only between members, into memory that the receiver has named in
 * its own schedule. A run that fails breaks its group: nobody waits for what cannot come.
 */
#include <linux/anon_inodes.h>
#include <linux/bitmap.h>
#include <linux/file.h>
#include <linux/fs.h>
#include <linux/module.h>

#include "run.h"

static struct workqueue_struct *workers;

/* ---- life --------------------------------------------------------------------------------- */

static void group_free(struct kref *refs)
{
	struct run_group *g = container_of(refs, struct run_group, refs);

	WARN_ON(!list_empty(&g->runs));
	bitmap_free(g->joined);
	bitmap_free(g->left);
	kvfree(g->bounce);
	kfree(g);
}

static void group_put(struct run_group *g)
{
	kref_put(&g->refs, group_free);
}

/* Work that is queued has a reference. */
static void group_kick(struct run_group *g)
{
	kref_get(&g->refs);
	if (!queue_work(workers, &g->work))
		group_put(g);
}

struct run *run_find(struct run_group *g, u32 rank, u64 id)
{
	struct run *r;

	list_for_each_entry(r, &g->runs, list)
		if (r->rank == rank && r->id == id)
			return r;
	return NULL;
}

/* ---- the worker --------------------------------------------------------------------------- */

/* Takes the run from its context, and ends it. The context may be gone afterwards. */
static void end_run(struct run *r, int result)
{
	struct sluice_context *c = r->context;
	unsigned int slot = r->slot;

	list_del(&r->list);
	spin_lock(&c->lock);
	c->runs[slot] = NULL;
	spin_unlock(&c->lock);
	if (result == -ECANCELED)
		sluice_count(cancelled, 1);
	run_free(r);
	sluice_slot_end(c, slot, result);
}

static bool waits_for_absent(const struct run_group *g, struct run *r, struct list_head *posted)
{
	struct run_op *o;

	list_for_each_entry(o, posted, list) {
		u32 peer = run_op_at(r, run_op_number(r, o))->peer;

		if (peer != GOAL_ANY && test_bit(peer, g->left))
			return true;
	}
	return false;
}

/* Starts what can start in all runs, until nothing can. */
static void advance_all(struct run_group *g)
{
	struct run *r;
	int rc, some;

	do {
		some = 0;
		list_for_each_entry(r, &g->runs, list) {
			rc = READ_ONCE(r->cancelled) && !run_has_ended(r) ? -ECANCELED :
									      run_advance(r);
			if (rc < 0) {
				g->error = rc == -ECANCELED ? -EPIPE : rc;
				return;
			}
			some |= rc;
		}
	} while (some);
	list_for_each_entry(r, &g->runs, list)
		if (g->has_left &&
		    (waits_for_absent(g, r, &r->sends) || waits_for_absent(g, r, &r->recvs)))
			g->error = -EPIPE;
}

static void group_work(struct work_struct *work)
{
	struct run_group *g = container_of(work, struct run_group, work);
	struct run *r, *next;

	mutex_lock(&g->lock);
	if (!g->error)
		advance_all(g);
	list_for_each_entry_safe(r, next, &g->runs, list)
		if (run_has_ended(r))
			end_run(r, 0);
		else if (g->error)
			end_run(r, READ_ONCE(r->cancelled) ? -ECANCELED : g->error);
	mutex_unlock(&g->lock);
	group_put(g);
}

/* ---- calls -------------------------------------------------------------------------------- */

static int group_release(struct inode *inode, struct file *file)
{
	group_put(file->private_data);
	return 0;
}

static const struct file_operations group_fops = {
	.owner = THIS_MODULE,
	.release = group_release,
	.llseek = noop_llseek,
};

static struct run_group *group_new(u32 ranks)
{
	struct run_group *g = kzalloc(sizeof(*g), GFP_KERNEL_ACCOUNT);

	if (!g)
		return NULL;
	kref_init(&g->refs);
	mutex_init(&g->lock);
	INIT_WORK(&g->work, group_work);
	INIT_LIST_HEAD(&g->runs);
	g->ranks = ranks;
	g->joined = bitmap_zalloc(ranks, GFP_KERNEL_ACCOUNT);
	g->left = bitmap_zalloc(ranks, GFP_KERNEL_ACCOUNT);
	g->bounce = kvmalloc(2 * RUN_BOUNCE_BYTES, GFP_KERNEL_ACCOUNT);
	if (g->joined && g->left && g->bounce)
		return g;
	group_put(g);
	return NULL;
}

int sluice_group_create(const struct sluice_group *arg)
{
	struct run_group *g;
	int fd;

	if (arg->flags || !arg->ranks || arg->ranks > SLUICE_RANKS_MAX)
		return -EINVAL;
	g = group_new(arg->ranks);
	if (!g)
		return -ENOMEM;
	fd = anon_inode_getfd("[sluice-group]", &group_fops, g, O_RDWR | O_CLOEXEC);
	if (fd < 0)
		group_put(g);
	return fd;
}

static int join(struct sluice_context *c, struct run_group *g, u32 rank)
{
	int rc = 0;

	if (rank >= g->ranks)
		return -EINVAL;
	if (mutex_lock_killable(&g->lock))
		return -EINTR;
	if (test_and_set_bit(rank, g->joined))
		rc = -EBUSY;
	mutex_unlock(&g->lock);
	if (rc)
		return rc;
	kref_get(&g->refs);
	c->rank = rank;
	c->group = g;
	return 0;
}

int sluice_group_join(struct sluice_context *c, const struct sluice_join *arg)
{
	struct file *file;
	int rc = -EBADF;

	if (c->group)
		return -EBUSY;
	if (c->retired)
		return -ESHUTDOWN;
	file = fget(arg->fd);
	if (!file)
		return rc;
	if (file->f_op == &group_fops)
		rc = join(c, file->private_data, arg->rank);
	fput(file);
	return rc;
}

/* A rank cannot be had again: others may still wait for the one who was it. */
void sluice_group_leave(struct sluice_context *c)
{
	struct run_group *g = c->group;

	if (!g)
		return;
	mutex_lock(&g->lock);
	__set_bit(c->rank, g->left);
	g->has_left = true;
	mutex_unlock(&g->lock);
	group_kick(g);
	group_put(g);
	c->group = NULL;
}

/* ---- runs --------------------------------------------------------------------------------- */

/* Lists the run; from then on it belongs to the group. */
static int list_run(struct sluice_context *c, struct run *r)
{
	struct run_group *g = c->group;
	int rc = 0;

	if (mutex_lock_killable(&g->lock))
		return -EINTR;
	if (run_find(g, r->rank, r->id))
		rc = -EEXIST;
	else if (!sluice_slot_claim(c, r->slot))
		rc = -EBUSY;
	if (!rc) {
		spin_lock(&c->lock);
		c->runs[r->slot] = r;
		spin_unlock(&c->lock);
		list_add_tail(&r->list, &g->runs);
	}
	mutex_unlock(&g->lock);
	return rc;
}

int sluice_run_start(struct sluice_context *c, const struct sluice_run *arg)
{
	struct run *r;
	int rc;

	if (!c->group)
		return -ENOTCONN;
	if (c->retired)
		return -ESHUTDOWN;
	r = run_new(c, arg);
	if (IS_ERR(r))
		return PTR_ERR(r);
	rc = list_run(c, r);
	if (rc) {
		run_free(r);
		return rc;
	}
	sluice_count(runs, 1);
	group_kick(c->group);
	return 0;
}

void sluice_run_cancel(struct sluice_context *c, u64 from, u64 bytes)
{
	bool some = false;

	spin_lock(&c->lock);
	for (unsigned int i = 0; i < SLUICE_SLOTS; i++)
		if (c->runs[i] && (bytes == U64_MAX || c->runs[i]->cookie - from < bytes)) {
			WRITE_ONCE(c->runs[i]->cancelled, true);
			some = true;
		}
	spin_unlock(&c->lock);
	if (some)
		group_kick(c->group);
}

/* ---- the module --------------------------------------------------------------------------- */

int sluice_group_init(void)
{
	workers = alloc_workqueue("sluice-run", WQ_UNBOUND | WQ_HIGHPRI, 0);
	return workers ? 0 : -ENOMEM;
}

void sluice_group_exit(void)
{
	destroy_workqueue(workers);
}
