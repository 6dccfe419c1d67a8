/* SPDX-License-Identifier: BSD-3-Clause */
/* Messages between the ranks and the worker. */
#include <errno.h>
#include <poll.h>
#include <stddef.h>
#include <stdio.h>
#include <string.h>
#include <sys/uio.h>

#include "worker/private.h"

union passed { char buf[CMSG_SPACE(sizeof(int))]; struct cmsghdr align; };

socklen_t worker_socket_name(struct sockaddr_un *a, int pid, uint64_t id)
{
	int n;

	memset(a, 0, sizeof *a);
	a->sun_family = AF_UNIX;
	n = snprintf(a->sun_path + 1, sizeof a->sun_path - 1, "sluice-worker-%d-%016llx", pid,
		     (unsigned long long)id);
	return (socklen_t)(offsetof(struct sockaddr_un, sun_path) + 1 + (size_t)n);
}

int worker_send(int fd, const void *m, size_t bytes, int passed_fd)
{
	union passed control = { { 0 } };
	struct iovec iov = { (void *)m, bytes };
	struct msghdr msg = { .msg_iov = &iov, .msg_iovlen = 1 };
	ssize_t n;

	if (passed_fd >= 0) {
		struct cmsghdr *c;

		msg.msg_control = control.buf;
		msg.msg_controllen = sizeof control.buf;
		c = CMSG_FIRSTHDR(&msg);
		c->cmsg_level = SOL_SOCKET;
		c->cmsg_type = SCM_RIGHTS;
		c->cmsg_len = CMSG_LEN(sizeof(int));
		memcpy(CMSG_DATA(c), &passed_fd, sizeof passed_fd);
	}
	do
		n = sendmsg(fd, &msg, MSG_NOSIGNAL);
	while (n < 0 && errno == EINTR);
	return n < 0 ? -errno : 0;
}

ssize_t worker_receive(int fd, void *m, size_t cap, int timeout_ms, int *out_fd)
{
	union passed control;
	struct iovec iov = { m, cap };
	struct msghdr msg = { .msg_iov = &iov, .msg_iovlen = 1, .msg_control = control.buf,
			      .msg_controllen = sizeof control.buf };
	struct pollfd p = { fd, POLLIN, 0 };
	uint64_t until = os_now_ns() + (uint64_t)timeout_ms * 1000000u, now;
	struct cmsghdr *c;
	ssize_t n;

	while ((n = poll(&p, 1, timeout_ms)) < 0 && errno == EINTR) {
		now = os_now_ns();
		timeout_ms = now < until ? (int)((until - now) / 1000000u) : 0;
	}
	if (n <= 0)
		return n < 0 ? -errno : -ETIMEDOUT;
	*out_fd = -1;
	n = recvmsg(fd, &msg, MSG_CMSG_CLOEXEC | MSG_DONTWAIT);
	if (n < 0)
		return -errno;
	c = CMSG_FIRSTHDR(&msg);
	if (c && c->cmsg_level == SOL_SOCKET && c->cmsg_type == SCM_RIGHTS &&
	    c->cmsg_len == CMSG_LEN(sizeof(int)))
		memcpy(out_fd, CMSG_DATA(c), sizeof(int));
	return n;
}
