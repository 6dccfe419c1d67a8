/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * GOAL: collective communication as schedules. A schedule says what one rank does: operations
 * (send, receive, copy, arithmetic, ...) and which operation must have ended, or begun, before
 * another one starts. A program builds a schedule once, compiles it into one run of bytes, and runs
 * it as often as it likes together with the schedules of the other ranks. Link with -lsluice-goal
 * (pkg-config: sluice-goal). MPI is not needed.
 *
 *   sluice_goal_create -> sluice_goal_send ... sluice_goal_requires ... -> sluice_goal_compile
 *        -> sluice_goal_destroy                                   to run it: see "running" below
 *
 * Memory is named by space and offset instead of an address, so that a schedule can be built in one
 * place and run in another. Spaces are the program's buffers, which are given when a schedule is
 * opened, and one scratchpad, which lives as long as the open schedule.
 *
 * Errors are negative numbers of <errno.h>; a label is 0 or more. A schedule keeps its first error,
 * and sluice_goal_compile() returns it: a program may check there only. Pointers are not checked:
 * NULL only where it is allowed below, as options, or for lists of 0 elements.
 *
 * Threads: any. One thread at a time uses an object, except a group: any number of threads open,
 * run and close schedules in it. Context: not in signal handlers.
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

struct sluice_goal;          /* a schedule under construction */
struct sluice_goal_schedule; /* a compiled schedule: constant, any number of threads may read it */

enum { SLUICE_GOAL_SCRATCHPAD = 0, SLUICE_GOAL_USER = 1 };
#define SLUICE_GOAL_USERS_MAX 64
/* A receive from any rank; under any tag. */
#define SLUICE_GOAL_ANY UINT32_MAX

/* A place in memory: `offset` bytes from the beginning of the scratchpad or, with space
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

/* Creates an empty schedule with a scratchpad of that size, which sluice_goal_open() allocates.
 * Returns: 0 with *out; -ENOMEM. */
int sluice_goal_create(uint64_t scratchpad_bytes, struct sluice_goal **out);
/* Schedules compiled from it stay valid. NULL is allowed. */
void sluice_goal_destroy(struct sluice_goal *g);

/*
 * Adding operations. Returns: the label of the operation, counted from 0; -EINVAL: there is no such
 * space, peer, tag, operation or type, the place lies outside the scratchpad, a length overflows,
 * or operands overlap; -ENOMEM; -ENOSPC: more than INT32_MAX operations, or pieces of lists.
 *
 * A send has ended when its memory may be written again; a receive, when the bytes are in place.
 * The n-th send from one rank to another under a tag matches the n-th receive there for that source
 * and tag, in the order in which they start. Both must have the same length. tag: below
 * SLUICE_GOAL_ANY.
 */
int sluice_goal_send(struct sluice_goal *g, struct sluice_goal_place from, uint64_t bytes,
		     uint32_t peer, uint32_t tag);
/* peer and tag may be SLUICE_GOAL_ANY. */
int sluice_goal_recv(struct sluice_goal *g, struct sluice_goal_place to, uint64_t bytes,
		     uint32_t peer, uint32_t tag);
/* As above, for a list of pieces that form one message. The list is copied; count may be 0. Pieces
 * of a receive that overlap get undefined contents. */
int sluice_goal_sendv(struct sluice_goal *g, const struct sluice_goal_piece *pieces, uint32_t count,
		      uint32_t peer, uint32_t tag);
int sluice_goal_recvv(struct sluice_goal *g, const struct sluice_goal_piece *pieces, uint32_t count,
		      uint32_t peer, uint32_t tag);
/* dst may equal a or b or both (copy: from); otherwise it overlaps neither. Any alignment. */
int sluice_goal_copy(struct sluice_goal *g, struct sluice_goal_place dst,
		     struct sluice_goal_place from, uint64_t bytes);
int sluice_goal_local(struct sluice_goal *g, enum sluice_goal_operation operation,
		      enum sluice_goal_type type, struct sluice_goal_place dst,
		      struct sluice_goal_place a, struct sluice_goal_place b, uint64_t count);
/* Stands for computing of the application: ends `ns` after it has begun, and uses no CPU. The calcs
 * of a rank follow one another; its other operations go on. */
int sluice_goal_calc(struct sluice_goal *g, uint64_t ns);
/* Writes the time since the run began, in ns, as 8 bytes to dst. */
int sluice_goal_stamp(struct sluice_goal *g, struct sluice_goal_place dst);
/* Does nothing. It joins requirements: n operations that require m others need n + m of them
 * through a nop. */
int sluice_goal_nop(struct sluice_goal *g);

/* Operation `op` starts after operation `before` has ended (requires) or begun (irequires). The two
 * may be added in any order. Returns: 0; -EINVAL: no such label; -ENOMEM; -ENOSPC. */
int sluice_goal_requires(struct sluice_goal *g, int op, int before);
int sluice_goal_irequires(struct sluice_goal *g, int op, int before);

/*
 * Compiles the schedule for one of `ranks` ranks. g can be extended and compiled again. Returns: 0
 * with *out; the first error of the functions above; -ELOOP: requirements form a cycle; -EINVAL: a
 * peer is no rank, or there are 0 ranks or more than INT32_MAX; -ENOMEM.
 */
int sluice_goal_compile(struct sluice_goal *g, uint32_t ranks, struct sluice_goal_schedule **out);
/* Makes a schedule from its bytes, which are copied and verified: they may come from an untrusted
 * source. Returns: 0 with *out; -EINVAL: they are no schedule for that many ranks; -ENOMEM. */
int sluice_goal_load(const void *data, uint64_t bytes, uint32_t ranks,
		     struct sluice_goal_schedule **out);
/* The bytes of a schedule, without addresses, to store or send. They live as long as the
 * schedule. */
const void *sluice_goal_data(const struct sluice_goal_schedule *s, uint64_t *out_bytes);
/* Returns: how many bytes a buffer must have for the schedule to run; 0: the schedule does not name
 * it. */
uint64_t sluice_goal_user_bytes(const struct sluice_goal_schedule *s, uint32_t buffer);
/* At any time: open schedules have a copy. NULL is allowed. */
void sluice_goal_schedule_destroy(struct sluice_goal_schedule *s);

/* ---- running ----------------------------------------------------------------------------- */

/*
 * Schedules run in a group: processes of one user on one machine, with ranks from 0. A group is
 * made from an MPI communicator (sluice/goal_mpi.h), from a name (sluice_goal_group_join), or with
 * any functions that gather a few bytes (sluice_goal_group_create).
 *
 *   group -> sluice_goal_open -> { sluice_goal_start -> sluice_goal_test | sluice_goal_wait } ...
 *         -> sluice_goal_close -> sluice_goal_group_destroy
 *
 * All ranks start the schedules of a collective on the same channel equally often: the n-th start
 * on a channel of one rank meets the n-th start on it of the others, as nonblocking collectives on
 * an MPI communicator do. A rank that has nothing to do starts an empty schedule. Schedules that
 * only some ranks start need a channel of their own. With SLUICE_GOAL_STREAM starts are not told
 * apart: messages match in the order in which operations start.
 *
 * Who moves a schedule. Calls of this library do, on any rank; a thread does what they leave.
 *
 *   sluice_goal_start    leaves all to a rank that waits or to a progress thread that polls, if
 *                        there is one and all buffers are from sluice_goal_alloc(). Otherwise it
 *                        executes operations of this rank that require nothing. Then, unless a rank
 *                        of the group waits, it executes all that is ready of every rank that is
 *                        in no call and what follows from it, for about 100 us at most, and
 *                        the piece of a copy that it has begun (1/38 of a long message)
 *   sluice_goal_test     the same, and takes part in a copy or computation that another rank has
 *                        begun
 *   sluice_goal_wait,    execute operations of this rank as they become ready, of all its
 *   sluice_goal_execute  schedules; take part in copies and computations; one waiting rank of the
 *                        group also drives all ranks that are in no call. Once a run has ended,
 *                        they leave nothing behind that is ready, as sluice_goal_start does
 *   the progress thread  of a process goes on where a call has stopped after 100 us, and at the end
 *                        of a calc. While it finds a CPU of the group that nobody uses, it polls
 *                        there for up to 2 ms, drives all ranks, and sluice_goal_start leaves the
 *                        work to it after 5 us at most. Otherwise it sleeps. A CPU that becomes
 *                        free is found within milliseconds, within 0.1 s where the group may not
 *                        use all CPUs of the machine
 *
 *   MPI calls that wait  drive all ranks as sluice_goal_wait does, from 2 us after they began to
 *                        wait, in groups from MPI communicators. All waits do in Open MPI; in MPICH
 *                        from 4.3, if the program is compiled with its mpi.h and includes
 *                        sluice/goal_mpi.h; in MPICH before 4.3 and MPICH's standard ABI, over UCX.
 *                        Those that call sched_yield() in each turn do in MPICH's standard ABI
 *                        over libfabric, all but MPI_Probe, MPI_Mprobe and MPI_Waitany (MPI_Barrier
 *                        with MPIR_CVAR_BARRIER_POSIX_INTRA_ALGORITHM=mpir), and in Intel MPI with
 *                        I_MPI_WAIT_MODE=1, all but MPI_Probe and MPI_Mprobe (the yields cost: a
 *                        message of 8 bytes takes 0.6 us then, else 0.2). So do all waits of others
 *                        that call sluice_goal_progress(). Other waits drive nothing, but leave
 *                        their CPU to the progress thread where they sleep. Once a wait in MPI has
 *                        ended, what others have left to it in its last 20 us waits for a call of
 *                        that rank, or for its progress thread: 0.4 ms at most
 *
 * So while one rank waits, or a CPU is free, the schedules of the ranks that compute advance as if
 * these waited, too. While all ranks compute on all CPUs, the last of them that starts executes the
 * schedules of all, inside its sluice_goal_start, and the thread executes the rest: the kernel
 * gives it a CPU for as long as it has work. A process creates its thread when there is work for
 * it the first time; it blocks all signals but those of faults, calls no function of the program,
 * and ends with the group or the process. With SLUICE_GOAL_THREAD=off there is none, waits in MPI
 * drive nothing, and what takes longer than 100 us goes on with the next call of any rank.
 *
 * Of a schedule whose operations are sends and receives of at most 1 KB that require nothing,
 * sluice_goal_start sends, and a call of its rank, or a rank that waits, receives: nothing waits
 * for these receives but the program.
 *
 * A wait that finds nothing to do sleeps, until a message for its rank or for a millisecond. Nobody
 * is woken while nothing is pending. Operations on memory of a program that is not from
 * sluice_goal_alloc() need a process that reaches it, see below; they wait for a call, or for the
 * thread, of that process.
 *
 * Every rank can read and write memory of sluice_goal_alloc(). Other memory of the program is
 * copied by system call in messages above 4 KB, by the rank that sends or receives it; where the
 * kernel refuses that, the sender packs the message.
 *
 * When a process dies, runs that depend on it fail with -EOWNERDEAD; other schedules go on. Sluice
 * names the rank and the operation on stderr. A schedule whose run has failed, for this or another
 * reason, cannot be started any more, and its memory is freed with the group.
 *
 * A forked child must not use its parent's groups.
 */
struct sluice_goal_group;
struct sluice_goal_instance; /* an open schedule */

/* Functions of the caller with which a group is created. Each returns 0 or a negative errno. */
struct sluice_goal_oob {
	void *ctx;
	int rank, size;
	/* each rank gives `bytes`; out gets size * bytes, by rank */
	int (*allgather)(void *ctx, const void *in, uint64_t bytes, void *out);
	int (*allreduce_min)(void *ctx, int64_t in, int64_t *out);
};

/* Creates a group. Collective. Returns: 0 with *out; -ENOTSUP on all ranks: they do not share a
 * machine, a user or their SLUICE_ options, see sluice_goal_refusal(); -EINVAL: there is no such
 * rank; -ENOMEM; an error of oob. */
int sluice_goal_group_create(const struct sluice_goal_oob *oob, struct sluice_goal_group **out);
/*
 * Creates a group without MPI: the processes know a name (1 to 64 bytes), their rank and the number
 * of ranks. Waits until all have come; timeout_ms < 0: for ever. The name is free again afterwards.
 * Returns: 0 with *out; -ETIMEDOUT: this rank may try again; -EADDRINUSE: a group of this name is
 * being made; -EEXIST: this rank has joined already; -EINVAL: there is no such rank or name, or the
 * processes disagree about the size; -EPERM: the name is another user's; -ECONNRESET: rank 0 has
 * given up, or a rank died meanwhile; -ENOTSUP and -ENOMEM as above.
 */
int sluice_goal_group_join(const char *name, int rank, int size, int timeout_ms,
			   struct sluice_goal_group **out);
/* The reason of the last -ENOTSUP in this process: a sentence. */
const char *sluice_goal_refusal(void);
/* Closes this rank's open schedules and destroys its part of the group; runs of other ranks that
 * need this rank fail. All ranks call it; it waits up to 2 seconds for the others. No other thread
 * may use the group any more. NULL is allowed. */
void sluice_goal_group_destroy(struct sluice_goal_group *g);
/* The name of sluice_goal_group_destroy() before 0.1.0; the next version removes it. */
__attribute__((deprecated("use sluice_goal_group_destroy()"))) static inline void
sluice_goal_group_leave(struct sluice_goal_group *g)
{
	sluice_goal_group_destroy(g);
}

/* Returns: this process's rank, from 0; the number of ranks. */
int sluice_goal_group_rank(const struct sluice_goal_group *g);
int sluice_goal_group_size(const struct sluice_goal_group *g);

/* Memory that every rank of the group maps: the fastest to send from and to receive into.
 * Destroying the group frees it. Returns: NULL with errno ENOMEM, also for 0 bytes. */
void *sluice_goal_alloc(struct sluice_goal_group *g, uint64_t bytes);
/* NULL is allowed. */
void sluice_goal_free(struct sluice_goal_group *g, void *memory);

struct sluice_goal_buffer { void *memory; uint64_t bytes; };

enum { SLUICE_GOAL_STREAM = 1 };
struct sluice_goal_options {
	uint32_t channel;
	unsigned flags;   /* SLUICE_GOAL_STREAM or 0 */
	const char *name; /* in messages; 31 bytes are kept; may be NULL */
};

/*
 * Opens a schedule on buffers, for any number of runs: space SLUICE_GOAL_USER + i is buffers[i].
 * The buffers stay until it is closed; the compiled schedule may go. options may be NULL. Returns:
 * 0 with *out; -EINVAL: it needs more or longer buffers, or is for another number of ranks; there
 * are more than SLUICE_GOAL_USERS_MAX buffers, or one without memory; an unknown flag; -ENOMEM;
 * -ENOSPC: 16384 are open or have failed.
 */
int sluice_goal_open(struct sluice_goal_group *g, const struct sluice_goal_schedule *s,
		     const struct sluice_goal_buffer *buffers, uint32_t count,
		     const struct sluice_goal_options *options, struct sluice_goal_instance **out);
/* Starts a run. Allocates nothing after the first runs of the schedules that it executes. Makes
 * system calls only to wake a rank or the progress thread (at first: to create it), and to copy
 * memory that is not from sluice_goal_alloc(). Returns: 0; -EBUSY: a run has not ended; the error
 * of a run that has failed. */
int sluice_goal_start(struct sluice_goal_instance *i);
/* sluice_goal_open() and sluice_goal_start(); after an error no schedule is open. */
int sluice_goal_run(struct sluice_goal_group *g, const struct sluice_goal_schedule *s,
		    const struct sluice_goal_buffer *buffers, uint32_t count,
		    struct sluice_goal_instance **out);
/* Returns: 1: the run has ended, or none was started; 0: not yet; -EOWNERDEAD: a process has died;
 * -EREMOTEIO: the ends of a message differ in length; -ECANCELED; -ETIMEDOUT (SLUICE_GOAL_TIMEOUT);
 * -EPIPE: a rank has left. */
int sluice_goal_test(struct sluice_goal_instance *i);
/* Returns: 0: the run has ended, or none was started; -ETIMEDOUT after timeout_ms (< 0: none): it
 * goes on, and sluice_goal_test() returns 0; errors as above. */
int sluice_goal_wait(struct sluice_goal_instance *i, int timeout_ms);
/* sluice_goal_start() and sluice_goal_wait(): the fastest way to run a schedule and wait for it. */
int sluice_goal_execute(struct sluice_goal_instance *i, int timeout_ms);
/* For the wait loop of another library: called again and again with gaps of less than 3 us, for 2
 * us and more, it drives all ranks of this process's groups as a waiting rank does, for about 5 us
 * and a copy in each call. It waits for nothing, and calls no function of the program or of MPI.
 * Returns: 1: something was done; 0; -1: nothing has been pending for 20 ms (nor been done for 10
 * s): the other library may stop calling, see sluice_goal_ask(). */
int sluice_goal_progress(void);
/* ask() asks the other library to call sluice_goal_progress() from now on, and returns 0 when it
 * will. It is called now, and by sluice_goal_start() after a -1. sluice_goal_group_mpi() does this
 * for MPICH; the library itself for Open MPI. */
void sluice_goal_ask(int (*ask)(void));
/* Ends a run with -ECANCELED, here and on every rank that depends on it. Returns: 0; -EALREADY: it
 * has ended, or none was started. */
int sluice_goal_cancel(struct sluice_goal_instance *i);
/* Returns: 0; -EBUSY: a run has not ended. */
int sluice_goal_close(struct sluice_goal_instance *i);

struct sluice_goal_failure {
	int error;   /* 0: none has failed */
	int rank;    /* rank to blame: it has died, left, was canceled, sent another length */
	int at_rank; /* rank that noticed first */
	/* operation in which it noticed, an index of the compiled schedule; UINT32_MAX: none */
	uint32_t op;
};

/* Tells why the run of a schedule failed. */
void sluice_goal_failure(const struct sluice_goal_instance *i, struct sluice_goal_failure *out);
/* Describes the operations that have started and not ended, one a line: what a deadlocked schedule
 * waits for. They may go on meanwhile. Returns: as snprintf(). */
uint64_t sluice_goal_stuck(const struct sluice_goal_instance *i, char *buf, uint64_t cap);

#ifdef __cplusplus
}
#endif

#endif
