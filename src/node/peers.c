/* SPDX-License-Identifier: BSD-3-Clause */
/* Known peer processes, each with one mapping of its arena. */
#include <errno.h>
#include <pthread.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include "node/private.h"

static pthread_mutex_t peers_lock = PTHREAD_MUTEX_INITIALIZER;
static struct node_peer *peers; /* under the lock */

uint64_t node_arena_id(void)
{
	static uint64_t id;
	static int pid;

	pthread_mutex_lock(&peers_lock);
	if (pid != getpid()) {
		pid = getpid();
		id = os_random_u64() | 1;
	}
	pthread_mutex_unlock(&peers_lock);
	return id;
}

static struct node_peer *find_locked(const struct node_hello *h)
{
	for (struct node_peer *p = peers; p; p = p->next) {
		if (p->pid == h->pid && p->arena_id == h->arena_id && p->start == h->start) {
			p->refs++;
			return p;
		}
	}
	return NULL;
}

struct node_peer *peer_find(const struct node_hello *h)
{
	struct node_peer *p;

	pthread_mutex_lock(&peers_lock);
	p = find_locked(h);
	pthread_mutex_unlock(&peers_lock);
	return p;
}

struct node_peer *peer_find_process(int pid, uint64_t start)
{
	struct node_peer *p;

	pthread_mutex_lock(&peers_lock);
	for (p = peers; p && (p->pid != pid || p->start != start); p = p->next)
		;
	if (p)
		p->refs++;
	pthread_mutex_unlock(&peers_lock);
	return p;
}

struct node_peer *peer_add(const struct node_hello *h, int fd, int *out_err)
{
	struct node_peer *p = calloc(1, sizeof *p), *known;
	struct stat st;

	*out_err = ENOMEM;
	if (!p)
		return NULL;
	/* a shorter file would cause SIGBUS later */
	if (fstat(fd, &st) || (uint64_t)st.st_size < h->arena_bytes) {
		*out_err = EPROTO;
		goto free_peer;
	}
	p->base = region_map_arena(fd, h->arena_bytes);
	if (!p->base) {
		*out_err = errno;
		goto free_peer;
	}
	p->pid = h->pid;
	p->start = h->start;
	p->arena_id = h->arena_id;
	p->bytes = h->arena_bytes;
	p->refs = 1;
	pthread_mutex_lock(&peers_lock);
	known = find_locked(
		h); /* another thread, in another group, may have added it */
	if (!known) {
		p->next = peers;
		peers = p;
	}
	pthread_mutex_unlock(&peers_lock);
	if (!known)
		return p;
	munmap(p->base, p->bytes);
	free(p);
	return known;

free_peer:
	free(p);
	return NULL;
}

/* The mapping stays for the next communicator, as the processes of a job are few. */
void peer_put(struct node_peer *p)
{
	pthread_mutex_lock(&peers_lock);
	p->refs--;
	pthread_mutex_unlock(&peers_lock);
}

void node_fini(void)
{
	struct node_peer **link = &peers;

	directory_clear();
	pthread_mutex_lock(&peers_lock);
	while (*link) {
		struct node_peer *p = *link;

		if (p->refs > 0) { /* the program never freed this communicator */
			link = &p->next;
			continue;
		}
		*link = p->next;
		munmap(p->base, p->bytes);
		free(p);
	}
	pthread_mutex_unlock(&peers_lock);
}
