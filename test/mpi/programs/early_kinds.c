/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Actions of a program on both buffers of a collective right after it: every kind but MPI_Bcast
 * and MPI_Gather (early_touch.c and the others), in place and not, with nobody late or one of the
 * ranks.
 *
 * HARNESS_TRIALS: how many of each kind; HARNESS_LOOK: see early.h. Run alone:
 *   HARNESS_TRIALS=20 mpiexec -n 2 sluice run early_kinds alltoall
 */
#include "early_kinds.h"

#include <pthread.h>
#include <sys/uio.h>
#include <sys/wait.h>

enum { COMBINATIONS_OF_KINDS = 12 };

/* ---- looking ----------------------------------------------------------------------------- */

static bool same_half(struct exchange *x, const struct half *h, const char *what)
{
	size_t i = 0;

	if (!memcmp(h->at, h->want, h->bytes))
		return true;
	while (h->at[i] == h->want[i])
		i++;
	check_fail(
		"trial %d (root %d, late %d%s, %zu bytes %s at %p): %s: byte %zu is %02x, not %02x",
		x->index, x->root, x->late, x->in_place ? ", in place" : "", h->bytes,
		h == &x->send ? "sent" : "received", (void *)h->at, what, i, (uint8_t)h->at[i],
		(uint8_t)h->want[i]);
	return false;
}

static void same(struct exchange *x, const char *what)
{
	same_half(x, &x->recv, what);
	same_half(x, &x->send, what);
}

static bool is_inside(const struct half *h, const char *p)
{
	return p >= h->at && p < h->at + h->bytes;
}

/* Bytes between the elements are unchanged. */
static void rest_is_same(struct exchange *x)
{
	for (char *p = x->block; p < x->block + x->block_bytes; p++) {
		if (is_inside(&x->recv, p))
			p = x->recv.at + x->recv.bytes - 1;
		else if (is_inside(&x->send, p))
			p = x->send.at + x->send.bytes - 1;
		else if (p >= x->beside && p < x->beside + BESIDE)
			p = x->beside + BESIDE - 1;
		else if (*p != REST) {
			check_fail("trial %d: byte %zu of the block, outside of all buffers, was "
				   "written",
				   x->index, (size_t)(p - x->block));
			return;
		}
	}
}

/* ---- actions ----------------------------------------------------------------------------- */

/* Does some rank do it in place, if its kind allows that? */
static bool is_in_place(int index)
{
	return index % 4 == 2;
}

typedef void (*action_fn)(struct exchange *x);

static void read_both(struct exchange *x)
{
	same(x, "read at once");
}

static void overwrite(struct half *h, int with)
{
	memset(h->at, with, h->bytes);
	memset(h->want, with, h->bytes);
}

static void overwrite_send(struct exchange *x)
{
	overwrite(&x->send, x->index);
	same(x, "what is sent was overwritten");
}

static void overwrite_both(struct exchange *x)
{
	overwrite(&x->recv, x->index + 1);
	overwrite(&x->send, x->index + 2);
}

/* One is loaded from, the other stored to. */
static void touch_in_turn(struct exchange *x)
{
	for (int i = 0; i < 60; i++) {
		struct half *h = i % 2 ? &x->send : &x->recv;
		size_t at = h->bytes ? check_random(&x->random) % h->bytes : 0;

		if (!h->bytes)
			continue;
		if (h->at[at] != h->want[at])
			check_fail("trial %d, touch %d: byte %zu", x->index, i, at);
		if (i % 4 >= 2)
			h->at[at] = h->want[at] = (char)i;
	}
}

static void backwards(struct exchange *x)
{
	for (size_t at = x->recv.bytes; at > PAGE; at -= PAGE)
		if (x->recv.at[at - 1] != x->recv.want[at - 1]) {
			check_fail("trial %d: byte %zu, from the end", x->index, at - 1);
			return;
		}
}

static void by_write(struct exchange *x)
{
	struct iovec both[2] = { { x->recv.at, x->recv.bytes }, { x->send.at, x->send.bytes } };
	size_t bytes = x->recv.bytes + x->send.bytes;
	char *got = check_alloc(bytes + 1);
	int fd = memfd_create("both", 0);

	if (x->index % 2)
		EXPECT(writev(fd, both, 2) == (ssize_t)bytes);
	else
		EXPECT(write(fd, x->recv.at, x->recv.bytes) == (ssize_t)x->recv.bytes &&
		       write(fd, x->send.at, x->send.bytes) == (ssize_t)x->send.bytes);
	EXPECT(pread(fd, got, bytes, 0) == (ssize_t)bytes);
	EXPECT(!memcmp(got, x->recv.want, x->recv.bytes));
	EXPECT(!memcmp(got + x->recv.bytes, x->send.want, x->send.bytes));
	close(fd);
	free(got);
}

/* From a file over the end of what is received and the beginning of what is sent. */
static void by_read(struct exchange *x)
{
	size_t into = x->recv.bytes / 3, from = x->send.bytes / 3;
	struct iovec both[2] = { { x->send.at, from },
				 { x->recv.at + x->recv.bytes - into, into } };
	int fd = memfd_create("both", 0);

	check_fill(x->send.want, from, 5);
	check_fill(x->recv.want + x->recv.bytes - into, into, 6);
	EXPECT(write(fd, x->send.want, from) == (ssize_t)from);
	EXPECT(write(fd, x->recv.want + x->recv.bytes - into, into) == (ssize_t)into);
	EXPECT(preadv(fd, both, 2, 0) == (ssize_t)(from + into));
	close(fd);
}

static void in_a_child(struct exchange *x)
{
	pid_t child = fork();
	int status = -1;

	if (!child) {
		bool right = !memcmp(x->recv.at, x->recv.want, x->recv.bytes) &&
			     !memcmp(x->send.at, x->send.want, x->send.bytes);

		memset(x->recv.at, 1, x->recv.bytes);
		memset(x->send.at, 2, x->send.bytes);
		_exit(!right);
	}
	if (waitpid(child, &status, 0) != child || status)
		check_fail("trial %d: a child ended with %x", x->index, (unsigned)status);
}

static void give_away(struct exchange *x)
{
	if (x->is_mapped)
		munmap(x->block, x->block_bytes);
	else
		free(x->block);
	x->gone = true;
}

static void move_away(struct exchange *x)
{
	char *old = x->block,
	     *now = x->is_mapped ? mremap(old, x->block_bytes, x->block_bytes * 4, MREMAP_MAYMOVE)
				 : realloc(old, x->block_bytes * 4);

	if (!now || now == MAP_FAILED)
		MPI_Abort(MPI_COMM_WORLD, 3);
	x->block = now;
	x->send.at = now + (x->send.at - old);
	x->recv.at = now + (x->recv.at - old);
	x->beside = now + (x->beside - old);
	same(x, "in another place");
	if (x->is_mapped)
		munmap(now + x->block_bytes, 3 * x->block_bytes);
}

static void discard(struct exchange *x)
{
	uintptr_t lo = ((uintptr_t)x->recv.at + PAGE - 1) & ~(uintptr_t)(PAGE - 1);
	uintptr_t hi = ((uintptr_t)x->recv.at + x->recv.bytes) & ~(uintptr_t)(PAGE - 1);

	if (lo >= hi || !x->recv.bytes)
		return;
	madvise((void *)lo, hi - lo, MADV_DONTNEED);
	memset(x->recv.want + (lo - (uintptr_t)x->recv.at), 0, hi - lo);
}

/* Each rank sends the received data to the next. */
static void send_on(struct exchange *x)
{
	int from = (rank + size - 1) % size;
	bool is_kept = (x->kind == SCATTER || x->kind == SCATTERV) && is_in_place(x->index) &&
		       from == x->root;
	size_t bytes = is_kept ? 0 : received(x, from) * WORD;
	char *got = check_alloc(bytes + 1), *want = check_alloc(bytes + 1);

	if (bytes)
		expect_received(x, from, want);
	MPI_Sendrecv(x->recv.at, (int)x->recv.bytes, MPI_BYTE, (rank + 1) % size, 3, got,
		     (int)bytes, MPI_BYTE, from, 3, MPI_COMM_WORLD, MPI_STATUS_IGNORE);
	if (memcmp(got, want, bytes))
		check_fail("trial %d: sent on", x->index);
	free(got);
	free(want);
}

/* In place it would not be the same again. */
static void once_more(struct exchange *x)
{
	for (int i = 0; i < 2 && !is_in_place(x->index); i++)
		exchange(x);
	same(x, "after the third in a row");
}

/* Another operation is under way in the pages beside it. */
static void another_beside(struct exchange *x)
{
	int root = x->index % size;

	if (rank == root)
		check_fill(x->beside, BESIDE, (uint64_t)x->index);
	MPI_Bcast(x->beside, BESIDE, MPI_BYTE, root, MPI_COMM_WORLD);
	if (x->index / 2 % 2)
		same(x, "beside another");
	check_same(x->beside, BESIDE, (uint64_t)x->index, "beside");
}

static void *overwrite_in_thread(void *arg)
{
	struct exchange *x = arg;

	overwrite(&x->send, 99);
	return NULL;
}

static void by_threads(struct exchange *x)
{
	pthread_t thread;

	pthread_create(&thread, NULL, overwrite_in_thread, x);
	same_half(x, &x->recv, "beside a thread");
	pthread_join(thread, NULL);
}

static void communicator_is_freed(struct exchange *x)
{
	MPI_Comm_free(&x->comm);
}

static void wait_a_while(struct exchange *x)
{
	early_sleep_us((long)(check_random(&x->random) % 4000));
}

static const action_fn actions[] = {
	touch_in_turn, overwrite_send, by_write,     in_a_child, read_both,
	give_away,     another_beside, by_read,      by_threads, overwrite_both,
	move_away,     send_on,        wait_a_while, backwards,  communicator_is_freed,
	discard,       once_more,
};
enum { ACTIONS = sizeof(actions) / sizeof(actions[0]) };

/* ---- a trial ----------------------------------------------------------------------------- */

static char *block_make(struct exchange *x, size_t bytes)
{
	x->is_mapped = x->index % 2;
	x->block_bytes = (bytes + 4 * PAGE) / PAGE * PAGE;
	x->block = x->is_mapped ? early_map(x->block_bytes) : check_alloc(x->block_bytes);
	memset(x->block, REST, x->block_bytes);
	return x->block;
}

/* Numbers that are added are aligned; the rest may begin anywhere. */
static void place(struct exchange *x)
{
	struct half *first = x->index / 2 % 2 ? &x->send : &x->recv,
		    *second = first == &x->send ? &x->recv : &x->send;
	size_t gap = x->index % 3 == 2 ? 5 * PAGE / 2 : 0, shift = x->index % 5 ? 104 : 0;
	char *at = block_make(x, first->bytes + gap + second->bytes + BESIDE + 104);

	shift += shift && !is_reduce(x->kind) ? 3 : 0;
	first->at = at + shift;
	second->at = first->at + first->bytes + gap;
	x->beside = second->at + second->bytes;
	if (!first->bytes) /* libraries compare addresses */
		first->at = x->beside + BESIDE;
}

static struct half half_make(size_t bytes)
{
	return (struct half){ .want = check_alloc(bytes + 1), .bytes = bytes };
}

static void fill(struct exchange *x)
{
	memset(x->recv.at, 0x11, x->recv.bytes);
	if (x->send.bytes)
		fill_sent(x, rank, x->send.want);
	memcpy(x->send.at, x->send.want, x->send.bytes);
	if (x->recv.bytes)
		expect_received(x, rank, x->recv.want);
}

/* Its part of the result is where it belongs, and what it brings. */
static void fill_in_place(struct exchange *x)
{
	size_t at = 0;

	for (int from = 0; from < rank && !is_reduce(x->kind) && !is_to_all(x->kind); from++)
		at += elements(x, from, x->kind == GATHERV ? x->root : rank) * WORD;
	if (x->recv.bytes)
		fill_sent(x, rank, x->recv.at + at);
}

/* The root's alone, or everybody's; where a result is shorter than what is brought the buffer would
 * not do. */
static bool may_be_in_place(const struct exchange *x)
{
	bool is_kept_short =
		x->kind == REDUCE_SCATTER || x->kind == REDUCE_SCATTER_BLOCK || x->kind == EXSCAN;

	return x->kind != NEIGHBOR && !is_kept_short && (!is_rooted(x->kind) || rank == x->root);
}

static void prepare(struct exchange *x)
{
	bool is_scatter = x->kind == SCATTER || x->kind == SCATTERV;

	x->in_place = x->in_place && may_be_in_place(x);
	x->send = half_make(x->in_place && !is_scatter ? 0 : sent(x, rank) * WORD);
	x->recv = half_make(x->in_place && is_scatter ? 0 : received(x, rank) * WORD);
	place(x);
	for (int i = 0; i < 3; i++) { /* twice, so that its memory is adopted */
		fill(x);
		if (x->in_place && !is_scatter)
			fill_in_place(x);
		if (i < 2)
			exchange(x);
	}
}

static bool is_out_of_reach(const struct half *h)
{
	return h->bytes && early_is_guarded(h->at + h->bytes / 2);
}

static void trial(struct exchange *x, action_fn act)
{
	struct trial delay = { .late = x->late, .random = x->random };

	MPI_Comm_dup(MPI_COMM_WORLD, &x->comm);
	prepare(x);
	MPI_Barrier(MPI_COMM_WORLD);
	early_delay(&delay);
	exchange(x);
	if (check_env("HARNESS_LOOK", 0)) {
		early.looked++;
		early.guarded += is_out_of_reach(&x->recv) || is_out_of_reach(&x->send);
	}
	act(x);
	if (!x->gone) {
		same(x, "at the end");
		rest_is_same(x);
		give_away(x);
	}
	if (x->comm != MPI_COMM_NULL)
		MPI_Comm_free(&x->comm);
	free(x->send.want);
	free(x->recv.want);
}

/* A program's own operation may have ended when a call returns: each rank does its part
 * in it. */
static void run(enum kind kind)
{
	long trials = check_env("HARNESS_TRIALS", COMBINATIONS_OF_KINDS),
	     first = check_env("HARNESS_FIRST", 0);
	size_t part = is_reduce(kind) ? 100003 : 30011;

	kinds_begin();
	early.looked = early.guarded = 0;
	for (long i = first; i < first + trials; i++) {
		struct exchange x = {
			.kind = kind,
			.index = (int)i,
			.root = i % 2 ? size - 1 : 0,
			.late = i % 3 == 0 ? -1 : i % 3 == 1 ? size - 1 : 0,
			.in_place = is_in_place((int)i),
			.part = i % 5 == 4 ? part * 5 : part,
			.random = check_seed((uint64_t)i, (uint64_t)rank + 77),
		};

		trial(&x, actions[(i * 3 + kind) % ACTIONS]);
	}
	if (check_env("HARNESS_LOOK", 0) && kind != COMPOSED)
		check_note("%lu of %lu", early.guarded, early.looked);
}

BEHAVIOUR(scatter, 2) { run(SCATTER); }
BEHAVIOUR(scatterv, 2) { run(SCATTERV); }
BEHAVIOUR(gatherv, 2) { run(GATHERV); }
BEHAVIOUR(allgather, 2) { run(ALLGATHER); }
BEHAVIOUR(allgatherv, 2) { run(ALLGATHERV); }
BEHAVIOUR(alltoall, 2) { run(ALLTOALL); }
BEHAVIOUR(alltoallv, 2) { run(ALLTOALLV); }
BEHAVIOUR(alltoallw, 2) { run(ALLTOALLW); }
BEHAVIOUR(neighbor_alltoall, 2) { run(NEIGHBOR); }
BEHAVIOUR(reduce, 2) { run(REDUCE); }
BEHAVIOUR(allreduce, 2) { run(ALLREDUCE); }
BEHAVIOUR(reduce_scatter, 2) { run(REDUCE_SCATTER); }
BEHAVIOUR(reduce_scatter_block, 2) { run(REDUCE_SCATTER_BLOCK); }
BEHAVIOUR(scan, 2) { run(SCAN); }
BEHAVIOUR(exscan, 2) { run(EXSCAN); }
BEHAVIOUR(allreduce_by_an_operation_of_the_program, 2) { run(COMPOSED); }

int main(int argc, char **argv)
{
	return check_main(argc, argv, MPI_THREAD_SINGLE);
}
