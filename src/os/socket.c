/* SPDX-License-Identifier: BSD-3-Clause */
/* Local sockets between processes of one user. */
#include <errno.h>
#include <poll.h>
#include <stdio.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

#include "os/private.h"

enum { BACKLOG = 4096 };

union passed { char buf[CMSG_SPACE(sizeof(int))]; struct cmsghdr align; };

__attribute__((cold)) uint32_t os_socket_name(struct sockaddr_un *out, const char *fmt, ...)
{
	va_list args;
	int n;

	memset(out, 0, sizeof *out);
	out->sun_family = AF_UNIX;
	va_start(args, fmt);
	n = vsnprintf(out->sun_path + 1, sizeof out->sun_path - 1, fmt, args);
	va_end(args);
	return (uint32_t)(offsetof(struct sockaddr_un, sun_path) + 1 + (size_t)n);
}

__attribute__((cold)) int os_socket_peer(int fd)
{
	struct ucred c;
	socklen_t len = sizeof c;

	if (getsockopt(fd, SOL_SOCKET, SO_PEERCRED, &c, &len))
		return -errno;
	return c.uid == geteuid() ? c.pid : -EPERM;
}

__attribute__((cold))
int os_socket_listen(int type, const struct sockaddr_un *name, uint32_t name_bytes)
{
	int fd = socket(AF_UNIX, type | SOCK_CLOEXEC, 0), err;

	if (fd < 0)
		return -errno;
	if (!bind(fd, (const struct sockaddr *)name, name_bytes) && !listen(fd, BACKLOG))
		return fd;
	err = -errno;
	close(fd);
	return err;
}

__attribute__((cold))
int os_socket_connect(int flags, const struct sockaddr_un *name, uint32_t name_bytes, int pid)
{
	int fd = socket(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC | flags, 0), ret;

	if (fd < 0)
		return -errno;
	ret = connect(fd, (const struct sockaddr *)name, name_bytes) ? -errno : os_socket_peer(fd);
	if (ret == pid) /* the process that made the socket listens */
		return fd;
	close(fd);
	return ret < 0 ? ret : -EPERM;
}

int os_socket_send(int fd, const void *m, size_t bytes, int passed_fd)
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

int64_t os_socket_receive(int fd, void *m, size_t cap, int timeout_ms, int *out_fd)
{
	union passed control;
	struct iovec iov = { m, cap };
	struct msghdr msg = { .msg_iov = &iov, .msg_iovlen = 1, .msg_control = control.buf,
			      .msg_controllen = sizeof control.buf };
	struct pollfd p = { fd, POLLIN, 0 };
	uint64_t until = os_now_ns() + (uint64_t)timeout_ms * 1000000u, now;
	struct cmsghdr *c;
	ssize_t n;

	*out_fd = -1;
	while ((n = poll(&p, 1, timeout_ms)) < 0 && errno == EINTR) {
		now = os_now_ns();
		timeout_ms = now < until ? (int)((until - now) / 1000000u) : 0;
	}
	if (n <= 0)
		return n < 0 ? -errno : -ETIMEDOUT;
	n = recvmsg(fd, &msg, MSG_CMSG_CLOEXEC | MSG_DONTWAIT);
	if (n < 0)
		return -errno;
	c = CMSG_FIRSTHDR(&msg);
	if (c && c->cmsg_level == SOL_SOCKET && c->cmsg_type == SCM_RIGHTS &&
	    c->cmsg_len == CMSG_LEN(sizeof(int)))
		memcpy(out_fd, CMSG_DATA(c), sizeof(int));
	return n;
}
