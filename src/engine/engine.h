/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * engine: anything that copies memory while this thread does something else, behind one contract.
 *
 *   engine_find / engine_pick   ->  probe says whether it works here, and why not
 *   engine_chan_open            ->  a channel: one queue of copies, in order of nothing
 *   engine_post ... engine_flush   copies go in; each comes back through its done()
 *   engine_poll                 ->  calls done() for what has ended (engines with ENGINE_POLLED); a
 * thread that has to wait may call it for any engine: sw then copies there what is queued, and
 * lends its CPU to a worker that has none engine_retire               ->  the channel is broken:
 * everything comes back, nothing writes any more engine_chan_close
 *
 * Back ends stand in one array, best first (registry.c):
 *   sw     worker threads of this process at idle priority; the reference
 *   fault  wraps another engine and breaks it on demand (tests): engine_fault
 * A new engine is one folder, one line there, one line of build; the conformance suite
 * (test/unit/test_engine_conformance.c) takes its name.
 *
 * Threads: a channel may be posted to by any thread, also from done(). done() is called exactly
 * once for each copy that was accepted, by a thread of the engine, or by a thread in engine_poll()
 * or engine_retire(); never inside engine_post(). Signals: post, flush, poll and retire are
 * async-signal-safe (no locks that an interrupted thread could hold, no allocation; every signal is
 * blocked by the caller), as they run in the guard's fault handler, where retire may sleep; the
 * others are not. After fork the child has no engine; engine_after_fork_child() forgets everything.
 */
#ifndef SLUICE_ENGINE_H
#define SLUICE_ENGINE_H

#include <pthread.h>

#include "base/base.h"
#include "os/os.h"

struct engine_chan;

/* One copy. The caller's memory, untouched by others from post until done. */
struct engine_copy {
	void *dst;
	const void *src;
	size_t bytes;
	/* 0: all bytes are in place, visible to whoever sees what done() releases. -ECANCELED: the
	 * channel was retired; other -errno: it failed. Then any part of dst may have been written,
	 * and none will be any more. */
	void (*done)(struct engine_copy *c, int result);
	void *arg;
	struct engine_copy *next; /* the engine's, while it holds the copy */
	size_t total_bytes; /* of the transfer that it is a part of: whether caches can hold it; 0:
			       no more */
};

#define ENGINE_POLLED 1u /* ends are only noticed in engine_poll() */
#define ENGINE_USES_CPU 2u /* copies cost cycles of a CPU: of use only where one is idle */

struct engine_caps {
	uint32_t flags;
	uint32_t depth;         /* copies that one channel holds at most */
	size_t max_copy_bytes;
	size_t align_bytes;     /* of dst, src and bytes; 1: none */
};

/* A back end. All members are required unless said otherwise. */
struct engine_ops {
	const char *name, *help;
	/* 0, or -errno with the reason, a sentence, in `reason`. Tries the real thing. Idempotent.
	 */
	int (*probe)(char *reason, size_t cap);
	/* Channels near NUMA node `node` (-1: all). 0 when there are none. After a successful
	 * probe. */
	int (*chan_count)(int node);
	/* The index-th channel near `node`. 0 or -errno. */
	int (*chan_open)(int node, int index, struct engine_chan **out);
	/* Nothing may be in it; waits for a done() that has not returned. Not inside done(). */
	void (*chan_close)(struct engine_chan *ch);
	void (*caps)(const struct engine_chan *ch, struct engine_caps *out);
	/* 0, -EAGAIN: full, -ESHUTDOWN: retired, -EINVAL: beyond its caps. */
	int (*post)(struct engine_chan *ch, struct engine_copy *c);
	void (*flush)(struct engine_chan *ch); /* what was posted starts now */
	int (*poll)(struct engine_chan *ch);   /* number of copies that ended */
	/* Everything in it comes back through done(): with its result, or -ECANCELED. After it
	 * returns this channel writes nowhere any more, refuses posts, and no done() of it runs but
	 * the caller's own, if it is called inside one: hold nothing that done() needs. Idempotent.
	 * May sleep. */
	void (*retire)(struct engine_chan *ch);
	void (*after_fork_child)(void); /* may be NULL */
};

/* First member of every back end's channel. */
struct engine_chan {
	const struct engine_ops *ops;
};

extern const struct engine_ops *const engine_registry[]; /* best first, NULL at the end */
const struct engine_ops *engine_find(const char *name);  /* NULL: unknown */
/* The engine that SLUICE_ENGINE asks for, or the best that works. NULL: none, with the reason. */
const struct engine_ops *engine_pick(char *reason, size_t cap);

static inline int engine_post(struct engine_chan *ch, struct engine_copy *c)
{
	return ch->ops->post(ch, c);
}
static inline void engine_flush(struct engine_chan *ch) { ch->ops->flush(ch); }
static inline int engine_poll(struct engine_chan *ch) { return ch->ops->poll(ch); }
void engine_after_fork_child(void);

/*
 * Which channel a rank gets: ranks of one NUMA node share that node's channels round-robin, in
 * order of rank. Pure. node_of_rank[ranks]; channels[nodes]: channels near each node. A node
 * without channels takes those of the nearest node number that has some. *out_node, *out_index;
 * -ENODEV when none has.
 */
int engine_deal(int rank, int ranks, const int *node_of_rank, int nodes, const int *channels,
		int *out_node, int *out_index);

/*
 * CPUs on which workers may run without taking a core from the job: what SLUICE_ENGINE_CPUS says,
 * else the CPUs that this process's launcher may use (its parent, when it is of the same user)
 * without those that the ranks are bound to. `ranks`: affinity of all ranks of the node group; when
 * they are not bound apart (they share all CPUs) the count is CPUs - ranks and the mask is all
 * CPUs. Returns how many CPUs are spare (0: none) and the mask in *out.
 */
int engine_spare_cpus(const struct os_cpumask *rank_cpus_union, int ranks,
		      struct os_cpumask *out);
/* Where the workers of this process run from now on, and how many of these CPUs are its share;
 * before engine_pick and the first channel. Without it one worker runs where this thread may run.
 */
void engine_set_cpus(const struct os_cpumask *cpus, int count);

/* Called by each thread that an engine creates, in that thread, before it does anything else: a
 * guard marks it as ours. May be NULL. Set before the first probe. The thread has every signal
 * blocked but the two of libc. */
extern void (*engine_thread_started)(void);

/*
 * Start a thread of ours: named, on a small stack, every signal blocked; a worker (`cpus` not NULL)
 * on these, at idle priority, any other where and as its creator is. What the kernel refuses of
 * this is left out and told at level info. 0 or -errno. Context: not in signal handlers.
 */
struct engine_thread {
	pthread_t handle;
	int tid;
};
int engine_thread_create(const char *name, const struct os_cpumask *cpus, void (*run)(void *arg),
			 void *arg, struct engine_thread *out);

#endif
