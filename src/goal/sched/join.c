/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Groups without MPI: the members know a name, their rank and the number of ranks. Rank 0 listens
 * on an abstract socket of that name; the name is free again as soon as all have connected, or when
 * rank 0 dies. The other ranks connect, and retry until rank 0 listens, which answers when all
 * have come. Over these connections run the allgathers and minima that node/ needs. Both sides
 * check the other's credentials: all members belong to one user.
 */
#include <errno.h>
#include <poll.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

#include "goal/sched/private.h"

#define JOIN_MAGIC 0x736c6a31u
#define RETRY_MS 2
#define FINISH_NS  (60ull * 1000000000) /* limit for creating the group once all have connected */

struct hello { uint32_t magic; int32_t rank, size; };
struct answer { uint32_t magic; int32_t error; };

struct bootstrap {
	int rank, size, connected;
	uint64_t give_up_ns;
	int listener, *fds; /* rank 0: by rank; others: fds[0] */
};

static socklen_t socket_name(struct sockaddr_un *a, const char *name)
{
	return os_socket_name(a, "sluice-goal-%u-%s", (unsigned)geteuid(), name);
}

/* ---- bytes ------------------------------------------------------------------------------- */

static int wait_fd(const struct bootstrap *m, int fd, short events)
{
	uint64_t now = os_now_ns();
	struct pollfd p = { fd, events, 0 };
	int n;

	if (now >= m->give_up_ns)
		return -ETIMEDOUT;
	n = poll(&p, 1, (int)base_min_u64((m->give_up_ns - now) / 1000000 + 1, 1000));
	return n < 0 && errno != EINTR ? -errno : 0;
}

static int transfer(const struct bootstrap *m, int fd, char *at, size_t bytes, bool is_send)
{
	while (bytes) {
		ssize_t n = is_send ? send(fd, at, bytes, MSG_NOSIGNAL | MSG_DONTWAIT)
				    : recv(fd, at, bytes, MSG_DONTWAIT);
		int ret;

		if (!n || (n < 0 && errno == EPIPE))
			return -ECONNRESET; /* the peer has died or given up */
		if (n < 0 && errno != EAGAIN && errno != EINTR)
			return -errno;
		if (n > 0) {
			at += n;
			bytes -= (size_t)n;
			continue;
		}
		ret = wait_fd(m, fd, is_send ? POLLOUT : POLLIN);
		if (ret)
			return ret;
	}
	return 0;
}

static int put(const struct bootstrap *m, int fd, const void *data, size_t bytes)
{
	return transfer(m, fd, (char *)data, bytes, true);
}

static int get(const struct bootstrap *m, int fd, void *data, size_t bytes)
{
	return transfer(m, fd, data, bytes, false);
}

/* ---- collective calls for node/ ---------------------------------------------------------- */

static int allgather(void *ctx, const void *in, size_t bytes, void *out)
{
	struct bootstrap *m = ctx;
	size_t all = bytes * (size_t)m->size;
	int ret = 0;

	if (m->rank) {
		ret = put(m, m->fds[0], in, bytes);
		return ret ? ret : get(m, m->fds[0], out, all);
	}
	memcpy(out, in, bytes);
	for (int r = 1; r < m->size && !ret; r++)
		ret = get(m, m->fds[r], (char *)out + bytes * (size_t)r, bytes);
	for (int r = 1; r < m->size && !ret; r++)
		ret = put(m, m->fds[r], out, all);
	return ret;
}

static int allreduce_min(void *ctx, int64_t in, int64_t *out)
{
	struct bootstrap *m = ctx;
	int64_t *all = calloc((size_t)m->size, sizeof *all);
	int ret = all ? allgather(ctx, &in, sizeof in, all) : -ENOMEM;

	*out = in;
	for (int r = 0; r < m->size && !ret; r++)
		*out = all[r] < *out ? all[r] : *out;
	free(all);
	return ret;
}

/* ---- meeting ----------------------------------------------------------------------------- */

/* A rank that has given up, or died, after it had connected may come again. */
static void drop_ended(struct bootstrap *m, int rank)
{
	char byte;

	if (m->fds[rank] < 0 || recv(m->fds[rank], &byte, 1, MSG_PEEK | MSG_DONTWAIT))
		return;
	close(m->fds[rank]);
	m->fds[rank] = -1;
	m->connected--;
}

/* Reads the rank of a process that has connected. Answers an error at once; release_all() answers
 * the others. */
static int accept_rank(struct bootstrap *m, int fd)
{
	struct bootstrap hurry = *m;
	struct hello h = { 0 };
	int ret;

	hurry.give_up_ns = base_min_u64(
		/* a process that is no member sends nothing */
		m->give_up_ns, os_now_ns() + 1000000000ull);
	ret = os_socket_peer(fd);
	if (ret >= 0)
		ret = get(&hurry, fd, &h, sizeof h);
	if (!ret && (h.magic != JOIN_MAGIC || h.size != m->size || h.rank < 1 || h.rank >= m->size))
		ret = -EINVAL;
	if (!ret)
		drop_ended(m, h.rank);
	if (!ret && m->fds[h.rank] >= 0)
		ret = -EEXIST;
	if (ret) {
		put(&hurry, fd, &(struct answer){ JOIN_MAGIC, ret }, sizeof(struct answer));
		return ret;
	}
	m->fds[h.rank] = fd;
	m->connected++;
	return 0;
}

/* Tells all ranks that all have come. Returns: 1: some have gone; 0; an error. */
static int release_all(struct bootstrap *m)
{
	const struct answer go = { JOIN_MAGIC, 0 };
	int ret = 0;

	for (int r = 1; r < m->size; r++)
		drop_ended(m, r);
	if (m->connected < m->size)
		return 1;
	for (int r = 1; r < m->size && !ret; r++)
		ret = put(m, m->fds[r], &go, sizeof go);
	return ret;
}

/* Is there only nobody to accept? Other errors, as of descriptors that have run out, do not end by
 * waiting at the listener. */
static bool is_passing(int error)
{
	return error == EAGAIN || error == EINTR || error == ECONNABORTED;
}

static int bootstrap_root(struct bootstrap *m, const char *name)
{
	struct sockaddr_un a;
	socklen_t len = socket_name(&a, name);
	int ret;

	m->connected = 1;
	m->listener = os_socket_listen(SOCK_STREAM | SOCK_NONBLOCK, &a, len);
	if (m->listener < 0)
		return m->listener;
	while (m->connected < m->size || (ret = release_all(m)) > 0) {
		int fd = accept4(m->listener, NULL, NULL, SOCK_CLOEXEC);

		if (fd < 0) {
			ret = is_passing(errno) ? wait_fd(m, m->listener, POLLIN) : -errno;
			if (ret)
				return ret;
			continue;
		}
		if (accept_rank(m, fd))
			close(fd);
	}
	return ret;
}

static int bootstrap_connect(struct bootstrap *m, const char *name)
{
	struct hello h = { JOIN_MAGIC, m->rank, m->size };
	struct sockaddr_un a;
	socklen_t len = socket_name(&a, name);
	struct answer answer;
	int ret;

	for (;;) {
		int fd = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0);

		if (fd < 0)
			return -errno;
		m->fds[0] = fd;
		if (!connect(fd, (struct sockaddr *)&a, len))
			break;
		ret = -errno;
		close(fd);
		m->fds[0] = -1;
		if (ret != -ECONNREFUSED && ret != -EAGAIN && ret != -EINTR)
			return ret;
		if (os_now_ns() > m->give_up_ns)
			return -ETIMEDOUT;
		poll(NULL, 0, RETRY_MS);
	}
	ret = os_socket_peer(m->fds[0]);
	if (ret >= 0)
		ret = put(m, m->fds[0], &h, sizeof h);
	if (!ret)
		ret = get(m, m->fds[0], &answer, sizeof answer);
	if (!ret && answer.magic != JOIN_MAGIC)
		ret = -EPROTO;
	return ret ? ret : answer.error;
}

static void bootstrap_close(struct bootstrap *m)
{
	if (m->listener >= 0)
		close(m->listener);
	for (int r = 0; m->fds && r < m->size; r++)
		if (m->fds[r] >= 0)
			close(m->fds[r]);
	free(m->fds);
}

static const char *explain(int ret)
{
	return ret == -EADDRINUSE   ? "another group of this name is being made"
	       : ret == -EEXIST     ? "this rank has joined already; do two jobs use one name?"
	       : ret == -EINVAL     ? "the ranks disagree about their number"
	       : ret == -EPERM      ? "the name belongs to another user"
	       : ret == -ETIMEDOUT  ? "not all ranks joined in time"
	       : ret == -ECONNRESET ? "a rank gave up or died"
				    : strerror(-ret);
}

int sched_join(const char *name, int rank, int size, uint64_t timeout_ns, struct sched_group **out)
{
	uint64_t now = os_now_ns();
	struct bootstrap m = { .rank = rank, .size = size, .listener = -1 };
	struct node_oob oob = { .ctx = &m, .rank = rank, .size = size, .allgather = allgather,
				.allreduce_min = allreduce_min };
	int ret;

	*out = NULL;
	if (size < 1 || rank < 0 || rank >= size || !name[0] || strlen(name) > 64)
		return -EINVAL;
	m.give_up_ns = timeout_ns < UINT64_MAX - now ? now + timeout_ns : UINT64_MAX;
	m.fds = malloc((size_t)size * sizeof *m.fds);
	if (!m.fds)
		return -ENOMEM;
	for (int r = 0; r < size; r++)
		m.fds[r] = -1;
	ret = rank ? bootstrap_connect(&m, name) : bootstrap_root(&m, name);
	if (m.listener >= 0)
		close(m.listener); /* the name is free again */
	m.listener = -1;
	if (ret) {
		base_log(BASE_LOG_ERROR, "sched", "group \"%s\", rank %d of %d: %s", name, rank,
			 size, explain(ret));
		bootstrap_close(&m);
		return ret;
	}
	m.give_up_ns = os_now_ns() + FINISH_NS;
	ret = sched_group_create(&oob, out);
	bootstrap_close(&m);
	return !ret && !*out ? -ENOTSUP : ret;
}
