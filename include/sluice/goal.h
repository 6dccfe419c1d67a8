/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * GOAL: collective communication as schedules. A schedule is what one rank does: operations (send,
 * receive, copy, arithmetic, ...) and which of them must have ended, or begun, before which. It is
 * built once, compiled into one run of bytes, and run as often as wanted, together with those of
 * the other ranks. Link with -lsluice-goal (pkg-config: sluice-goal); MPI is not needed.
 *
 *   sluice_goal_create -> sluice_goal_send ... sluice_goal_requires ... -> sluice_goal_compile
 *        -> sluice_goal_destroy                                     and to run it, see "running"
 * below
 *
 * Memory is named by space and offset, not by address, so that a schedule can be built in one place
 * and run in another: buffers of the program, which are given when it is run, and one scratchpad,
 * which comes and goes with it.
 *
 * Errors are negative numbers of <errno.h>; functions that return a label return it as a number of
 * 0 or more. The first error of a schedule is kept, and returned by sluice_goal_compile() as well:
 * a program may look there only.
 *
 * Threads: any, each object by one at a time, but a group by any number at once: schedules are
 * opened, run and closed in it side by side, each by its own thread. None of these may be called in
 * a signal handler.
 *
 * sluice-goal(5) describes the compiled form.
 */
#ifndef SLUICE_GOAL_H
#define SLUICE_GOAL_H

#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

/* ---- building ---------------------------------------------------------------------------- */

struct sluice_goal;          /* a schedule while it is built */
struct sluice_goal_schedule; /* a compiled one; never changes, so any number of threads may read it
			      */

enum { SLUICE_GOAL_SCRATCHPAD = 0, SLUICE_GOAL_USER = 1 };
#define SLUICE_GOAL_USERS_MAX 64
/* Receives: from any rank; under any tag. */
#define SLUICE_GOAL_ANY UINT32_MAX

/* Where something lies: `offset` bytes from the beginning of the scratchpad, or, with space
 * SLUICE_GOAL_USER + i, of the program's buffer i. */
struct sluice_goal_place {
	uint64_t offset;
	uint32_t space;
};

static inline struct sluice_goal_place sluice_goal_user(uint32_t buffer, uint64_t offset)
{
	struct sluice_goal_place p = { offset, SLUICE_GOAL_USER + buffer };
	return p;
}

static inline struct sluice_goal_place sluice_goal_scratchpad(uint64_t offset)
{
	struct sluice_goal_place p = { offset, SLUICE_GOAL_SCRATCHPAD };
	return p;
}

/* A piece of a scatter/gather list. */
struct sluice_goal_piece {
	struct sluice_goal_place place;
	uint64_t bytes;
};

/* Arithmetic: dst[i] = a[i] op b[i]. AND, OR and XOR on integers only. */
enum sluice_goal_operation {
	SLUICE_GOAL_ADD,
	SLUICE_GOAL_SUB,
	SLUICE_GOAL_MUL,
	SLUICE_GOAL_DIV, /* integers: towards 0; 0 where b[i] is 0; the smallest number / -1 is
			    itself */
	SLUICE_GOAL_MAX, /* floating point: NaN where a[i] or b[i] is one; -0 is less than +0 */
	SLUICE_GOAL_MIN,
	SLUICE_GOAL_AND,
	SLUICE_GOAL_OR,
	SLUICE_GOAL_XOR
};

/* Integers wrap around. F16 (IEEE) and BF16 are computed as F32 and rounded to nearest even. */
enum sluice_goal_type {
	SLUICE_GOAL_I8,
	SLUICE_GOAL_I16,
	SLUICE_GOAL_I32,
	SLUICE_GOAL_I64,
	SLUICE_GOAL_U8,
	SLUICE_GOAL_U16,
	SLUICE_GOAL_U32,
	SLUICE_GOAL_U64,
	SLUICE_GOAL_F16,
	SLUICE_GOAL_BF16,
	SLUICE_GOAL_F32,
	SLUICE_GOAL_F64
};

/* An empty schedule with so much temporary memory. 0 with *out, -ENOMEM. */
int sluice_goal_create(uint64_t scratchpad_bytes, struct sluice_goal **out);
/* What was compiled from it stays. NULL is allowed. */
void sluice_goal_destroy(struct sluice_goal *g);

/*
 * Operations. Each returns its label, which counts up from 0; -EINVAL for a place that cannot be, a
 * length that is no multiple of the element's, overlapping operands; -ENOMEM; -ENOSPC after
 * INT32_MAX of them.
 *
 * A send has ended when its memory may be written again; a receive, when the bytes are there. The
 * n-th send from one rank to another under a tag belongs to the n-th receive there that asks for
 * it, in the order in which they start. Both must be of the same length. tag: below
 * SLUICE_GOAL_ANY.
 */
int sluice_goal_send(struct sluice_goal *g, struct sluice_goal_place from, uint64_t bytes,
		     uint32_t peer, uint32_t tag);
/* peer, tag: or SLUICE_GOAL_ANY */
int sluice_goal_recv(struct sluice_goal *g, struct sluice_goal_place to, uint64_t bytes,
		     uint32_t peer, uint32_t tag);
/* The same with the pieces of a list, one after the other, as one message. The list is copied;
 * count may be 0. Pieces of a receive that overlap get undefined contents. */
int sluice_goal_sendv(struct sluice_goal *g, const struct sluice_goal_piece *pieces, uint32_t count,
		      uint32_t peer, uint32_t tag);
int sluice_goal_recvv(struct sluice_goal *g, const struct sluice_goal_piece *pieces, uint32_t count,
		      uint32_t peer, uint32_t tag);
/* dst may be a, or b, or both (copy: from); otherwise it overlaps neither. Any alignment. */
int sluice_goal_copy(struct sluice_goal *g, struct sluice_goal_place dst,
		     struct sluice_goal_place from, uint64_t bytes);
int sluice_goal_local(struct sluice_goal *g, enum sluice_goal_operation operation,
		      enum sluice_goal_type type, struct sluice_goal_place dst,
		      struct sluice_goal_place a, struct sluice_goal_place b, uint64_t count);
/* Keeps the rank busy for so long, as an application's computation would. */
int sluice_goal_calc(struct sluice_goal *g, uint64_t ns);
/* Writes the time since the run began, in ns, as 8 bytes to dst. */
int sluice_goal_stamp(struct sluice_goal *g, struct sluice_goal_place dst);
/* Nothing: many requirements of many operations are fewer through one of these. */
int sluice_goal_nop(struct sluice_goal *g);

/* Operation `op` starts when operation `before` has ended; has begun. Either may have been added
 * first. 0, -EINVAL for a label that there is not, -ENOMEM, -ENOSPC. */
int sluice_goal_requires(struct sluice_goal *g, int op, int before);
int sluice_goal_irequires(struct sluice_goal *g, int op, int before);

/*
 * The schedule of one of `ranks` ranks as it is now; g can be added to, and compiled again. 0 with
 * *out; the first error of the functions above; -ELOOP: operations wait for each other in a circle;
 * -EINVAL: a peer that is no rank, or scratchpad that there is not; -ENOMEM.
 */
int sluice_goal_compile(struct sluice_goal *g, uint32_t ranks, struct sluice_goal_schedule **out);
/* A schedule from its bytes, which may come from anywhere: they are copied and verified first. 0
 * with *out, -EINVAL: they are no schedule for so many ranks; -ENOMEM. */
int sluice_goal_load(const void *data, uint64_t bytes, uint32_t ranks,
		     struct sluice_goal_schedule **out);
/* The bytes of a schedule: without addresses, to be kept or sent anywhere. They live as long as it
 * does. */
const void *sluice_goal_data(const struct sluice_goal_schedule *s, uint64_t *out_bytes);
/* How many bytes of the program's buffer it reads or writes at most: what must be there to run it.
 */
uint64_t sluice_goal_user_bytes(const struct sluice_goal_schedule *s, uint32_t buffer);
/* No run of it may be left. NULL is allowed. */
void sluice_goal_schedule_destroy(struct sluice_goal_schedule *s);

/* ---- running ----------------------------------------------------------------------------- */

/*
 * Schedules run in a group: processes of one user on one machine, with ranks from 0. They come from
 * MPI (sluice/goal_mpi.h), from a name (sluice_goal_group_join), or from whatever else can gather a
 * few bytes.
 *
 *   group -> sluice_goal_open -> { sluice_goal_start -> sluice_goal_test | sluice_goal_wait } ...
 *         -> sluice_goal_close -> sluice_goal_group_leave
 *
 * All ranks start a collective's schedules on the same channel equally often: the n-th start on a
 * channel of one rank meets the n-th start on it of the others, whatever else is in flight, as
 * nonblocking collectives on an MPI communicator do. (A rank with nothing to do in one starts it
 * all the same. What only some ranks start has a channel of its own.) With SLUICE_GOAL_STREAM
 * starts are not told apart: messages meet in the order in which operations start.
 *
 * A started schedule moves on while any rank of the group tests or waits. Every rank can then read
 * and write memory of sluice_goal_alloc(). Other memory of the program is reached by system call,
 * by the rank that sends or receives it.
 *
 * When a process dies, what depends on it fails with -EOWNERDEAD at the others and cannot be
 * started any more; other schedules go on. Sluice says on stderr which rank and which operation it
 * was.
 *
 * A forked child must not use its parent's groups.
 */
struct sluice_goal_group;
struct sluice_goal_instance; /* an open schedule */

/* What creation needs of the processes. Each returns 0 or a negative errno. */
struct sluice_goal_oob {
	void *ctx;
	int rank, size;
	/* each rank gives `bytes`; out has size * bytes, by rank */
	int (*allgather)(void *ctx, const void *in, uint64_t bytes, void *out);
	int (*allreduce_min)(void *ctx, int64_t in, int64_t *out);
};

/* Collective. 0 with *out; -ENOTSUP, on all ranks: they do not share a machine, a user or their
 * SLUICE_ options, see sluice_goal_refusal(); what oob returned. */
int sluice_goal_group_create(const struct sluice_goal_oob *oob, struct sluice_goal_group **out);
/*
 * Without MPI: the processes know a name (1 to 64 bytes), their rank, and how many they are. Waits
 * until all have come; timeout_ms < 0: for ever. 0 with *out; -ETIMEDOUT; -EADDRINUSE: a group of
 * this name is being made; -EEXIST: this rank has joined already; -EINVAL: they disagree about the
 * size; -EPERM: the name is another user's; -ECONNRESET: a rank died meanwhile; -ENOTSUP as above.
 * The name is free again afterwards.
 */
int sluice_goal_group_join(const char *name, int rank, int size, int timeout_ms,
			   struct sluice_goal_group **out);
/* Why there was no group: a sentence. Of the process's last attempt. */
const char *sluice_goal_refusal(void);
/* Closes what is open; runs that others have in flight with this rank fail. To be called on all
 * ranks: it waits a moment for the others. */
void sluice_goal_group_leave(struct sluice_goal_group *g);
int sluice_goal_group_rank(const struct sluice_goal_group *g);
int sluice_goal_group_size(const struct sluice_goal_group *g);

/* Memory that every rank of the group can address: the fastest to send from and receive into. NULL
 * with errno. Freed at the latest by leaving. */
void *sluice_goal_alloc(struct sluice_goal_group *g, uint64_t bytes);
void sluice_goal_free(struct sluice_goal_group *g, void *memory);

struct sluice_goal_buffer { void *memory; uint64_t bytes; };

enum { SLUICE_GOAL_STREAM = 1 };
struct sluice_goal_options {
	uint32_t channel;
	unsigned flags;   /* SLUICE_GOAL_STREAM or 0 */
	const char *name; /* for messages; at most 31 bytes are kept; may be NULL */
};

/*
 * Make a schedule ready to be started any number of times, on these buffers: schedule space
 * SLUICE_GOAL_USER + i is buffers[i]. The buffers stay until it is closed; the schedule need not.
 * options may be NULL. 0 with *out; -EINVAL: it names more buffers, or longer ones, or is for
 * another number of ranks; -ENOMEM; -ENOSPC: 16384 are open.
 */
int sluice_goal_open(struct sluice_goal_group *g, const struct sluice_goal_schedule *s,
		     const struct sluice_goal_buffer *buffers, uint32_t count,
		     const struct sluice_goal_options *options, struct sluice_goal_instance **out);
/* No allocation and, unless a peer sleeps, no system call. 0; -EBUSY: it is running; why it has
 * failed. */
int sluice_goal_start(struct sluice_goal_instance *i);
/* sluice_goal_open and sluice_goal_start. */
int sluice_goal_run(struct sluice_goal_group *g, const struct sluice_goal_schedule *s,
		    const struct sluice_goal_buffer *buffers, uint32_t count,
		    struct sluice_goal_instance **out);
/* 1: it has ended, or was never started; 0: not yet; -EOWNERDEAD: a process has died; -EREMOTEIO:
 * both ends of a message differ in length; -ECANCELED; -ETIMEDOUT (SLUICE_GOAL_TIMEOUT); -EPIPE: a
 * rank has left. */
int sluice_goal_test(struct sluice_goal_instance *i);
/* 0: it has ended; -ETIMEDOUT after timeout_ms (< 0: none): it is still running; errors as above.
 */
int sluice_goal_wait(struct sluice_goal_instance *i, int timeout_ms);
/* sluice_goal_start and sluice_goal_wait, and the fastest way to run a schedule that is waited for
 * at once. */
int sluice_goal_execute(struct sluice_goal_instance *i, int timeout_ms);
/* End it with an error, here and on those that depend on it. 0, -EALREADY: it has ended. */
int sluice_goal_cancel(struct sluice_goal_instance *i);
/* -EBUSY: it is running. */
int sluice_goal_close(struct sluice_goal_instance *i);

struct sluice_goal_failure {
	int error;
	int rank;    /* to blame: it has died, left, was canceled, sent another length */
	int at_rank; /* where it was noticed first, */
	uint32_t op; /* and in which operation, in the order of the compiled schedule; UINT32_MAX:
			none */
};
void sluice_goal_failure(const struct sluice_goal_instance *i, struct sluice_goal_failure *out);
/* The operations that have started and not ended, one a line, for people: what a deadlocked
 * schedule waits for. Returns what snprintf would. */
uint64_t sluice_goal_stuck(const struct sluice_goal_instance *i, char *buf, uint64_t cap);

#ifdef __cplusplus
}
#endif

#endif
