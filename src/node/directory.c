/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * From a pid to the arena of that process, without its help: the header in the first page of each
 * arena, and a table of the processes that were asked for. A process of this user is looked for
 * among the known peers, then in /proc/PID/fd, where its arena has a link with a known name.
 *
 * Readers of the table take no lock. An entry is filled under the lock, and keeps its pid and its
 * peer from then on; a peer of a process that has ended or executes another program is not given
 * out any more (node_header_is_valid).
 */
#include <dirent.h>
#include <fcntl.h>
#include <pthread.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "base/backoff.h"
#include "node/private.h"

#define DIRECTORY_SIZE 4096 /* power of two; entries, 32 bytes each */
#define DIRECTORY_PROBES 16
#define RETRY_FIRST 16u /* calls that skip a process without a header */
#define RETRY_MAX 65536u
#define LIVENESS_NS 20000000u /* a process may be dead for so long and a tick, unnoticed */
#define SAME_NS 250000000u /* a pid is not used again so soon: 32,768 processes come first */
#define NEAR 4 /* numbers of descriptors above and below that of our arena */

static struct entry {
	_Atomic int32_t pid; /* 0: free */
	_Atomic(struct node_peer *) peer; /* NULL: a stranger */
	_Atomic uint64_t checked_ns; /* the process lived then */
	struct backoff retry;
} directory[DIRECTORY_SIZE];
static pthread_mutex_t directory_lock = PTHREAD_MUTEX_INITIALIZER;

static _Atomic(struct node_header *) own;
static int own_pid;

static bool is_header_of(const struct node_header *h, int pid, uint64_t start)
{
	/* acquire, partner: directory_publish */
	return atomic_load_explicit(&h->magic, memory_order_acquire) == NODE_HEADER_MAGIC &&
	       h->version == NODE_VERSION && h->pid == pid && h->start == start &&
	       h->options_hash == base_options_hash();
}

bool directory_publish(int job_rank)
{
	struct node_header *h;

	if (region_init())
		return false;
	_Static_assert(sizeof *h <= OS_PAGE, "the header is one page");
	h = region_arena_base();
	h->version = NODE_VERSION;
	h->pid = own_pid = getpid();
	h->job_rank = job_rank;
	h->start = os_process_start(h->pid);
	h->arena_id = node_arena_id();
	h->arena_bytes = region_arena_bytes();
	h->options_hash = base_options_hash();
	/* release: the header; partner: is_header_of, in other processes */
	atomic_store_explicit(&h->magic, NODE_HEADER_MAGIC, memory_order_release);
	atomic_store_explicit(&own, h, memory_order_release); /* partner: node_header_self */
	return true;
}

void directory_open_wake_words(void)
{
	struct node_header *h = node_header_self();
	struct region_extent e;

	/* release: zeros; partner: node_wake_words. The extent lasts as long as the arena. */
	if (!region_extent_get(NODE_WAKE_WORDS * sizeof(struct node_wake_word), true, &e))
		atomic_store_explicit(&h->wake_words_off, e.offset, memory_order_release);
}

struct node_header *node_header_self(void)
{
	/* a forked child has not mapped the arena */
	return region_arena_base() ? atomic_load_explicit(&own, memory_order_acquire) : NULL;
}

static void set_ended(uint32_t has_ended)
{
	/* a child has no arena, or shares this one until its exec */
	bool is_owner = own_pid == (int)syscall(SYS_getpid);
	struct node_header *h = is_owner ? node_header_self() : NULL;

	/* release: before the new program begins; partner: node_header_of */
	if (h)
		atomic_store_explicit(&h->has_ended, has_ended, memory_order_release);
}

void node_exec_begin(void) { set_ended(1); }
void node_exec_failed(void) { set_ended(0); }

/* ---- opening an arena ---------------------------------------------------------------------- */

/* Opens a descriptor of a process if that is its arena, whose header is *out then. Returns: -1. */
static int open_descriptor(int pid, const char *name, uint64_t start, struct node_header *out)
{
	char path[64], target[sizeof REGION_ARENA_LINK - 1];
	struct stat st;
	int fd;

	snprintf(path, sizeof path, "/proc/%d/fd/%s", pid, name);
	if (readlink(path, target, sizeof target) != sizeof target ||
	    memcmp(target, REGION_ARENA_LINK, sizeof target))
		return -1;
	fd = open(path, O_RDWR | O_CLOEXEC);
	if (fd < 0)
		return -1;
	if (!fstat(fd, &st) && st.st_uid == geteuid() &&
	    pread(fd, out, sizeof *out, 0) == sizeof *out && is_header_of(out, pid, start))
		return fd;
	close(fd);
	return -1;
}

/* Looks at the numbers near that of our arena: the processes of a job open their files alike, and
 * the kernel takes 10 us for each descriptor that is looked at for the first time. */
static int open_near(int pid, uint64_t start, struct node_header *out)
{
	int number = region_arena_fd(), fd = -1;
	char name[16];

	for (int i = 1; i <= 2 * NEAR + 1 && fd < 0; i++) {
		snprintf(name, sizeof name, "%d", number);
		fd = number < 0 ? -1 : open_descriptor(pid, name, start, out);
		number += i % 2 ? i : -i;
	}
	return fd;
}

/* Opens the arena of a process. Returns: its descriptor with the header in *out, or -1. */
static int open_arena(int pid, uint64_t start, struct node_header *out)
{
	int fd = open_near(pid, start, out);
	struct dirent *d;
	char path[32];
	DIR *dir;

	if (fd >= 0)
		return fd;
	snprintf(path, sizeof path, "/proc/%d/fd", pid);
	dir = opendir(path);
	while (dir && fd < 0 && (d = readdir(dir)))
		fd = open_descriptor(pid, d->d_name, start, out);
	if (dir)
		closedir(dir);
	return fd;
}

/* Takes a reference. */
static struct node_peer *find_process(int pid)
{
	uint64_t start = os_process_start(pid);
	struct node_peer *p = start ? peer_find_process(pid, start) : NULL;
	struct node_header header;
	struct node_hello hello;
	int fd, err;

	if (p || !start)
		return p;
	fd = open_arena(pid, start, &header);
	if (fd < 0)
		return NULL;
	hello = (struct node_hello){ .pid = pid, .start = start, .arena_id = header.arena_id,
				     .arena_bytes = header.arena_bytes };
	p = peer_add(&hello, fd, &err);
	close(fd);
	base_log(BASE_LOG_DEBUG, "node", "process %d: %s", pid, p ? "its arena is mapped" :
		 strerror(err));
	return p;
}

/* ---- the table ----------------------------------------------------------------------------- */

static uint32_t first_place(int pid)
{
	return (uint32_t)pid * 0x9e3779b1u >> 20;
}

static struct entry *entry_find(int pid)
{
	uint32_t at = first_place(pid);

	for (uint32_t i = 0; i < DIRECTORY_PROBES; i++) {
		struct entry *e = &directory[(at + i) % DIRECTORY_SIZE];
		/* acquire, partner: entry_make; the entry is never another process's */
		int32_t known = atomic_load_explicit(&e->pid, memory_order_acquire);

		if (known == pid)
			return e;
		if (!known)
			return NULL;
	}
	return NULL;
}

/* Under the lock. Returns: NULL when there is no place. */
static struct entry *entry_make(int pid)
{
	uint32_t at = first_place(pid);

	for (uint32_t i = 0; i < DIRECTORY_PROBES; i++) {
		struct entry *e = &directory[(at + i) % DIRECTORY_SIZE];

		if (!atomic_load_explicit(&e->pid, memory_order_relaxed)) {
			atomic_store_explicit(&e->pid, pid, memory_order_release);
			return e;
		}
	}
	return NULL;
}

/* Looks for the process again. Returns: its peer or NULL. */
static struct node_peer *entry_fill(struct entry *e, int pid)
{
	struct node_peer *p;

	if (pthread_mutex_trylock(&directory_lock))
		return NULL;
	e = e ? e : entry_find(pid);
	e = e ? e : entry_make(pid);
	p = e ? atomic_load_explicit(&e->peer, memory_order_relaxed) : NULL;
	if (e && !p) {
		uint32_t skip = backoff_longer(backoff_interval(&e->retry), RETRY_FIRST, RETRY_MAX);

		p = find_process(pid);
		atomic_store_explicit(&e->checked_ns, os_tick_ns(), memory_order_relaxed);
		/* release: the peer; partner: node_header_of */
		atomic_store_explicit(&e->peer, p, memory_order_release);
		backoff_set(&e->retry, p ? 0 : skip);
		backoff_skip(&e->retry, p ? 0 : skip);
	}
	pthread_mutex_unlock(&directory_lock);
	return p;
}

/* Pids are used again: the process of an entry has to live. A dead one becomes a stranger, but its
 * arena stays mapped, as another thread may be reading it. */
static bool is_alive(struct entry *e, struct node_peer *p)
{
	uint64_t now = os_tick_ns(), then = atomic_load_explicit(&e->checked_ns,
								 memory_order_relaxed);

	if (now - then < LIVENESS_NS)
		return true;
	/* in a collective of the host MPI all ranks wait for each rank that looks into /proc */
	if (now - then < SAME_NS ? node_process_has_exited(p->pid)
				 : node_process_is_dead(p->pid, p->start)) {
		if (atomic_exchange_explicit(&e->peer, NULL, memory_order_relaxed))
			peer_put(p);
		return false;
	}
	atomic_store_explicit(&e->checked_ns, now, memory_order_relaxed);
	return true;
}

struct node_header *node_header_of(int pid, bool may_search)
{
	struct entry *e = entry_find(pid);
	/* acquire, partner: entry_fill */
	struct node_peer *p = e ? atomic_load_explicit(&e->peer, memory_order_acquire) : NULL;
	struct node_header *h;

	if (base_unlikely(!p)) {
		if (!may_search || !node_header_self() || pid == own_pid ||
		    (e && !backoff_is_due(&e->retry)))
			return NULL;
		p = entry_fill(e, pid);
		if (!p)
			return NULL;
		e = entry_find(pid);
	}
	h = (struct node_header *)p->base;
	if (atomic_load_explicit(&h->has_ended, memory_order_acquire) || !is_alive(e, p))
		return NULL;
	return h;
}

void directory_clear(void)
{
	pthread_mutex_lock(&directory_lock);
	atomic_store_explicit(&own, NULL, memory_order_relaxed);
	for (uint32_t i = 0; i < DIRECTORY_SIZE; i++) {
		struct node_peer *p = atomic_exchange_explicit(&directory[i].peer, NULL,
							       memory_order_relaxed);

		if (p)
			peer_put(p);
		atomic_store_explicit(&directory[i].pid, 0, memory_order_relaxed);
	}
	pthread_mutex_unlock(&directory_lock);
}
