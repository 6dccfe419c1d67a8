/* SPDX-License-Identifier: BSD-3-Clause */
#include "ranks.h"

#include <errno.h>
#include <fcntl.h>
#include <sched.h>
#include <signal.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#include "base/base.h"
#include "os/os.h"

struct ranks_shared {
	_Atomic uint32_t arrived, turn;
	_Atomic uint64_t words[64];
	int pids[RANKS_MAX];
	char gather[RANKS_MAX][RANKS_GATHER_BYTES];
};

struct job {
	struct ranks ranks;
	char *const *options;
	void (*body)(struct ranks *r);
	int text_fd;
};

char ranks_text[16384];

/* ---- in a rank --------------------------------------------------------------------------- */

void ranks_announce(struct ranks *r)
{
	char text[32];

	snprintf(text, sizeof text, "%d", r->rank);
	setenv("PMIX_RANK", text, 1);
	snprintf(text, sizeof text, "ranks-%d", getppid());
	setenv("PMIX_NAMESPACE", text, 1);
	node_announce(true);
	ranks_barrier(r);
}

void ranks_barrier(struct ranks *r)
{
	struct ranks_shared *s = r->shared;
	uint32_t turn = atomic_load(&s->turn);
	uint64_t give_up = os_now_ns() + (RANKS_LIMIT_S - 1) * 1000000000ull;

	if (atomic_fetch_add(&s->arrived, 1) + 1 == (uint32_t)r->size) {
		atomic_store(&s->arrived, 0);
		atomic_fetch_add(&s->turn, 1);
		return;
	}
	for (int spins = 0; atomic_load(&s->turn) == turn; spins++) {
		if (spins < 100)
			sched_yield();
		else
			usleep(50);
		if (os_now_ns() > give_up) {
			dprintf(STDERR_FILENO, "rank %d: a peer did not come to the barrier\n",
				r->rank);
			_exit(3);
		}
	}
}

int ranks_allgather(void *ctx, const void *in, size_t bytes, void *out)
{
	struct ranks *r = ctx;

	if (bytes > RANKS_GATHER_BYTES)
		return -E2BIG;
	memcpy(r->shared->gather[r->rank], in, bytes);
	ranks_barrier(r);
	for (int i = 0; i < r->size; i++)
		memcpy((char *)out + (size_t)i * bytes, r->shared->gather[i], bytes);
	ranks_barrier(r);
	return 0;
}

int ranks_allreduce_min(void *ctx, int64_t in, int64_t *out)
{
	struct ranks *r = ctx;
	int64_t all[RANKS_MAX];
	int ret = ranks_allgather(ctx, &in, sizeof in, all);

	*out = in;
	for (int i = 0; i < r->size && !ret; i++)
		*out = all[i] < *out ? all[i] : *out;
	return ret;
}

uint64_t ranks_random(uint64_t *state)
{
	uint64_t x = *state += 0x9e3779b97f4a7c15u;

	x = (x ^ x >> 30) * 0xbf58476d1ce4e5b9u;
	x = (x ^ x >> 27) * 0x94d049bb133111ebu;
	return x ^ x >> 31;
}

void ranks_channel(const struct ranks *r, int number, unsigned members, struct ranks *out)
{
	*out = *r;
	out->shared = r->shared + number;
	out->words = out->shared->words;
	out->rank = __builtin_popcount(members & ((1u << r->rank) - 1));
	out->size = __builtin_popcount(members);
	out->oob.ctx = out;
	out->oob.rank = out->rank;
	out->oob.size = out->size;
}

void ranks_options(char *const *options)
{
	char problems[512];

	if (base_options_load(options, problems, sizeof problems))
		unit_fail(__FILE__, __LINE__, "%s", problems);
}

static void be_rank(void *arg)
{
	struct job *job = arg;
	struct ranks *r = &job->ranks;

	prctl(PR_SET_PDEATHSIG, SIGKILL);
	dup2(job->text_fd, STDERR_FILENO);
	r->shared->pids[r->rank] = getpid();
	ranks_options(job->options);
	base_log_set_rank(r->rank);
	ranks_barrier(r);
	job->body(r);
}

/* ---- in the test ------------------------------------------------------------------------- */

static void collect(const int *pids, int n, int *out_status)
{
	uint64_t give_up = os_now_ns() + RANKS_LIMIT_S * 1000000000ull;
	int left = n;

	for (int i = 0; i < n; i++)
		out_status[i] = -1;
	while (left) {
		bool late = os_now_ns() > give_up;

		for (int i = 0; i < n; i++) {
			int status;

			if (out_status[i] >= 0)
				continue;
			if (late)
				kill(pids[i], SIGKILL);
			if (waitpid(pids[i], &status, late ? 0 : WNOHANG) != pids[i])
				continue;
			out_status[i] = late                ? 256
					: WIFEXITED(status) ? WEXITSTATUS(status)
							    : 128 + WTERMSIG(status);
			left--;
		}
		usleep(200);
	}
}

static void keep_text(int fd)
{
	ssize_t n = pread(fd, ranks_text, sizeof ranks_text - 1, 0);

	ranks_text[n > 0 ? n : 0] = 0;
}

void ranks_run_any(int n, char *const *options, void (*body)(struct ranks *r), void *arg,
		   int *out_status)
{
	const size_t bytes = RANKS_CHANNELS * sizeof(struct ranks_shared);
	struct ranks_shared *s =
		mmap(NULL, bytes, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
	struct job job = { .options = options,
			   .body = body,
			   .text_fd = memfd_create("stderr", MFD_CLOEXEC) };
	int pids[RANKS_MAX];

	if (s == MAP_FAILED || n > RANKS_MAX || job.text_fd < 0)
		unit_fail(__FILE__, __LINE__, "cannot prepare a job of %d ranks", n);
	fcntl(job.text_fd, F_SETFL, O_APPEND); /* or lines written at once overwrite each other */
	for (int i = 0; i < n; i++) {
		job.ranks = (struct ranks){ .rank = i,
					    .size = n,
					    .arg = arg,
					    .shared = s,
					    .words = s->words,
					    .pids = s->pids };
		job.ranks.oob = (struct node_oob){ .ctx = &job.ranks,
						 .rank = i,
						 .size = n,
						 .allgather = ranks_allgather,
						 .allreduce_min = ranks_allreduce_min };
		pids[i] = unit_spawn(be_rank, &job);
	}
	collect(pids, n, out_status);
	keep_text(job.text_fd);
	close(job.text_fd);
	munmap(s, bytes);
}

void ranks_run(int n, char *const *options, void (*body)(struct ranks *r), void *arg)
{
	int status[RANKS_MAX];

	ranks_run_any(n, options, body, arg, status);
	for (int i = 0; i < n; i++) {
		if (!status[i])
			continue;
		printf("%s", ranks_text);
		unit_fail(__FILE__, __LINE__, "rank %d of %d: status %d", i, n, status[i]);
	}
}
