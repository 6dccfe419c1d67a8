/* SPDX-License-Identifier: BSD-3-Clause */
/* Whether Sluice runs in this process, and its communicators. */
#include "rt/rt.h"

#include <errno.h>
#include <limits.h>
#include <pthread.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "rt/private.h"
#include "rt/requests.h"
#include "sluice/sluice.h"
#include "tune/tune.h"
#include "worker/worker.h"

bool rt_on;
struct coll_gate rt_gates[COLL_FORMS][COLL_COUNT] = {
	[0 ... COLL_FORMS - 1] = { [0 ... COLL_COUNT - 1] = COLL_GATE_CLOSED },
};

static pthread_mutex_t start_lock = PTHREAD_MUTEX_INITIALIZER;
static bool started;
static struct policy_figures figures[COLL_COUNT]; /* of the host MPI */
static char problems[2048 + PATH_MAX];

struct policy_options rt_policy_options(void)
{
	struct policy_options o = { .threshold_bytes = base_opt.coll_threshold_bytes,
				    .hier = base_opt.hier };

	memcpy(o.modes, base_opt.coll_take, sizeof o.modes);
	return o;
}

void rt_crowded(enum coll kind, int ranks, uint64_t *out_again, uint64_t *out_always)
{
	struct policy_options o = rt_policy_options();

	policy_crowded(&o, &figures[kind], kind, ranks, out_again, out_always);
}

static void switch_on(void)
{
	struct policy_options o = rt_policy_options();

	policy_gates(rt_gates, &o, figures, trace_is_on());
	for (int kind = 0; kind < COLL_COUNT; kind++)
		rt_on |= !coll_gate_is_closed(&rt_gates[COLL_BLOCKING][kind]) ||
			 !coll_gate_is_closed(&rt_gates[COLL_NONBLOCKING][kind]);
}

static void switch_off(void)
{
	policy_gates_close(rt_gates, trace_is_on());
	rt_on = false;
}

/* A child has none of its parent's peers. */
static void after_fork_child(void)
{
	switch_off();
	worker_after_fork_child();
}

static void report_problems(const char *text, int world_rank)
{
	if (world_rank > 0 || (world_rank < 0 && base_job_rank() > 0))
		return; /* one line a problem, not one a rank */
	if (write(STDERR_FILENO, text, strlen(text)) < 0)
		return;
}

/* What was measured here, but not what all ranks must agree on where ranks on other machines, which
 * have other files, cannot be told from ranks here before the first collective (node/presence.c).
 */
static void load_tuned(bool prefer_pmix, const char *library_version)
{
	struct tune_result tuned;
	char mpi[TUNE_MPI_BYTES];
	int rank;

	tune_mpi_name(library_version, mpi, sizeof mpi);
	tune_load(mpi, &tuned);
	if (!base_job_identity(prefer_pmix, &rank))
		base_options_untune(true);
	if (tuned.state == TUNE_REFUSED)
		snprintf(problems + strlen(problems), sizeof problems - strlen(problems),
			 "sluice: tune: %s is not used: %s; run sluice tune again\n", tuned.path,
			 tuned.reason);
}

static int set_figure(void *arg, const char *name, const char *value)
{
	return policy_figures_set(arg, name, value);
}

/* The figures of this host MPI, which all ranks must have alike. */
static void load_figures(const char *library_version)
{
	struct tune_result found;
	char mpi[TUNE_MPI_BYTES];

	tune_mpi_name(library_version, mpi, sizeof mpi);
	policy_figures_begin(figures);
	tune_load_shipped(mpi, set_figure, figures, &found);
	if (found.state != TUNE_IN_FORCE) {
		policy_figures_init(figures);
		base_log(BASE_LOG_WARN, "rt", "%s: %s; only large calls are admitted", found.path,
			 found.reason);
	}
	base_options_agree(policy_figures_hash(figures));
}

/* Under the lock. Options are loaded once; problems are reported when the rank is known. */
static void load_options(bool prefer_pmix, const char *library_version)
{
	static bool loaded;

	if (!loaded && !base_options_load(NULL, problems, sizeof problems)) {
		load_tuned(prefer_pmix, library_version);
		load_figures(library_version);
	}
	loaded = true;
}

void rt_announce(bool prefer_pmix, const char *library_version)
{
	pthread_mutex_lock(&start_lock);
	load_options(prefer_pmix, library_version);
	pthread_mutex_unlock(&start_lock);
	if (base_opt.enabled && base_opt.usable)
		node_announce(prefer_pmix);
}

bool rt_are_all_here(const int *world_ranks, int n)
{
	int absent = node_first_absent(world_ranks, n);

	if (absent < 0)
		return true;
	base_count(BASE_CTR_GROUPS_REFUSED, 1);
	base_log(BASE_LOG_INFO, "rt",
		 "communicator of %d ranks is left to the MPI: its rank %d is on another node, "
		 "runs without "
		 "Sluice, or with other options",
		 n, absent);
	return false;
}

void rt_identity(struct rt_identity *out)
{
	uint64_t agreed = base_options_hash();

	for (const char *c = SLUICE_VERSION; *c; c++)
		agreed = agreed * 31 + (unsigned char)*c;
	*out = (struct rt_identity){ os_node_id() * 31 + geteuid(), rt_is_on() ? agreed | 1 : 0 };
}

bool rt_start(int world_rank)
{
	pthread_mutex_lock(&start_lock);
	if (world_rank >= 0)
		base_log_set_rank(world_rank);
	if (!started) {
		started = true;
		load_options(false, "");
		report_problems(problems, world_rank);
		if (base_opt.enabled && base_opt.usable) {
			trace_start(world_rank);
			pthread_atfork(NULL, NULL, after_fork_child);
			switch_on();
		}
	}
	pthread_mutex_unlock(&start_lock);
	return rt_is_on();
}

void rt_stop(void)
{
	if (!rt_is_on()) {
		trace_stop();
		return;
	}
	rt_complete_all();
	switch_off();
	request_memory_fini();
	guard_fini();
	workers_count();
	worker_detach();
	base_counters_report();
	region_fini();
	node_withdraw();
	node_fini();
	trace_stop();
	policy_gates_close(rt_gates, false);
}

void rt_memory_keep_out(const void *addr, uint64_t bytes)
{
	if (bytes)
		region_keep_out(base_round_down((uintptr_t)addr, OS_PAGE),
				base_round_up((uintptr_t)addr + bytes, OS_PAGE));
}

/* ---- communicators ----------------------------------------------------------------------- */

static struct rt_comm *comm_alloc(int size)
{
	struct rt_comm *c = calloc(1, sizeof *c);
	uint32_t ops = coll_ops_max(size);
	int ret;

	if (!c)
		return NULL;
	c->block_cap = goal_block_bytes(ops, ops, 0);
	c->ops = calloc(ops, sizeof *c->ops);
	c->edges = calloc(ops, sizeof *c->edges);
	c->block = calloc(1, c->block_cap);
	ret = requests_comm_created(c);
	for (int i = 0; i < 2; i++)
		c->parts[i] = calloc(coll_ops_max(size), sizeof *c->parts[i]);
	c->starts = calloc((size_t)size + 1, sizeof *c->starts);
	c->domain_words = calloc((size_t)coll_domains_words(size), sizeof *c->domain_words);
	if (!ret && c->ops && c->edges && c->block && c->parts[0] && c->parts[1] && c->starts &&
	    c->domain_words)
		return c;
	rt_comm_destroy(c);
	return NULL;
}

static bool prefers_vm(const struct node_group *g)
{
	struct policy_group p = { .ranks = node_size(g),
				  .oversubscribed = node_is_oversubscribed(g) };

	node_probe_times(g, &p.vm_ns, &p.copy_ns);
	return policy_prefer_vm(base_opt.region_kind, &p);
}

/*
 * A rank that sends on what it has received sends several ranges of memory with edges that do not
 * travel with its descriptors: only where each can read of each other there is always a way for
 * them.
 */
static bool can_have_levels(const struct node_group *g)
{
	for (int reader = 0; reader < node_size(g); reader++)
		for (int owner = 0; owner < node_size(g); owner++)
			if (reader != owner && !node_can_read(g, reader, owner))
				return false;
	return true;
}

/* The same on every rank: from what each has said of itself. */
static int set_domains(struct rt_comm *c)
{
	const struct node_group *g = c->group;
	int ranks = node_size(g), *number_of = calloc((size_t)ranks, sizeof *number_of);

	if (!number_of)
		return -ENOMEM;
	for (int r = 0; r < ranks && can_have_levels(g); r++)
		number_of[r] =
			policy_domain(base_opt.coll_domains, r, ranks, node_memory_node(g, r));
	coll_domains_init(&c->domains, c->domain_words, ranks, number_of);
	free(number_of);
	c->reduce_domains =
		(struct reduce_domains){ (uint32_t)c->domains.count, c->domains.of,
				       c->domains.members, c->domains.first, c->domains.at };
	if (c->domains.count > 1)
		base_log(BASE_LOG_INFO, "rt",
			 "%d memory domains among %d ranks: broadcasts%s and reductions enter each "
			 "once",
			 c->domains.count, ranks, c->domains.is_even ? ", allgathers" : "");
	return 0;
}

/* What others reach of a rank: collectives, then its mailbox. */
static uint64_t area_bytes(int ranks, uint32_t lanes)
{
	return exec_area_bytes(ranks) +
	       (lanes ? mailbox_lanes_area_bytes(lanes) : mailbox_area_bytes());
}

static int create_mailbox(struct rt_comm *c, int ranks, uint32_t lanes)
{
	if (!lanes)
		return mailbox_create(c->group, exec_area_bytes(ranks), &c->mailbox);
	c->lanes = lanes_create(c);
	return c->lanes ? mailbox_create_lanes(c->group, exec_area_bytes(ranks), lanes, &c->mailbox)
			: -ENOMEM;
}

static int create(const struct rt_oob *oob, uint32_t lanes, struct rt_comm **out)
{
	struct node_oob node = { oob->ctx, oob->rank, oob->size, oob->allgather,
				 oob->allreduce_min };
	struct node_group *g = NULL;
	uint64_t begin_ns = trace_span_begin();
	struct policy_options options;
	struct rt_comm *c;
	int64_t all_ok;
	int ret;

	*out = NULL;
	if (oob->size < 2)
		return 0;
	ret = node_group_create(&node, area_bytes(oob->size, lanes), &g);
	if (ret || !g)
		return ret;
	c = comm_alloc(oob->size);
	if (c) {
		c->group = g;
		c->progress = oob->progress;
		c->progress_ctx = oob->ctx;
		if (exec_create(g, workers_progress, c, &c->exec) ||
		    create_mailbox(c, oob->size, lanes) || set_domains(c)) {
			c->group = NULL;
			rt_comm_destroy(c);
			c = NULL;
		}
	}
	/* one rank without memory must not leave the others waiting for it later */
	ret = oob->allreduce_min(oob->ctx, c ? 1 : 0, &all_ok);
	if (ret || !all_ok) {
		if (!c)
			node_group_destroy(g);
		rt_comm_destroy(c);
		return ret;
	}
	c->prefer_vm = prefers_vm(g);
	c->is_crowded = node_is_oversubscribed(g);
	options = rt_policy_options();
	c->takes_requests = policy_admits_requests(&options, node_size(g), c->is_crowded);
	c->thread_multiple = oob->thread_multiple;
	ret = workers_comm_created(c, oob);
	movers_comm_created(c);
	trace_span("a group of ranks is made", begin_ns, 0);
	*out = c;
	return ret;
}

int rt_comm_create(const struct rt_oob *oob, struct rt_comm **out) { return create(oob, 0, out); }

int rt_comm_create_lanes(const struct rt_oob *oob, struct rt_comm **out)
{
	return create(oob, MAILBOX_LANES_MAX, out);
}

bool rt_comm_is_crowded(const struct rt_comm *c)
{
	return node_is_oversubscribed(c->group);
}

void rt_comm_destroy(struct rt_comm *c)
{
	if (!c)
		return;
	pending_complete_comm(c);
	requests_comm_destroyed(c);
	request_choice_fini(c);
	workers_comm_destroyed(c);
	for (size_t i = 0; i < BASE_ARRAY_LEN(c->scratch); i++)
		if (c->scratch[i].bytes)
			region_extent_put(&c->scratch[i]);
	if (c->parts_scratch.bytes)
		region_extent_put(&c->parts_scratch);
	mailbox_destroy(c->mailbox);
	exec_destroy(c->exec);
	if (c->group)
		node_group_destroy(c->group);
	free(c->ops);
	free(c->edges);
	free(c->block);
	free(c->parts[0]);
	free(c->parts[1]);
	free(c->starts);
	free(c->domain_words);
	lanes_destroy(c->lanes);
	free(c);
}
