/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Schedules in the kernel, without Sluice: what RUN promises, and what it refuses.
 *
 *   goal collectives RANKS  barriers, all-to-alls, reductions, broadcasts, while all ranks compute
 *   goal refuses            what a caller may not do; runs that are cancelled, and ranks that leave
 *   goal random N           N rounds with damaged blocks and killed ranks
 */
#define _GNU_SOURCE
#include <signal.h>
#include <sys/wait.h>

#include "device.h"
#include "goal/gen/gen.h"
#include "goal/goal.h"

enum { RANKS_MAX = 16, BLOCK_BYTES = 256 << 10, OPS = 2000 };

struct rank {
	int fd;
	volatile struct sluice_record *records;
};

static uint64_t block_words[BLOCK_BYTES / 8];
static struct goal_block *const block = (struct goal_block *)block_words;

static struct rank join(int group, unsigned number)
{
	struct rank r = { .fd = open_device() };

	CHECK(!ioctl(r.fd, SLUICE_IOC_JOIN, &(struct sluice_join){ group, number }));
	r.records = map_records(r.fd);
	return r;
}

/* The mapping holds the file, too. */
static void leave(struct rank *r)
{
	if (r->records)
		munmap((void *)r->records, SLUICE_RECORDS_BYTES);
	if (r->records)
		close(r->fd);
	r->records = NULL;
}

static int new_group(int fd, unsigned ranks)
{
	return ioctl(fd, SLUICE_IOC_GROUP, &(struct sluice_group){ ranks, 0 });
}

/* Returns: 0 or -errno. */
static int run(struct rank *r, unsigned slot, uint64_t id, const struct sluice_buffer *buffers,
	       unsigned count, size_t bytes)
{
	struct sluice_run arg = { .slot = slot,
				  .buffer_count = count,
				  .program = (uintptr_t)block,
				  .bytes = bytes,
				  .buffers = (uintptr_t)buffers,
				  .id = id,
				  .cookie = slot };

	r->records[slot].state = 0;
	return ioctl(r->fd, SLUICE_IOC_RUN, &arg) ? -errno : 0;
}

static void compile(struct goal_build *b) { CHECK(!goal_compile(b, block, BLOCK_BYTES)); }

static struct goal_build new_build(void)
{
	static struct goal_op ops[OPS];
	static struct goal_edge edges[OPS];
	struct goal_build b;

	memset(ops, 0, sizeof ops);
	goal_build_init(&b, ops, OPS, edges, OPS);
	return b;
}

static void make(const char *name, struct gen_params *p, uint32_t rank)
{
	struct goal_build b = new_build();
	const char *why = "";

	if (gen_check(gen_find(name), p, &why)) {
		printf("BROKEN %s: %s\n", name, why);
		_exit(1);
	}
	gen_build(gen_find(name), p, rank, &b);
	compile(&b);
}

/* ---- collectives while all ranks compute -------------------------------------------------- */

static struct {
	_Atomic int entered[64][RANKS_MAX];
} * shared;

static uint64_t loops;

/* No system call between RUN and the end. */
static int compute_until_ended(struct rank *r, unsigned slot)
{
	volatile double x = 1;

	for (uint64_t i = 0; i < 4000000000ull; i++) {
		x = x * 1.0000001 + 1e-9;
		loops++;
		if (i % 64 == 0 && has_ended(r->records, slot))
			return r->records[slot].result;
	}
	return -ETIME;
}

static uint64_t id_of(const struct gen_params *p, unsigned k)
{
	return (uint64_t)p->ranks << 32 | k;
}

static void execute(struct rank *r, unsigned me, const char *name, struct gen_params p, char *send,
		    char *recv, unsigned k)
{
	struct sluice_buffer buffers[2];
	uint64_t bytes[2];

	make(name, &p, me);
	gen_memory(gen_find(name), &p, me, &bytes[0], &bytes[1]);
	buffers[0] = (struct sluice_buffer){ (uintptr_t)send, bytes[0] };
	buffers[1] = (struct sluice_buffer){ (uintptr_t)recv, bytes[1] };
	CHECK(!run(r, k % SLUICE_SLOTS, id_of(&p, k), buffers, 2, block->bytes));
	CHECK(!compute_until_ended(r, k % SLUICE_SLOTS));
}

static void barrier(struct rank *r, unsigned me, unsigned ranks, unsigned k)
{
	if (me == k % ranks)
		usleep(20000); /* somebody is late */
	shared->entered[k][me] = 1;
	execute(r, me, "dissemination-barrier", (struct gen_params){ .ranks = ranks }, NULL, NULL,
		k);
	for (unsigned i = 0; i < ranks; i++)
		CHECK(shared->entered[k][i]);
}

static void alltoall(struct rank *r, unsigned me, unsigned ranks, const char *name, unsigned k)
{
	uint64_t send[RANKS_MAX], recv[RANKS_MAX];

	for (unsigned i = 0; i < ranks; i++)
		send[i] = k * 1000000 + me * 1000 + i;
	execute(r, me, name, (struct gen_params){ .ranks = ranks, .bytes = 8 }, (char *)send,
		(char *)recv, k);
	for (unsigned i = 0; i < ranks; i++)
		CHECK(recv[i] == k * 1000000 + i * 1000 + me);
}

static void allreduce(struct rank *r, unsigned me, unsigned ranks, unsigned dtype, unsigned k)
{
	enum { N = 3000 };
	char *send = memory(8 * N + PAGE, -1), *recv = memory(8 * N + PAGE, -1);
	int64_t *ints = (int64_t *)(send + 24), *sums = (int64_t *)(recv + 40);
	double *doubles = (double *)ints, *dsums = (double *)sums;
	unsigned all = ranks * (ranks - 1) / 2;

	for (int i = 0; i < N; i++)
		if (dtype == GOAL_I64)
			ints[i] = i * 3 + (int)me;
		else
			doubles[i] = i * 0.5 + me;
	execute(r, me, "dissemination-allreduce",
		(struct gen_params){
			.ranks = ranks, .bytes = 8 * N, .op = GOAL_ADD, .dtype = (uint8_t)dtype },
		(char *)ints, (char *)sums, k);
	for (int i = 0; i < N; i++)
		CHECK(dtype == GOAL_I64 ? sums[i] == (int)ranks * i * 3 + (int)all
					: dsums[i] == ranks * i * 0.5 + all);
	munmap(send, 8 * N + PAGE);
	munmap(recv, 8 * N + PAGE);
}

static void broadcast(struct rank *r, unsigned me, unsigned ranks, unsigned k)
{
	size_t bytes = MIB + 13;
	char *p = memory(2 * MIB, -1);

	for (size_t i = 0; !me && i < bytes; i++)
		p[i + 5] = (char)(i * 7 + k);
	execute(r, me, "ring-bcast",
		(struct gen_params){ .ranks = ranks, .bytes = bytes, .segment_bytes = 100000 },
		p + 5, NULL, k);
	for (size_t i = 0; i < bytes; i++)
		CHECK(p[i + 5] == (char)(i * 7 + k));
	CHECK(!p[4] && !p[bytes + 5]);
	munmap(p, 2 * MIB);
}

static void one_rank(int group, unsigned me, unsigned ranks)
{
	struct rank r = join(group, me);
	unsigned k = 0;

	for (int round = 0; round < 5; round++) {
		barrier(&r, me, ranks, k++);
		alltoall(&r, me, ranks, "bruck-alltoall", k++);
		alltoall(&r, me, ranks, "linear-alltoall", k++);
		allreduce(&r, me, ranks, GOAL_I64, k++);
		allreduce(&r, me, ranks, GOAL_F64, k++);
		broadcast(&r, me, ranks, k++);
	}
	CHECK(loops > 1000);
	printf("CLIENT goal: rank %u of %u: %u schedules, %llu loops of work meanwhile\n", me,
	       ranks, k, (unsigned long long)loops);
	fflush(stdout);
	_exit(0);
}

static int collectives(unsigned ranks)
{
	int fd = open_device(), group = new_group(fd, ranks), status;

	CHECK(group >= 0 && ranks <= RANKS_MAX);
	for (unsigned i = 0; i < ranks; i++)
		if (!fork())
			one_rank(group, i, ranks);
	for (unsigned i = 0; i < ranks; i++)
		CHECK(wait(&status) > 0 && !status);
	return 0;
}

/* ---- what is refused ---------------------------------------------------------------------- */

static void make_exchange(uint32_t peer, uint64_t bytes, uint64_t recv_bytes)
{
	struct goal_build b = new_build();

	goal_send(&b, peer, 7, 0, GOAL_USER, 0, bytes);
	goal_recv(&b, peer, 7, GOAL_USER + 1, 0, recv_bytes);
	compile(&b);
}

static void make_one(const struct goal_op *op)
{
	struct goal_build b = new_build();

	goal_add(&b, op);
	compile(&b);
}

static int run_exchange(struct rank *r, unsigned slot, uint64_t id, void *send, void *recv)
{
	struct sluice_buffer b[2] = { { (uintptr_t)send, 64 }, { (uintptr_t)recv, 64 } };

	return run(r, slot, id, b, 2, block->bytes);
}

static int try_join(struct rank *r, int group, unsigned number)
{
	return ioctl(r->fd, SLUICE_IOC_JOIN, &(struct sluice_join){ group, number }) ? -errno : 0;
}

static void refuse_calls(char *p)
{
	struct rank lone = { .fd = open_device() }, r, other;
	int group = new_group(lone.fd, 2);

	lone.records = map_records(lone.fd);
	CHECK(group >= 0);
	CHECK(new_group(lone.fd, 0) < 0 && errno == EINVAL);
	CHECK(new_group(lone.fd, SLUICE_RANKS_MAX + 1) < 0 && errno == EINVAL);
	make_exchange(1, 64, 64);
	CHECK(run_exchange(&lone, 0, 1, p, p + 64) == -ENOTCONN);
	CHECK(try_join(&lone, group, 2) == -EINVAL);
	CHECK(try_join(&lone, 0, 0) == -EBADF);
	r = join(group, 0);
	CHECK(try_join(&lone, group, 0) == -EBUSY);
	CHECK(try_join(&r, group, 1) == -EBUSY);
	CHECK(run(&r, 0, 1, NULL, 0, block->bytes) == -EINVAL); /* names buffers */
	CHECK(run(&r, 0, 1, NULL, 2, block->bytes) == -EFAULT);
	CHECK(run(&r, 0, 1, NULL, 0, block->bytes - 8) == -EINVAL);
	CHECK(run(&r, 0, 1, NULL, 0, 10) == -EINVAL);
	CHECK(run(&r, 0, 1, NULL, 0, 1 << 30) == -EINVAL);
	CHECK(run_exchange(&r, SLUICE_SLOTS, 1, p, p + 64) == -EINVAL);
	CHECK(run_exchange(&r, 0, 1, NULL, p) == -EFAULT);
	CHECK(run_exchange(&r, 0, 1, p, (void *)0xffffffff81000000ul) == -EFAULT);
	CHECK(run_exchange(&r, 0, 1, (void *)-32ul, p) == -EINVAL);
	CHECK(!mprotect(p, PAGE, PROT_READ));
	CHECK(run_exchange(&r, 0, 1, p + PAGE, p) == -EFAULT);
	CHECK(!mprotect(p, PAGE, PROT_READ | PROT_WRITE));
	CHECK(!run_exchange(&r, 0, 1, p, p + 64));
	CHECK(run_exchange(&r, 0, 2, p, p + 64) == -EBUSY);
	CHECK(run_exchange(&r, 1, 1, p, p + 64) == -EEXIST);
	make_exchange(2, 64, 64);
	CHECK(run_exchange(&r, 1, 3, p, p + 64) == -EINVAL); /* no such rank */
	make_exchange(1, 65, 64);
	CHECK(run_exchange(&r, 1, 3, p, p + 64) == -EINVAL); /* beyond the buffer */
	make_one(&(struct goal_op){ .type = GOAL_CALC, .bytes = 1000 });
	CHECK(run_exchange(&r, 1, 3, p, p + 64) == -EOPNOTSUPP);
	other = join(group, 1);
	make_exchange(0, 64, 64); /* the partner of the first */
	memset(p + 128, 9, 64);
	CHECK(!run_exchange(&other, 5, 1, p + 128, p + 256));
	CHECK(!wait_record(other.records, 5) && !wait_record(r.records, 0));
	CHECK(!memcmp(p + 64, p + 128, 64) && !memcmp(p, p + 256, 64));
	close(group);
	leave(&r);
	leave(&other);
	leave(&lone);
}

enum how { CANCEL, RETIRE, MISMATCH, LEAVE, CLOSE };

/* A run that cannot end, and how its group ends. */
static void broken_group(enum how how, int mine, int theirs, char *p)
{
	int fd = open_device(), group = new_group(fd, 2);
	struct rank r = join(group, 0), other = join(group, 1);

	make_exchange(1, 64, 64);
	CHECK(!run_exchange(&r, 3, 1, p, p + 64));
	usleep(20000);
	CHECK(!has_ended(r.records, 3));
	if (how == CANCEL) {
		CHECK(!ioctl(r.fd, SLUICE_IOC_CANCEL, &(struct sluice_cancel){ 4, 10 }));
		usleep(20000);
		CHECK(!has_ended(r.records, 3)); /* another cookie */
		CHECK(!ioctl(r.fd, SLUICE_IOC_CANCEL, &(struct sluice_cancel){ 3, 1 }));
	} else if (how == RETIRE) {
		CHECK(!ioctl(r.fd, SLUICE_IOC_RETIRE));
	} else if (how == MISMATCH) {
		make_exchange(0, 32, 64);
		CHECK(!run_exchange(&other, 0, 1, p, p + 64));
		CHECK(wait_record(other.records, 0) == theirs);
	} else if (how == LEAVE) {
		leave(&other);
	} else {
		leave(&r);
	}
	if (how != CLOSE)
		CHECK(wait_record(r.records, 3) == mine);
	if (how != LEAVE) {
		make_exchange(0, 64, 64);
		CHECK(!run_exchange(&other, 9, 1, p, p + 64));
		CHECK(wait_record(other.records, 9) == theirs);
	}
	leave(&r);
	leave(&other);
	close(group);
	close(fd);
}

static int refuses(void)
{
	char *p = memory(MIB, -1);

	refuse_calls(p);
	broken_group(CANCEL, -ECANCELED, -EPIPE, p);
	broken_group(RETIRE, -ECANCELED, -EPIPE, p);
	broken_group(MISMATCH, -EMSGSIZE, -EMSGSIZE, p);
	broken_group(LEAVE, -EPIPE, 0, p);
	broken_group(CLOSE, 0, -EPIPE, p);
	munmap(p, MIB);
	printf("CLIENT goal: refusals and ends hold\n");
	return 0;
}

/* ---- damaged blocks and killed ranks ------------------------------------------------------ */

static void damage(void)
{
	unsigned char *bytes = (unsigned char *)block;

	for (int n = rand() % 4; n > 0; n--)
		bytes[(size_t)rand() % block->bytes % BLOCK_BYTES] ^=
			(unsigned char)(1 << rand() % 8);
}

static void random_rank(int group, unsigned me, unsigned ranks, unsigned seed)
{
	static const char *const names[] = { "dissemination-barrier", "bruck-alltoall",
					     "dissemination-allreduce", "ring-bcast" };
	struct rank r = join(group, me);
	char *p = memory(MIB, -1);

	srand(seed);
	for (unsigned k = 0; k < 40; k++) {
		struct gen_params q = {
			.ranks = ranks, .bytes = 8000, .op = GOAL_ADD, .dtype = GOAL_F32
		};
		struct sluice_buffer b[2] = { { (uintptr_t)p, MIB / 2 },
					      { (uintptr_t)p + MIB / 2, MIB / 2 } };
		size_t bytes;

		make(names[k % 4], &q, me);
		bytes = block->bytes;
		if (seed % 2)
			damage();
		run(&r, k % SLUICE_SLOTS, k, b, 2, bytes);
		if (rand() % 8 == 0)
			madvise(p, MIB, MADV_DONTNEED);
		if (rand() % 20 == 0)
			ioctl(r.fd, SLUICE_IOC_CANCEL, &(struct sluice_cancel){ 0, 1 + k / 2 });
	}
	usleep((unsigned)rand() % 20000);
	_exit(0);
}

static int random_rounds(int rounds)
{
	int killed = 0;

	for (int round = 0; round < rounds; round++) {
		int fd = open_device(), group = new_group(fd, 3), status;
		pid_t pids[3];

		for (unsigned i = 0; i < 3; i++) {
			pids[i] = fork();
			if (!pids[i])
				random_rank(group, i, 3, (unsigned)round * 3 + i);
		}
		if (round % 2) {
			usleep((unsigned)(round * 7919 % 40000));
			kill(pids[round % 3], SIGKILL);
		}
		for (int i = 0; i < 3; i++) {
			CHECK(waitpid(pids[i], &status, 0) == pids[i]);
			CHECK(!status || WIFSIGNALED(status));
			killed += WIFSIGNALED(status);
		}
		close(group);
		close(fd);
	}
	printf("CLIENT goal: %d rounds, %d ranks killed\n", rounds, killed);
	return 0;
}

int main(int argc, char **argv)
{
	const char *what = argc > 1 ? argv[1] : "";

	shared = mmap(NULL, sizeof *shared, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1,
		      0);
	CHECK(shared != MAP_FAILED);
	if (!strcmp(what, "collectives") && argc > 2)
		return collectives((unsigned)atoi(argv[2]));
	if (!strcmp(what, "refuses"))
		return refuses();
	if (!strcmp(what, "random") && argc > 2)
		return random_rounds(atoi(argv[2]));
	return 2;
}
