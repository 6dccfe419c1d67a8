/* SPDX-License-Identifier: BSD-3-Clause */
/* A rank's side: starting the process, connecting to it, announcing work. */
#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include "worker/private.h"

enum { ANSWER_MS = 2000 };
#define END_NS 50000000u

_Atomic(struct worker_page *) worker_page;

static struct {
	pthread_mutex_t lock;
	struct worker_ticket ticket; /* of the attached worker */
	int fd; /* the connection; when it closes, the worker knows that this rank is gone */
	struct os_file file;         /* of fd */
	uint32_t client;
	struct worker_ticket mine; /* of the worker that this process has started */
	bool has_tried;            /* this process tried to start a worker */
	bool is_unanswered;        /* an answer may still come: no other request */
	uint64_t bytes_known;
} conn = { .lock = PTHREAD_MUTEX_INITIALIZER, .fd = -1 };

/* The program may have closed every descriptor and opened a file of its own under this number. */
static bool fd_is_ours(void)
{
	return os_file_is_at(&conn.file, conn.fd);
}

/* ---- starting ------------------------------------------------------------------------------ */

static int page_make(const struct worker_setup *setup, uint64_t key)
{
	struct worker_page *p;
	int fd = memfd_create("sluice-worker", MFD_CLOEXEC), err;

	if (fd < 0)
		return -errno;
	p = ftruncate(fd, sizeof *p)
		    ? MAP_FAILED
		    : mmap(NULL, sizeof *p, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
	if (p == MAP_FAILED) {
		err = -errno;
		close(fd);
		return err;
	}
	p->version = worker_abi();
	p->threads = (uint32_t)base_min_u64((uint64_t)setup->threads, WORKER_THREADS);
	p->starter_pid = getpid();
	p->is_normal = base_fault("worker_idle");
	p->key = key;
	p->poll_max_ns = (uint64_t)base_opt.worker_poll_us * 1000;
	p->copy = base_opt.xfer_copy;
	p->fragment_bytes = base_opt.xfer_fragment_bytes;
	p->past_cache_bytes = base_opt.xfer_past_cache_bytes;
	p->trace_limit_bytes = base_opt.trace_limit_bytes;
	if (base_opt.trace[0] == '/' && strlen(base_opt.trace) < sizeof p->trace)
		strcpy(p->trace, base_opt.trace);
	p->cpus = setup->cpus;
	munmap(p, sizeof *p);
	return fd;
}

socklen_t worker_socket_name(struct sockaddr_un *a, int pid, uint64_t id)
{
	return os_socket_name(a, "sluice-worker-%d-%016llx", pid, (unsigned long long)id);
}

static int listener_make(uint64_t id)
{
	struct sockaddr_un a;
	socklen_t bytes = worker_socket_name(&a, getpid(), id);

	return os_socket_listen(SOCK_SEQPACKET, &a, bytes);
}

static int start_locked(const struct worker_setup *setup, char *reason, size_t cap)
{
	struct worker_ticket t = { .pid = getpid(),
				   .socket = os_random_u64(),
				   .key = os_random_u64() | 1 };
	int page = page_make(setup, t.key), listener = listener_make(t.socket), ret;

	ret = page < 0 ? page : listener < 0 ? listener : 0;
	if (ret)
		snprintf(reason, cap, "no shared memory or socket: %s", strerror(-ret));
	else
		ret = worker_spawn(listener, page, reason, cap);
	if (page >= 0)
		close(page);
	if (listener >= 0)
		close(listener);
	if (ret < 0)
		return ret;
	conn.mine = t;
	return 0;
}

int worker_start(const struct worker_setup *setup, struct worker_ticket *out, char *reason,
		 size_t cap)
{
	int ret;

	pthread_mutex_lock(&conn.lock);
	if (conn.has_tried && !conn.mine.key) {
		snprintf(reason, cap, "it could not be started before");
		ret = -EALREADY;
	} else {
		ret = conn.mine.key ? 0 : start_locked(setup, reason, cap);
	}
	conn.has_tried = true;
	if (!ret)
		*out = conn.mine;
	pthread_mutex_unlock(&conn.lock);
	return ret;
}

/* ---- attaching ----------------------------------------------------------------------------- */

bool worker_is_alive(void)
{
	struct worker_page *p = atomic_load_explicit(&worker_page, memory_order_acquire);

	return p && atomic_load_explicit(&p->state, memory_order_relaxed) == WORKER_RUNS;
}

int worker_pid(void)
{
	struct worker_page *p = atomic_load_explicit(&worker_page, memory_order_acquire);

	return p ? atomic_load_explicit(&p->pid, memory_order_relaxed) : 0;
}

void worker_current(struct worker_ticket *out)
{
	*out = (struct worker_ticket){ 0 };
	pthread_mutex_lock(&conn.lock);
	if (worker_is_alive())
		*out = conn.ticket;
	pthread_mutex_unlock(&conn.lock);
}

static int connect_to(const struct worker_ticket *t)
{
	struct sockaddr_un a;
	socklen_t bytes = worker_socket_name(&a, t->pid, t->socket);

	return os_socket_connect(0, &a, bytes, t->pid);
}

static int page_map(int fd)
{
	struct worker_page *p;
	struct stat st;

	if (fstat(fd, &st) || (uint64_t)st.st_size < sizeof *p)
		return -EPROTO;
	p = mmap(NULL, sizeof *p, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
	if (p == MAP_FAILED)
		return -errno;
	madvise(p, sizeof *p, MADV_DONTFORK);
	atomic_store_explicit(&worker_page, p, memory_order_release); /* partner: its users */
	return 0;
}

static int hello(const struct worker_ticket *t)
{
	struct worker_hello h = { .type = WORKER_HELLO, .version = worker_abi(), .key = t->key };
	struct worker_answer a = { -EPROTO };
	int page = -1, ret = node_self(&h.self);
	ssize_t n;

	if (!ret)
		ret = os_socket_send(conn.fd, &h, sizeof h, region_arena_fd());
	if (ret)
		return ret;
	n = os_socket_receive(conn.fd, &a, sizeof a, ANSWER_MS, &page);
	if (n != (ssize_t)sizeof a)
		ret = n < 0 ? (int)n : -EPROTO;
	else
		ret = a.value < 0 ? a.value : page_map(page);
	if (page >= 0)
		close(page);
	conn.client = (uint32_t)a.value;
	return ret;
}

/* The page stays mapped for ever, as a fault handler may be reading it. */
static int attach_locked(const struct worker_ticket *t)
{
	int ret;

	if (conn.ticket.key == t->key)
		return !worker_is_alive() ? -EOWNERDEAD : fd_is_ours() ? 0 : -ENOTCONN;
	if (conn.fd >= 0 || atomic_load_explicit(&worker_page, memory_order_relaxed))
		return -EBUSY; /* one worker per process */
	ret = connect_to(t);
	if (ret < 0)
		return ret;
	conn.fd = ret;
	os_file_of(conn.fd, &conn.file);
	ret = hello(t);
	if (!ret) {
		conn.ticket = *t;
		return 0;
	}
	close(conn.fd);
	conn.fd = -1;
	return ret;
}

int worker_attach(const struct worker_ticket *t)
{
	int ret;

	pthread_mutex_lock(&conn.lock);
	ret = base_fault("worker_attach") ? -EACCES : attach_locked(t);
	pthread_mutex_unlock(&conn.lock);
	return ret;
}

void worker_detach(void)
{
	pthread_mutex_lock(&conn.lock);
	if (fd_is_ours()) {
		shutdown(conn.fd, SHUT_RDWR); /* children may hold copies of it */
		close(conn.fd);
	}
	conn.fd = -1;
	if (conn.ticket.key == conn.mine.key)
		/* the worker ends in any case; waiting leaves nothing of a job behind */
		stop_process(END_NS);
	conn.mine.key = 0;
	pthread_mutex_unlock(&conn.lock);
}

void worker_after_fork_child(void)
{
	if (fd_is_ours())
		close(conn.fd);
	conn.fd = -1;
	conn.mine.key = 0;
	conn.has_tried = true; /* a child of a rank starts no worker */
	pthread_mutex_init(&conn.lock, NULL);
	atomic_store_explicit(&worker_page, NULL, memory_order_relaxed); /* MADV_DONTFORK */
}

/* ---- groups ------------------------------------------------------------------------------ */

static int group_open_locked(const struct node_group *g)
{
	size_t members = (size_t)node_size(g), bytes;
	struct worker_group_hello *h;
	struct worker_answer a;
	int ret, none = -1;
	ssize_t n;

	bytes = sizeof *h + members * sizeof(struct node_member);
	if (members > EXEC_NAME_RANKS)
		return -E2BIG;
	h = malloc(bytes);
	if (!h)
		return -ENOMEM;
	*h = (struct worker_group_hello){ .type = WORKER_GROUP };
	node_outline(g, &h->outline, (struct node_member *)(h + 1));
	ret = os_socket_send(conn.fd, h, bytes, -1);
	free(h);
	if (ret)
		return ret;
	n = os_socket_receive(conn.fd, &a, sizeof a, ANSWER_MS, &none);
	if (none >= 0)
		close(none);
	if (n == (ssize_t)sizeof a)
		return a.value;
	conn.is_unanswered = true;
	return n < 0 ? (int)n : -EPROTO;
}

int worker_group_open(const struct node_group *g)
{
	struct worker_page *p = atomic_load_explicit(&worker_page, memory_order_acquire);
	int ret;

	pthread_mutex_lock(&conn.lock);
	ret = conn.is_unanswered || !fd_is_ours() ? -ENOTCONN : group_open_locked(g);
	if (ret > 0)
		/* release: that the worker has made the group; partner: serve_one */
		atomic_store_explicit(&p->group[ret].is_open, 1, memory_order_release);
	pthread_mutex_unlock(&conn.lock);
	return ret;
}

/* ---- announcing ---------------------------------------------------------------------------- */

void worker_facts(struct progress_facts *f)
{
	struct worker_page *p = atomic_load_explicit(&worker_page, memory_order_acquire);

	/* no worker starts where every CPU has a rank */
	f->has_process = f->has_cpu = worker_is_alive();
	if (!f->has_process)
		return;
	f->polling = atomic_load_explicit(&p->announced.seekers, memory_order_relaxed);
	f->asleep = atomic_load_explicit(&p->announced.sleepers, memory_order_relaxed);
}

void worker_announce(int group, uint64_t tag)
{
	struct worker_page *p = atomic_load_explicit(&worker_page, memory_order_acquire);

	if (!worker_is_alive())
		return;
	check_alive_sometimes(p);
	if (worker_is_alive())
		announce_post(&p->announced, announcement(conn.client, (uint32_t)group, tag));
}

uint64_t worker_bytes(void)
{
	struct worker_page *p = atomic_load_explicit(&worker_page, memory_order_acquire);
	uint64_t now, more;

	if (!p)
		return 0;
	pthread_mutex_lock(&conn.lock);
	now = atomic_load_explicit(&p->bytes[conn.client], memory_order_relaxed);
	more = now - conn.bytes_known;
	conn.bytes_known = now;
	pthread_mutex_unlock(&conn.lock);
	return more;
}
