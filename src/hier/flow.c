/* SPDX-License-Identifier: BSD-3-Clause */
/* One call on a communicator that spans nodes: admission, messages, result. */
#include <errno.h>

#include "base/base.h"
#include "hier/hier.h"
#include "trace/trace.h"

/* ---- messages ---------------------------------------------------------------------------- */

void flow_note_error(struct flow *f, int err)
{
	if (!err || f->err)
		return;
	f->err = err;
	f->s->has_failed = true;
	if (f->s->local)
		rt_abandon(f->s->local, f->t->args.name, err);
}

static void note_code(struct flow *f, int rc)
{
	if (!rc)
		return;
	if (!f->code)
		f->code = rc;
	flow_note_error(f, -EIO);
}

void flow_send(struct flow *f, struct post *p, const void *at, uint64_t bytes, int to,
	       enum flow_tag tag)
{
	int rc = ON_SCRATCH(
		HOST_CALL(host.Isend(at, (int)bytes, abi.byte, to, tag, f->s->wire, &p->request)));

	p->is_active = !rc;
	note_code(f, rc);
	base_count(BASE_CTR_BYTES_HIER, bytes);
}

void flow_recv(struct flow *f, struct post *p, void *at, uint64_t bytes, int from,
	       enum flow_tag tag)
{
	int rc = ON_SCRATCH(HOST_CALL(
		host.Irecv(at, (int)bytes, abi.byte, from, tag, f->s->wire, &p->request)));

	p->is_active = !rc;
	note_code(f, rc);
}

/* Polls in the thread of the communicator and leaves the CPU to the program. A wait that gives
 * up leaves its messages in flight. */
static int wait_between(struct flow *f, int n, void *requests, int *out_which)
{
	int rc, flag = 0;

	for (bool has_moved = true;; has_moved = false) {
		rc = ON_SCRATCH(
			HOST_CALL(host.Testany(n, requests, out_which, &flag, abi.status_ignore)));
		if (rc || flag)
			return rc;
		if (hier_thread_pause(f->by, has_moved))
			continue;
		flow_note_error(f, -ECANCELED);
		return 0;
	}
}

static int wait_any(struct flow *f, int n, void *requests, int *out_which)
{
	if (f->by)
		return wait_between(f, n, requests, out_which);
	return ON_SCRATCH(HOST_CALL(host.Waitany(n, requests, out_which, abi.status_ignore)));
}

void flow_wait(struct flow *f, struct post *p)
{
	int which;

	if (!p->is_active)
		return;
	p->is_active = false;
	note_code(f, wait_any(f, 1, &p->request, &which));
	if (base_fault("hier_wait"))
		note_code(f, abi.err_other);
}

void flow_wait_any(struct flow *f, struct post *a, struct post *b)
{
	struct post *posts[2];
	void *requests[2]; /* room for handles of either width */
	int n = 0, done = 0, rc;

	if (a && a->is_active)
		posts[n++] = a;
	if (b && b->is_active)
		posts[n++] = b;
	if (n < 2) {
		if (n)
			flow_wait(f, posts[0]);
		return;
	}
	for (int i = 0; i < n; i++)
		abi_handle_set(requests, i, posts[i]->request);
	rc = wait_any(f, n, requests, &done);
	if (done != 1) /* an error leaves `done` undefined: count the first as complete */
		done = 0;
	posts[done]->is_active = false;
	note_code(f, rc);
}

void flow_status(struct flow *f, const int *from, int from_count, const int *to, int to_count)
{
	struct post post = { 0 }, posts[HIER_CHILDREN] = { 0 };
	int status;

	for (int i = 0; i < from_count; i++) {
		status = 0;
		flow_recv(f, &post, &status, sizeof(status), from[i], FLOW_STATUS);
		flow_wait(f, &post);
		if (status)
			flow_note_error(f, -EIO);
	}
	status = f->err != 0;
	for (int i = 0; i < to_count; i++)
		flow_send(f, &posts[i], &status, sizeof(status), to[i], FLOW_STATUS);
	for (int i = 0; i < to_count; i++)
		flow_wait(f, &posts[i]);
}

/* Dissemination: each round doubles the number of nodes whose status a node knows. */
void flow_agree(struct flow *f)
{
	int nodes = f->l->nodes;

	for (int step = 1; step < nodes; step *= 2) {
		struct post in = { 0 }, out = { 0 };
		int theirs = 0, mine = f->err != 0;

		flow_recv(f, &in, &theirs, sizeof(theirs),
			  hier_acting(f->l, (f->node - step + nodes) % nodes, -1), FLOW_STATUS);
		flow_send(f, &out, &mine, sizeof(mine),
			  hier_acting(f->l, (f->node + step) % nodes, -1), FLOW_STATUS);
		flow_wait(f, &in);
		flow_wait(f, &out);
		if (theirs)
			flow_note_error(f, -EIO);
	}
}

/* ---- a call ------------------------------------------------------------------------------ */

static bool is_computable(const struct coll_op *t)
{
	int commutes = 1;

	/* nodes combine their parts in node order, not in rank order */
	return t->reduce.element_bytes <= t->cs->multinode->segment_bytes &&
	       (abi_is_predefined_op(&abi.predefined, (uintptr_t)t->args.op) ||
		(!host.Op_commutative(t->args.op, &commutes) && commutes));
}

bool hier_suits(const struct coll_op *t)
{
	return policy_admits_hier(&rt_options, t->args.kind, t->bytes) &&
	       (!coll_is_reduce(t->args.kind) || is_computable(t));
}

static void begin(struct flow *f, struct coll_op *t)
{
	const struct hier_layout *l = t->cs->multinode->layout;
	int root = t->args.root, root_node = root < 0 ? 0 : l->node_of[root];
	struct hier_tree tree;

	*f = (struct flow){
		.t = t, .s = t->cs->multinode, .l = l, .node = l->node_of[t->cs->rank], .parent = -1
	};
	f->acting = hier_acting(l, f->node, root);
	f->acts = f->acting == t->cs->rank;
	f->cut = hier_cut(t->bytes, t->cs->multinode->segment_bytes,
			  coll_is_reduce(t->args.kind) ? t->reduce.element_bytes : 1);
	if (!f->acts)
		return;
	hier_tree_of(l->nodes, root_node, f->node, &tree);
	if (tree.parent >= 0)
		f->parent = hier_acting(l, tree.parent, root);
	f->child_count = tree.child_count;
	for (int i = 0; i < tree.child_count; i++)
		f->children[i] = hier_acting(l, tree.children[i], root);
}

static void run(struct flow *f)
{
	static void (*const kinds[COLL_COUNT])(struct flow *f) = {
		[COLL_BCAST] = hier_bcast,
		[COLL_GATHER] = hier_gather,
		[COLL_SCATTER] = hier_scatter,
		[COLL_ALLGATHER] = hier_allgather,
		[COLL_ALLGATHERV] = hier_allgather,
		[COLL_REDUCE] = hier_reduce,
		[COLL_ALLREDUCE] = hier_reduce,
		[COLL_ALLTOALL] = hier_alltoall,
		[COLL_REDUCE_SCATTER] = hier_scattered,
		[COLL_REDUCE_SCATTER_BLOCK] = hier_scattered,
		[COLL_BARRIER] = hier_barrier,
	};

	bypass++;
	kinds[f->t->args.kind](f);
	bypass--;
}

/* An error code of the host MPI takes precedence: the program gets it on this rank. */
static int conclude(struct flow *f)
{
	int rc = coll_complete(f->t, f->code ? 0 : f->err);

	if (!f->code)
		return rc;
	host.Comm_call_errhandler(f->t->args.comm, f->code);
	return f->code;
}

static void work(struct flow *f, struct coll_op *t, int err, struct hier_thread *by)
{
	begin(f, t);
	f->by = by;
	base_log(BASE_LOG_DEBUG, "mpi", "%s: %llu bytes over %d nodes in %llu segments",
		 t->args.name, (unsigned long long)t->bytes, f->l->nodes,
		 (unsigned long long)hier_count(&f->cut));
	flow_note_error(f, err);
	run(f);
	base_count(BASE_CTR_HIER_ADMITTED, 1);
}

int hier_work(struct coll_op *t, int err, struct hier_thread *by)
{
	struct flow f;

	work(&f, t, err, by);
	return f.code ? -EIO : f.err;
}

bool hier_serve(struct coll_op *t, int *rc)
{
	struct flow f;

	if (!hier_suits(t))
		return trace_rejected("Sluice does not serve this collective over several nodes");
	hier_wait_idle(t->cs->multinode);
	work(&f, t, coll_prepare(t), NULL);
	*rc = conclude(&f);
	return true;
}
