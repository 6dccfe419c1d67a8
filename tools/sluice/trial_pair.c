/* SPDX-License-Identifier: BSD-3-Clause */
/* Makes a node group of two fresh processes, as two ranks would, and copies once each way. The
 * processes meet in memory that both inherit, which stands in for the host MPI. */
#include <errno.h>
#include <signal.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/uio.h>
#include <sys/wait.h>
#include <unistd.h>

#include "node/node.h"
#include "trial.h"

#define PROBE_BYTES ((uint64_t)8 << 20)
#define GIVE_UP_NS 4000000000u /* a group takes milliseconds */
#define NAP_NS      1000000u
#define REPEATS     5

struct meeting {
	_Atomic uint32_t arrived; /* futex; each process adds 1 at each barrier */
	_Atomic uint32_t has_ended; /* a process has given up or died */
	char slots[2][512];
	struct trial_pair result; /* written by rank 0 */
	char failure[2][160];     /* by rank: why it failed */
};

struct member {
	struct meeting *m;
	uint32_t barriers;
};

static int barrier(struct member *me)
{
	uint32_t target = 2 * ++me->barriers, known;

	atomic_fetch_add_explicit(&me->m->arrived, 1, memory_order_acq_rel);
	os_futex_wake(&me->m->arrived, 1);
	/* acquire: what the other process wrote before its addition */
	while ((known = atomic_load_explicit(&me->m->arrived, memory_order_acquire)) < target) {
		if (atomic_load_explicit(&me->m->has_ended, memory_order_relaxed))
			return -EOWNERDEAD;
		os_futex_wait(&me->m->arrived, known, NAP_NS);
	}
	return 0;
}

struct member_oob {
	struct member *me;
	int rank;
};

static int allgather(void *ctx, const void *in, size_t bytes, void *out)
{
	struct member_oob *o = ctx;
	int ret;

	if (bytes > sizeof(o->me->m->slots[0]))
		return -EMSGSIZE;
	memcpy(o->me->m->slots[o->rank], in, bytes);
	ret = barrier(o->me);
	for (int r = 0; r < 2 && !ret; r++)
		memcpy((char *)out + (size_t)r * bytes, o->me->m->slots[r], bytes);
	return ret ? ret : barrier(o->me);
}

static int allreduce_min(void *ctx, int64_t in, int64_t *out)
{
	int64_t all[2];
	int ret = allgather(ctx, &in, sizeof(in), all);

	if (!ret)
		*out = all[0] < all[1] ? all[0] : all[1];
	return ret;
}

/* ---- the probe of rank 0 ------------------------------------------------------------------- */

/* Address of rank 1's bytes, in its user area; published by the barrier. */
struct offer {
	uint64_t arena_off, addr;
};

static double gbps(uint64_t since_ns)
{
	uint64_t ns = os_now_ns() - since_ns;

	return ns ? (double)PROBE_BYTES / (double)ns : 0;
}

static void try_arena(const struct node_group *g, const struct offer *o, char *mine,
		      struct trial_pair *t)
{
	char *theirs = node_map(g, 1, o->arena_off, PROBE_BYTES);

	if (!theirs || theirs[0] != 1 || theirs[PROBE_BYTES - 1] != 1) {
		snprintf(t->arena, sizeof(t->arena),
			 "the mapping does not show the memory of the other process");
		return;
	}
	for (int i = 0; i < REPEATS; i++) {
		uint64_t start = os_now_ns();
		double speed;

		os_copy(mine, theirs, PROBE_BYTES, BASE_COPY_AUTO);
		speed = gbps(start);
		t->arena_gbps = speed > t->arena_gbps ? speed : t->arena_gbps;
	}
}

/* The group knows whether the call works; a second try gives the kernel's reason. */
static void try_vm(const struct node_group *g, const struct offer *o, char *mine,
		   struct trial_pair *t)
{
	bool reads = node_can_read(g, 0, 1), writes = node_can_write(g, 0, 1);
	int ret = 0;

	for (int i = 0; i < REPEATS && !ret; i++) {
		uint64_t start = os_now_ns();
		double speed;

		ret = node_vm_read(g, 1, mine, o->addr, PROBE_BYTES);
		speed = gbps(start);
		if (!ret && reads)
			t->vm_read_gbps = speed > t->vm_read_gbps ? speed : t->vm_read_gbps;
	}
	if (ret || !reads)
		snprintf(t->vm_read, sizeof(t->vm_read), "%s",
			 ret ? strerror(-ret) : "refused when the group was made (SLUICE_FAULT?)");
	ret = node_vm_write(g, 1, o->addr, mine, OS_PAGE);
	if (ret || !writes)
		snprintf(t->vm_write, sizeof(t->vm_write), "%s",
			 ret ? strerror(-ret) : "refused when the group was made (SLUICE_FAULT?)");
}

static int try_all(struct node_group *g, struct member *me, int rank)
{
	char *mine = mmap(NULL, PROBE_BYTES, PROT_READ | PROT_WRITE,
			  MAP_PRIVATE | MAP_ANONYMOUS | MAP_POPULATE, -1, 0);
	struct offer *o = node_area(g, 1);
	struct region_extent e = { 0 };
	int ret = mine == MAP_FAILED ? -ENOMEM : 0;

	if (!ret && rank == 1) {
		ret = region_extent_get(PROBE_BYTES, false, &e);
		if (!ret) {
			memset((char *)region_arena_base() + e.offset, 1, PROBE_BYTES);
			*o = (struct offer){ e.offset, (uintptr_t)mine };
		}
	}
	if (ret)
		return ret;
	ret = barrier(me);
	if (!ret && rank == 0) {
		try_arena(g, o, mine, &me->m->result);
		try_vm(g, o, mine, &me->m->result);
	}
	return ret ? ret : barrier(me);
}

static int member_main(struct meeting *m, int rank)
{
	struct member me = { .m = m };
	struct member_oob ctx = { &me, rank };
	struct node_oob oob = { .ctx = &ctx, .rank = rank, .size = 2, .allgather = allgather,
				.allreduce_min = allreduce_min };
	struct node_group *g;
	int ret = node_group_create(&oob, OS_PAGE, &g);

	if (!ret && g) {
		ret = try_all(g, &me, rank);
		node_group_destroy(g);
		if (!ret)
			return 0;
	}
	/* the other process reports its own failure */
	if (ret != -EOWNERDEAD)
		snprintf(m->failure[rank], sizeof(m->failure[rank]), "%s",
			 ret ? strerror(-ret) : node_refusal());
	return ret ? ret : -ENOTCONN;
}

/* ---- the parent --------------------------------------------------------------------- */

/* Reaps both processes. Returns: 0, -ENOTCONN when one failed, -ETIMEDOUT when one was killed. */
static int wait_for_both(struct meeting *m, const pid_t pids[2])
{
	uint64_t deadline = os_now_ns() + GIVE_UP_NS;
	bool done[2] = { pids[0] < 0, pids[1] < 0 };
	int status, ret = 0;

	while (!done[0] || !done[1]) {
		bool late = os_now_ns() > deadline;

		for (int r = 0; r < 2; r++) {
			if (done[r])
				continue;
			if (late)
				kill(pids[r], SIGKILL);
			if (waitpid(pids[r], &status, late ? 0 : WNOHANG) != pids[r])
				continue;
			done[r] = true;
			if (status)
				ret = late ? -ETIMEDOUT : -ENOTCONN;
		}
		if (ret)
			atomic_store_explicit(&m->has_ended, 1, memory_order_relaxed);
		usleep(500);
	}
	return ret;
}

int trial_pair_run(struct trial_pair *out)
{
	struct meeting *m =
		mmap(NULL, sizeof(*m), PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
	pid_t pids[2] = { -1, -1 };
	int ret = 0, waited;

	if (m == MAP_FAILED)
		return -errno;
	for (int r = 0; r < 2 && !ret; r++) {
		pids[r] = fork();
		if (pids[r] == 0)
			_exit(member_main(m, r) ? 1 : 0);
		if (pids[r] < 0) {
			ret = -errno;
			atomic_store_explicit(&m->has_ended, 1, memory_order_relaxed);
		}
	}
	waited = wait_for_both(m, pids);
	ret = ret ? ret : waited;
	*out = m->result;
	if (ret) {
		const char *why = m->failure[0][0] ? m->failure[0] : m->failure[1];

		snprintf(out->arena, sizeof(out->arena), "%s",
			 why[0]              ? why
			 : ret == -ETIMEDOUT ? "the probing processes did not answer for 4 s"
					     : "a probing process died");
		snprintf(out->vm_read, sizeof(out->vm_read), "not tried: the arena failed");
		snprintf(out->vm_write, sizeof(out->vm_write), "not tried: the arena failed");
	}
	munmap(m, sizeof(*m));
	return ret;
}
