/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Each rank sends the descriptor of its arena over abstract sockets to every rank that may not
 * know the arena yet. Both sides check the credentials of the other (SO_PEERCRED: same user, and
 * the pid that came through MPI), so only processes of the same user and job get a descriptor.
 *
 * One message per connection, sent before it is accepted: no rank waits for a particular other
 * rank, and few descriptors are open at a time for any number of ranks.
 */
#include <errno.h>
#include <poll.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

#include "node/private.h"

#define EXCHANGE_TIMEOUT_NS (30ull * 1000000000)
#define MESSAGE_TIMEOUT_MS 5000

struct arena_message { uint64_t arena_id; int32_t rank, pid; };

static socklen_t socket_name(struct sockaddr_un *a, int pid, uint64_t id)
{
	return os_socket_name(a, "sluice-%d-%016llx", pid, (unsigned long long)id);
}

int exchange_listen(struct exchange *x)
{
	struct sockaddr_un a;
	socklen_t bytes;

	x->id = os_random_u64();
	if (base_fault("socket"))
		return -EACCES;
	bytes = socket_name(&a, getpid(), x->id);
	x->fd = os_socket_listen(SOCK_SEQPACKET | SOCK_NONBLOCK, &a, bytes);
	return x->fd < 0 ? x->fd : 0;
}

void exchange_close(struct exchange *x)
{
	if (x->fd >= 0)
		close(x->fd);
	x->fd = -1;
}

/* Returns: 0, -EAGAIN (try again) or another -errno (final). */
static int send_arena(const struct node_hello *to, int my_rank)
{
	struct arena_message m = { node_arena_id(), my_rank, getpid() };
	struct sockaddr_un a;
	socklen_t bytes = socket_name(&a, to->pid, to->socket_id);
	int fd = os_socket_connect(SOCK_NONBLOCK, &a, bytes, to->pid), ret;

	if (fd < 0)
		return fd == -EMFILE || fd == -ENFILE ? -EAGAIN : fd;
	ret = os_socket_send(fd, &m, sizeof m, region_arena_fd());
	close(fd);
	return ret == -ETOOMANYREFS ? -EAGAIN : ret;
}

/* Returns: 0 with *out_fd and *m, -EAGAIN when nobody connects, or another -errno for a connection
 * from outside the job. */
static int receive_arena(int listener, struct arena_message *m, int *out_fd)
{
	int fd = accept4(listener, NULL, NULL, SOCK_CLOEXEC), pid;
	int64_t n = -1;

	if (fd < 0)
		return errno == EMFILE || errno == ENFILE || errno == EINTR || errno == ECONNABORTED
			       ? -EAGAIN
			       : -errno;
	pid = os_socket_peer(fd);
	if (pid >= 0) /* a peer sends at once, a stranger may never do so */
		n = os_socket_receive(fd, m, sizeof *m, MESSAGE_TIMEOUT_MS, out_fd);
	close(fd);
	if (n == sizeof *m && *out_fd >= 0 && m->pid == pid)
		return 0;
	if (n >= 0 && *out_fd >= 0)
		close(*out_fd);
	return -EPROTO;
}

static int receive_one(struct exchange *x, const struct node_hello *all, int size,
		    struct node_peer **peers, int *missing)
{
	struct arena_message m;
	int fd = -1, err, ret = receive_arena(x->fd, &m, &fd);

	if (ret)
		return ret == -EAGAIN ? ret : 0; /* a stranger's connection is dropped */
	if (m.rank >= 0 && m.rank < size && !peers[m.rank] && all[m.rank].arena_id == m.arena_id &&
	    all[m.rank].pid == m.pid) {
		peers[m.rank] = peer_add(&all[m.rank], fd, &err);
		if (!peers[m.rank])
			ret = -err;
		else
			--*missing;
	}
	close(fd);
	return ret;
}

/* Another thread, in another group with the same rank, may have exchanged arenas by now; then that
 * rank may know this one and send nothing here. */
static void recheck_peers(const struct node_hello *all, int rank, int size,
			  struct node_peer **peers, int *missing)
{
	for (int r = 0; r < size; r++) {
		if (r == rank || peers[r])
			continue;
		peers[r] = peer_find(&all[r]);
		if (peers[r])
			--*missing;
	}
}

__attribute__((cold)) int exchange_run(struct exchange *x, const struct node_hello *all, int rank,
				       int size, struct node_peer **peers)
{
	uint64_t give_up = os_now_ns() + EXCHANGE_TIMEOUT_NS;
	int missing = 0, to_send = 0, next = 0, ret;
	char *send = calloc((size_t)size, 1);

	if (!send)
		return -ENOMEM;
	for (int r = 0; r < size; r++) {
		if (r == rank)
			continue;
		peers[r] = peer_find(&all[r]);
		send[r] = !peers[r] || !atomic_load(&peers[r]->is_mutual);
		missing += !peers[r];
		to_send += send[r];
	}
	ret = 0;
	while ((missing || to_send) && !ret) {
		struct pollfd p = { x->fd, POLLIN, 0 };

		for (int i = 0; i < size && to_send; i++, next = (next + 1) % size) {
			int r = (rank + next) % size; /* each rank starts with another peer */

			if (!send[r])
				continue;
			ret = send_arena(&all[r], rank);
			if (ret == -EAGAIN) {
				ret = 0;
				break;
			}
			if (ret)
				goto out;
			send[r] = 0;
			to_send--;
		}
		if (missing && poll(&p, 1, to_send ? 1 : 10) > 0) {
			do
				ret = receive_one(x, all, size, peers, &missing);
			while (!ret && missing);
			if (ret == -EAGAIN)
				ret = 0;
		}
		if (missing && !ret)
			recheck_peers(all, rank, size, peers, &missing);
		if (!ret && os_now_ns() > give_up)
			ret = -ETIMEDOUT;
	}
	for (int r = 0; r < size && !ret; r++)
		if (r != rank)
			atomic_store(&peers[r]->is_mutual, true);
out:
	free(send);
	return ret;
}
