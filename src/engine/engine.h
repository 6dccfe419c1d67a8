/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * engine: copies memory while the calling thread does something else.
 *
 *   engine_pick or engine_find     choose an engine; its probe() tries it and gives the reason if
 *                                  it does not work
 *   ops->chan_open                 open a channel: a queue of copies without an order
 *   engine_memory                  announce the memory of coming copies
 *   engine_post ..., engine_flush  fill in copies, then submit them all; each comes back through
 *                                  its done()
 *   engine_poll                    reap ended copies (ENGINE_POLLED); with sw also: copy a queued
 *                                  item here, or lend this CPU to a displaced worker thread
 *   engine_cancel                  take back copies that the device has not begun
 *   ops->retire                    give up a broken channel; it writes nothing afterwards
 *   ops->chan_close                close a channel
 *
 * Engines stand in one array, best first (registry.c):
 *   dsa    Intel DSA
 *   kmod   DMA channels of the kernel, by the module sluice.ko
 *   sw     worker threads of this process at idle priority; the reference
 *   fault  wraps another engine and injects failures (tests): engine_fault
 * To add an engine, add a folder, a line in registry.c and its files in meson.build. The
 * conformance suite (test/unit/test_engine_conformance.c) runs over every engine of the array, and
 * over `fault` around each.
 *
 * Addresses: an engine gets window addresses only, that is, addresses in this process's mapping of
 * an arena, its own or a peer's. The guard closes and moves the program's own mappings while an
 * engine copies. xfer/queue.c refuses other addresses.
 * Threads: any thread may post to a channel, also inside done(). A channel calls done() exactly
 * once for each accepted copy, in a thread of the engine or in a thread inside engine_poll(),
 * engine_cancel() or retire(), and never inside engine_post() or engine_flush().
 * Signals: memory, post, flush, poll, cancel and retire are async-signal-safe, because the guard's
 * fault handler calls them with every signal blocked: they allocate nothing and take no lock that
 * an interrupted thread may hold. In the handler retire may sleep. All other functions are not
 * signal-safe.
 * Fork: the child has no engine; engine_after_fork_child() forgets every channel.
 */
#ifndef SLUICE_ENGINE_H
#define SLUICE_ENGINE_H

#include <pthread.h>

#include "base/base.h"
#include "os/os.h"

struct engine_chan;

/* One copy. Owner: the channel from a successful post until done(), else the caller. */
struct engine_copy {
	void *dst;
	const void *src;
	size_t bytes;
	/*
	 * Reports the end of the copy.
	 * result: 0: all bytes are in place, and visible to whoever sees what done() releases;
	 * -ECANCELED: it was cancelled, or the channel was retired; another -errno: the copy
	 * failed. After a failure any part of dst may have been written, and the engine writes no
	 * more of it.
	 * Context: a thread of the engine, or a caller of engine_poll(), engine_cancel() or
	 * retire().
	 */
	void (*done)(struct engine_copy *c, int result);
	void *arg;                /* the caller's */
	struct engine_copy *next; /* the engine's, while it owns the copy */
	size_t total_bytes;       /* size of the whole transfer, for the choice of a copy kernel; 0:
				     same as bytes */
};

#define ENGINE_POLLED 1u   /* copies end only inside engine_poll() */
#define ENGINE_USES_CPU 2u /* copies need cycles of a CPU: useful only where a CPU is idle */
/*
 * Submitted copies go on without this process, but nobody submits the next ones before a poll. So a
 * user posts all copies that it has, up to `depth`, and polls when it needs them.
 */
#define ENGINE_AUTONOMOUS 4u

struct engine_caps {
	uint32_t flags;
	uint32_t depth;        /* most copies that one channel holds */
	size_t piece_bytes;    /* best size of one copy of a long transfer; 0: the user decides */
	size_t max_copy_bytes;
	size_t align_bytes;    /* required of dst, src and bytes; 1: none */
};

/* A back end. Every member is required unless its comment says otherwise. */
struct engine_ops {
	const char *name, *help;
	bool is_by_name; /* SLUICE_ENGINE=auto does not choose it */
	/*
	 * Tries the device with a real copy or thread. Idempotent.
	 * Returns: 0, or -errno with a sentence in `reason`.
	 * Context: any thread; may sleep, open files and start threads.
	 */
	int (*probe)(char *reason, size_t cap);
	/*
	 * Counts the channels near a NUMA node (-1: all).
	 * Returns: the number; 0 when the engine does not work.
	 * Context: any thread, after a successful probe.
	 */
	int (*chan_count)(int node);
	/*
	 * Opens channel number `index` of those near `node`.
	 * Returns: 0; -EINVAL (no such channel), -ENOSPC (too many are open), -EBUSY (another
	 * process has it alone), or another -errno.
	 * Context: any thread; may sleep. Owner: the caller, until chan_close().
	 */
	int (*chan_open)(int node, int index, struct engine_chan **out);
	/*
	 * Closes an empty or retired channel; waits for a done() that has not returned.
	 * Context: any thread, not inside done(); may sleep. No other call on the channel may run.
	 */
	void (*chan_close)(struct engine_chan *ch);
	/* Describes a channel; the answer never changes. Context: any thread, signal handlers. */
	void (*caps)(const struct engine_chan *ch, struct engine_caps *out);
	/*
	 * Announces pages of a window before copies from or to them are posted, so that the engine
	 * can make them present, pin or register them. id: number of the region that lies there
	 * now, 0: unknown. With another id than at the last announcement the pages are others: what
	 * the engine holds of the previous ones goes. NULL: the engine needs no announcement.
	 * Returns: 0, or -errno: the channel cannot copy this memory now.
	 * Context: as post; may take page faults. Owner: the caller keeps the window mapped until
	 * all copies in it have come back.
	 */
	int (*memory)(struct engine_chan *ch, void *base, size_t bytes, uint32_t id);
	/*
	 * Fills in a copy; it may begin at once, and need not before flush.
	 * Returns: 0, -EAGAIN (full), -ESHUTDOWN (retired) or -EINVAL (outside the caps).
	 * Context: any thread, signal handlers, done(). Owner: on 0 the channel owns *c and both
	 * ranges of memory until done(); *c is not read by the caller before.
	 */
	int (*post)(struct engine_chan *ch, struct engine_copy *c);
	/*
	 * Submits every posted copy, by one system call if the engine needs any. Copies that a full
	 * device does not accept stay posted; later calls of flush and poll submit them.
	 * Context: as post.
	 */
	void (*flush)(struct engine_chan *ch);
	/*
	 * Reaps ended copies, or executes copies here; submits posted copies that the device did
	 * not accept.
	 * Returns: the number of ended copies.
	 * Context: as post; may sleep for a moment. Any number of threads may poll at once.
	 */
	int (*poll)(struct engine_chan *ch);
	/*
	 * Takes back the copies whose struct engine_copy lies in [from, from + bytes), as far as
	 * the device has not begun them: each comes back with -ECANCELED, here or in a later poll,
	 * unless it ends with another result. The channel goes on. NULL: the engine cannot.
	 * Context: as poll; not inside done().
	 */
	void (*cancel)(struct engine_chan *ch, const void *from, size_t bytes);
	/*
	 * Ends the channel: every copy comes back through done(), with its result or -ECANCELED.
	 * After the return the channel writes nowhere, refuses posts, and runs no done() except the
	 * one that called retire. Idempotent.
	 * Context: any thread, signal handlers, done(); sleeps, and may take seconds where a device
	 * cannot abort what it has begun. The caller must hold nothing that done() needs.
	 */
	void (*retire)(struct engine_chan *ch);
	/*
	 * Forgets all channels: posts to them fail, and descriptors of devices are closed.
	 * Context: the only thread of a forked child. May be NULL.
	 */
	void (*after_fork_child)(void);
};

/* First member of every back end's channel. */
struct engine_chan {
	const struct engine_ops *ops;
};

extern const struct engine_ops *const engine_registry[]; /* best first, NULL at the end */
/* One more engine, of a test; found by its name only. */
extern const struct engine_ops *engine_of_test;
/* Returns: the engine of this name, or NULL. Context: any. */
const struct engine_ops *engine_find(const char *name);
/*
 * Chooses the engine that SLUICE_ENGINE names, or the first one that works; the latter also where
 * the one that a tune file names does not work.
 * Returns: the engine, or NULL with a sentence in `reason`.
 * Context: as probe().
 */
const struct engine_ops *engine_pick(char *reason, size_t cap);

/* The functions of a channel; see struct engine_ops. */
static inline int engine_memory(struct engine_chan *ch, void *base, size_t bytes, uint32_t id)
{
	return ch->ops->memory ? ch->ops->memory(ch, base, bytes, id) : 0;
}
static inline int engine_post(struct engine_chan *ch, struct engine_copy *c)
{
	return ch->ops->post(ch, c);
}
static inline void engine_flush(struct engine_chan *ch) { ch->ops->flush(ch); }
static inline int engine_poll(struct engine_chan *ch) { return ch->ops->poll(ch); }
static inline void engine_cancel(struct engine_chan *ch, const void *from, size_t bytes)
{
	if (ch->ops->cancel)
		ch->ops->cancel(ch, from, bytes);
}
/* Calls after_fork_child() of every engine. Context: the only thread of a forked child. */
void engine_after_fork_child(void);

/*
 * Assigns a channel to a rank: the ranks of one NUMA node share the channels of that node
 * round-robin, in order of rank. A node without channels uses those of the nearest node number that
 * has some. A pure function.
 * node_of_rank: [ranks]. channels: [nodes], the number of channels near each node.
 * Returns: 0 with *out_node and *out_index, -ENODEV when no node has a channel, or -EINVAL (no such
 * rank). Context: any.
 */
int engine_deal(int rank, int ranks, const int *node_of_rank, int nodes, const int *channels,
		int *out_node, int *out_index);

/*
 * Finds CPUs for worker threads that no rank of the job uses: SLUICE_ENGINE_CPUS, else the CPUs of
 * this process's launcher (its parent, if of the same user) without those of the ranks. Where the
 * ranks share all CPUs, the count is CPUs - ranks and the mask is all CPUs.
 * rank_cpus_union: affinity of all ranks of the node group.
 * Returns: the number of spare CPUs, with their mask in *out. Context: reads /proc.
 */
int engine_unused_cpus(const struct os_cpumask *rank_cpus_union, int ranks, struct os_cpumask *out);
/*
 * Sets the CPUs of this process's worker threads, and how many of these CPUs are its share. Without
 * it one worker thread runs where the calling thread may run.
 * Context: before engine_pick() and the first channel.
 */
void engine_set_cpus(const struct os_cpumask *cpus, int count);

/*
 * Every thread that an engine creates calls it first, so that the guard can mark the thread as
 * Sluice's. The thread blocks every signal but the two of libc. May be NULL.
 * Context: set before the first probe.
 */
extern void (*engine_thread_started)(void);

struct engine_thread {
	pthread_t handle;
	int tid;
};
/*
 * Starts a thread with a name, a small stack and every signal blocked.
 * cpus: not NULL: a worker, bound to these CPUs at idle priority; NULL: inherits both from the
 * creator. A request that the kernel refuses is logged at level info and otherwise ignored.
 * Returns: 0 or -errno. Context: not in signal handlers. Owner: the caller joins `handle`.
 */
int engine_thread_create(const char *name, const struct os_cpumask *cpus, void (*run)(void *arg),
			 void *arg, struct engine_thread *out);

#endif
