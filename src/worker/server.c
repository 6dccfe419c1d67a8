/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * The first thread of the process: connections of ranks, groups, and the end of the process. It
 * sleeps in poll(). Ranks belong to one user and know the key; a malformed message ends the
 * connection.
 */
#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "trace/trace.h"
#include "worker/private.h"

#ifndef SYS_pidfd_open
#define SYS_pidfd_open 434
#endif

enum {
	MESSAGE_MS = 2000,
	ALONE_MS = 30000, /* each rank connects once, within moments of the first */
	BEFORE_CLIENTS = 2 /* descriptors before those of clients: listener, starter */
};

struct client {
	int fd;
	bool is_known;
	int pid;
	struct node_member self;
};

/* A requested group. */
struct group {
	struct worker_group_hello *hello; /* NULL: the place is free */
	struct node_group *node;          /* NULL: an arena is still missing */
	struct exec_comm *comm;
};

static struct {
	struct worker_page *page;
	struct client client[WORKER_CLIENTS];
	uint32_t clients; /* places ever used */
	uint32_t known;   /* clients that are known */
	struct group group[WORKER_GROUPS];
	bool is_full; /* a connection that cannot be accepted would end each poll() at once */
	bool has_ended;
} server;

/* ---- groups ------------------------------------------------------------------------------ */

static void group_forget(uint32_t i)
{
	struct group *g = &server.group[i];

	serve_group(i, NULL);
	if (g->comm)
		exec_destroy(g->comm);
	if (g->node)
		node_observe_end(g->node);
	free(g->hello);
	*g = (struct group){ 0 };
}

static bool is_connected(int pid)
{
	for (uint32_t i = 0; i < server.clients; i++)
		if (server.client[i].is_known && server.client[i].pid == pid)
			return true;
	return false;
}

/* Returns: true when no rank can use the group any more. A rank whose program has closed its
 * connection still knows the number. */
static bool is_abandoned(const struct worker_group_hello *h)
{
	const struct node_member *m = (const struct node_member *)(h + 1);

	for (uint32_t r = 0; r < h->outline.size; r++)
		if (is_connected(m[r].pid) || !node_process_is_dead(m[r].pid, m[r].start))
			return false;
	return true;
}

/* Frees groups that all their ranks have closed, or that have no rank, and that no thread
 * accesses. */
static void forget_closed(void)
{
	for (uint32_t i = 1; i < WORKER_GROUPS; i++) {
		const struct worker_group_hello *h = server.group[i].hello;
		struct worker_group *g = &server.page->group[i];
		uint32_t closed = atomic_load_explicit(&g->closed, memory_order_acquire);

		if (!h || (closed < h->outline.size && !is_abandoned(h)))
			continue;
		/* as a rank does, for those that are gone */
		atomic_store_explicit(&g->is_open, 0, memory_order_seq_cst);
		if (!is_inside(server.page, i))
			group_forget(i);
	}
}

static int group_try(uint32_t i)
{
	struct group *g = &server.group[i];
	int ret = node_observe(&g->hello->outline, (struct node_member *)(g->hello + 1), &g->node);

	if (ret)
		return ret;
	ret = exec_create(g->node, 0, NULL, &g->comm);
	if (ret)
		return ret;
	serve_group(i, g->comm);
	return 0;
}

/* Retries groups that waited for an arena. Their ranks know the number, which stays theirs after a
 * failure too. */
static void groups_try(void)
{
	forget_closed();
	for (uint32_t i = 1; i < WORKER_GROUPS; i++)
		if (server.group[i].hello && !server.group[i].node)
			group_try(i);
}

static int group_add(const struct worker_group_hello *h, size_t bytes)
{
	uint32_t i = 1;
	int ret;

	if (bytes < sizeof *h || h->outline.size < 2 || h->outline.size > EXEC_NAME_RANKS ||
	    bytes != sizeof *h + h->outline.size * sizeof(struct node_member))
		return -EPROTO;
	forget_closed();
	while (i < WORKER_GROUPS && server.group[i].hello)
		i++;
	if (i == WORKER_GROUPS)
		return -ENOSPC;
	server.group[i].hello = malloc(bytes);
	if (!server.group[i].hello)
		return -ENOMEM;
	memcpy(server.group[i].hello, h, bytes);
	atomic_store_explicit(&server.page->group[i].closed, 0, memory_order_relaxed);
	ret = group_try(i);
	if (!ret || ret == -ENOENT)
		return (int)i;
	group_forget(i);
	return ret;
}

/* ---- ranks ------------------------------------------------------------------------------- */

static void client_end(uint32_t i)
{
	struct client *c = &server.client[i];

	if (c->is_known) {
		node_forget_arena(&c->self);
		server.known--;
	}
	if (c->is_known && c->pid == server.page->starter_pid)
		server.has_ended = true;
	close(c->fd);
	*c = (struct client){ .fd = -1 };
	server.is_full = false;
	forget_closed();
	node_fini(); /* unmaps arenas that no group uses */
}

static int client_hello(uint32_t i, const struct worker_hello *h, size_t bytes, int arena)
{
	struct client *c = &server.client[i];
	struct worker_answer a = { (int32_t)i };
	int ret;

	if (bytes != sizeof *h || h->version != worker_abi() || h->key != server.page->key ||
	    c->is_known || arena < 0 || h->self.pid != c->pid)
		return -EPROTO;
	ret = node_observe_arena(&h->self, arena);
	if (ret) {
		a.value = ret;
		return os_socket_send(c->fd, &a, sizeof a, -1);
	}
	c->self = h->self;
	c->is_known = true;
	server.known++;
	groups_try();
	return os_socket_send(c->fd, &a, sizeof a, WORKER_FD_PAGE);
}

/* Handles one message. Returns: 0, or -errno when the connection must end. */
static int client_says(uint32_t i)
{
	static union {
		uint32_t type;
		struct worker_hello hello;
		struct worker_group_hello group;
		char bytes[sizeof(struct worker_group_hello) +
			   EXEC_NAME_RANKS * sizeof(struct node_member)];
	} m;
	struct client *c = &server.client[i];
	struct worker_answer a;
	int passed = -1, ret = -EPROTO;
	ssize_t n = os_socket_receive(c->fd, &m, sizeof m, 0, &passed);

	if (n <= 0)
		return n == -EAGAIN || n == -EINTR ? 0 : -ENOTCONN;
	if (n >= (ssize_t)sizeof m.type && m.type == WORKER_HELLO) {
		ret = client_hello(i, &m.hello, (size_t)n, passed);
	} else if (n >= (ssize_t)sizeof m.type && m.type == WORKER_GROUP && c->is_known) {
		a.value = group_add(&m.group, (size_t)n);
		ret = os_socket_send(c->fd, &a, sizeof a, -1);
	}
	if (passed >= 0)
		close(passed);
	return ret;
}

static void client_add(void)
{
	int fd = accept4(WORKER_FD_LISTENER, NULL, NULL, SOCK_CLOEXEC), pid;
	uint32_t i = 0;

	if (fd < 0) {
		server.is_full = errno == EMFILE || errno == ENFILE || errno == ENOMEM ||
				 errno == ENOBUFS;
		return;
	}
	while (i < server.clients && server.client[i].fd >= 0)
		i++;
	pid = os_socket_peer(fd);
	if (pid < 0 || i == WORKER_CLIENTS) {
		close(fd);
		return;
	}
	server.client[i] = (struct client){ .fd = fd, .pid = pid };
	if (i == server.clients)
		server.clients++;
}

/* ---- main loop ----------------------------------------------------------------------------- */

/* starter: pidfd of the rank that started this process; -1: refused, or that rank has exited, which
 * children that hold its connection would hide. */
static void loop(int starter)
{
	static struct pollfd p[BEFORE_CLIENTS + WORKER_CLIENTS];
	int alone_ms = server.page->alone_ms ? (int)server.page->alone_ms : ALONE_MS;

	while (!server.has_ended) {
		uint32_t n = server.clients;
		int got;

		p[0] = (struct pollfd){ server.is_full ? -1 : WORKER_FD_LISTENER, POLLIN, 0 };
		p[1] = (struct pollfd){ starter, POLLIN, 0 }; /* poll() ignores -1 */
		for (uint32_t i = 0; i < n; i++)
			p[BEFORE_CLIENTS + i] = (struct pollfd){ server.client[i].fd, POLLIN, 0 };
		got = poll(p, BEFORE_CLIENTS + n, server.known && starter >= 0 ? -1 : alone_ms);
		if (p[1].revents ||
		    (!got &&
		     (!server.known || node_process_has_exited(server.page->starter_pid))))
			return;
		if (got < 0)
			continue;
		for (uint32_t i = 0; i < n; i++)
			if (p[BEFORE_CLIENTS + i].revents && client_says(i))
				client_end(i);
		if (p[0].revents)
			client_add();
	}
}

static int page_open(void)
{
	struct worker_page *p =
		mmap(NULL, sizeof *p, PROT_READ | PROT_WRITE, MAP_SHARED, WORKER_FD_PAGE, 0);

	if (p == MAP_FAILED)
		return -errno;
	if (p->version != worker_abi() || p->threads < 1 || p->threads > WORKER_THREADS)
		return -EPROTO;
	server.page = p;
	return 0;
}

int worker_main(void)
{
	char problems[64], *nothing[] = { NULL };
	struct rlimit files;
	int starter;

	if (page_open() || base_options_load(nothing, problems, sizeof problems))
		return 2;
	if (chdir("/")) /* do not keep a file system busy */
		base_log(BASE_LOG_INFO, "worker", "chdir: %s", strerror(errno));
	if (!getrlimit(RLIMIT_NOFILE, &files)) { /* a connection and an arena for each rank */
		files.rlim_cur = files.rlim_max;
		setrlimit(RLIMIT_NOFILE, &files);
	}
	setpgid(0, 0); /* Ctrl-C is for the program, which may survive it */
	prctl(PR_SET_NAME, "sluice-worker");
	base_opt.log_level = BASE_LOG_NONE;
	base_opt.xfer_copy = server.page->copy;
	base_opt.xfer_fragment_bytes = server.page->fragment_bytes;
	base_opt.xfer_past_cache_bytes = server.page->past_cache_bytes;
	/* the reader runs on another core */
	if (base_opt.xfer_copy == BASE_COPY_AUTO && os_copy_has(BASE_COPY_NONTEMPORAL))
		base_opt.xfer_copy = BASE_COPY_NONTEMPORAL;
	os_copy_prepare();
	base_opt.trace = server.page->trace;
	base_opt.trace_limit_bytes = server.page->trace_limit_bytes;
	trace_start(-1);
	starter = (int)syscall(SYS_pidfd_open, server.page->starter_pid, 0);
	if (region_init() || serve_start(server.page))
		return 1;
	atomic_store_explicit(&server.page->start, os_process_start(getpid()),
			      memory_order_relaxed);
	atomic_store_explicit(&server.page->pid, getpid(), memory_order_relaxed);
	atomic_store_explicit(&server.page->state, WORKER_RUNS, memory_order_release);
	loop(starter);
	/* not WORKER_DEAD: the ranks set that when this process can write nothing more */
	atomic_store_explicit(&server.page->state, WORKER_ENDS, memory_order_release);
	serve_stop();
	trace_stop();
	return 0;
}
