/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * A shell sends: the head; its descriptors in batches, the working directory first; and one block
 * of strings. The carrier answers by replies.
 */
#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#include "endpoints/private.h"

enum { BATCH_FDS = 250, TEXT_MAX = 64 << 20 }; /* the kernel passes 253 descriptors at a time */

struct head {
	uint32_t version, argc, envc;
	int32_t rank;
	uint64_t text_bytes;
	struct image_file file;
	struct endpoints_state state;
};

union control {
	struct cmsghdr head;
	char room[CMSG_SPACE(BATCH_FDS * sizeof(int))];
};

int message_send(int socket, const void *data, size_t bytes)
{
	for (size_t done = 0; done < bytes;) {
		ssize_t n = send(socket, (const char *)data + done, bytes - done, MSG_NOSIGNAL);

		if (n < 0 && errno == EINTR)
			continue;
		if (n < 0)
			return -errno;
		done += (size_t)n;
	}
	return 0;
}

int message_receive(int socket, void *data, size_t bytes)
{
	for (size_t done = 0; done < bytes;) {
		ssize_t n = recv(socket, (char *)data + done, bytes - done, 0);

		if (n < 0 && errno == EINTR)
			continue;
		if (n <= 0)
			return n ? -errno : -EPIPE;
		done += (size_t)n;
	}
	return 0;
}

/* ---- descriptors --------------------------------------------------------------------------- */

static int send_batch(int socket, const int *fds, size_t count)
{
	union control control = { 0 };
	char byte = 0;
	struct iovec iov = { &byte, 1 };
	struct msghdr m = { .msg_iov = &iov, .msg_iovlen = 1, .msg_control = &control,
			    .msg_controllen = CMSG_SPACE(count * sizeof(int)) };

	control.head.cmsg_level = SOL_SOCKET;
	control.head.cmsg_type = SCM_RIGHTS;
	control.head.cmsg_len = CMSG_LEN(count * sizeof(int));
	memcpy(CMSG_DATA(&control.head), fds, count * sizeof(int));
	return sendmsg(socket, &m, MSG_NOSIGNAL) == 1 ? 0 : -errno;
}

static int receive_batch(int socket, int *fds, size_t count)
{
	union control control = { 0 };
	char byte;
	struct iovec iov = { &byte, 1 };
	struct msghdr m = { .msg_iov = &iov, .msg_iovlen = 1, .msg_control = &control,
			    .msg_controllen = sizeof control };
	ssize_t n = recvmsg(socket, &m, MSG_CMSG_CLOEXEC);

	if (n != 1)
		return n ? -errno : -EPIPE;
	if (m.msg_controllen < sizeof control.head || control.head.cmsg_type != SCM_RIGHTS)
		return -EBADMSG;
	if ((m.msg_flags & MSG_CTRUNC) || control.head.cmsg_len != CMSG_LEN(count * sizeof(int))) {
		size_t got = (control.head.cmsg_len - CMSG_LEN(0)) / sizeof(int);

		for (size_t i = 0; i < got; i++)
			close(((const int *)CMSG_DATA(&control.head))[i]);
		return -EMFILE;
	}
	memcpy(fds, CMSG_DATA(&control.head), count * sizeof(int));
	return 0;
}

static int send_fds(int socket, const struct endpoints_state *state)
{
	int cwd = open(".", O_PATH | O_DIRECTORY | O_CLOEXEC), rc = cwd < 0 ? -errno : 0;

	if (rc)
		return rc;
	rc = send_batch(socket, &cwd, 1);
	close(cwd);
	for (size_t at = 0, n; !rc && at < state->fd_count; at += n) {
		n = base_min_u64(state->fd_count - at, BATCH_FDS);
		rc = send_batch(socket, state->fds + at, n);
	}
	return rc;
}

static int receive_fds(int socket, struct image_start *start)
{
	uint32_t count = start->state.fd_count;
	int rc = receive_batch(socket, &start->cwd, 1);

	for (size_t at = 0, n; !rc && at < count; at += n) {
		n = base_min_u64(count - at, BATCH_FDS);
		rc = receive_batch(socket, start->received + at, n);
	}
	return rc;
}

/* ---- the program --------------------------------------------------------------------------- */

static char *append(char *at, const char *text) { return stpcpy(at, text) + 1; }

int message_send_start(int socket, const struct endpoints_program *program,
		       const struct image_file *file, const struct endpoints_state *state)
{
	struct head *head = calloc(1, sizeof *head);
	char *text, *at;
	int rc;

	if (!head)
		return -ENOMEM;
	*head = (struct head){ .version = ENDPOINTS_VERSION, .rank = program->rank, .file = *file,
			       .state = *state };
	head->text_bytes = strlen(program->path) + 1;
	for (; program->argv[head->argc]; head->argc++)
		head->text_bytes += strlen(program->argv[head->argc]) + 1;
	for (; program->envp[head->envc]; head->envc++)
		head->text_bytes += strlen(program->envp[head->envc]) + 1;
	text = malloc(head->text_bytes);
	rc = text ? message_send(socket, head, sizeof *head) : -ENOMEM;
	if (!rc)
		rc = send_fds(socket, state);
	if (!rc) {
		at = append(text, program->path);
		for (uint32_t i = 0; i < head->argc; i++)
			at = append(at, program->argv[i]);
		for (uint32_t i = 0; i < head->envc; i++)
			at = append(at, program->envp[i]);
		rc = message_send(socket, text, head->text_bytes);
	}
	free(text);
	free(head);
	return rc;
}

/* Cuts the block of strings into path, argv and envp. Returns: 0 or -EBADMSG. */
static int cut_text(struct image_start *start, char *text)
{
	const char *at = text, *end = text + start->text_bytes;
	uint32_t count = start->argc + start->envc;

	if (start->text_bytes < (uint64_t)count + 1 || end[-1])
		return -EBADMSG;
	start->path = at;
	for (uint32_t i = 0; i < count; i++) {
		at += strlen(at) + 1;
		if (at >= end)
			return -EBADMSG;
		start->argv[i] = at; /* envp follows argv */
	}
	return 0;
}

static int receive_text(int socket, struct image_start *start)
{
	size_t pointers = ((size_t)start->argc + start->envc) * sizeof(char *);
	char *block = malloc(pointers + start->text_bytes);
	int rc;

	if (!block)
		return -ENOMEM;
	start->argv = (const char **)block;
	start->envp = start->argv + start->argc;
	rc = message_receive(socket, block + pointers, start->text_bytes);
	return rc ? rc : cut_text(start, block + pointers);
}

int message_receive_start(int socket, struct image_start **out)
{
	struct head *head = malloc(sizeof *head);
	struct image_start *start = calloc(1, sizeof *start);
	int rc = head && start ? message_receive(socket, head, sizeof *head) : -ENOMEM;

	if (!rc && (head->version != ENDPOINTS_VERSION || head->text_bytes > TEXT_MAX ||
		    (uint64_t)head->argc + head->envc >= head->text_bytes ||
		    head->state.fd_count > ENDPOINTS_FDS_MAX))
		rc = -EBADMSG;
	if (!rc) {
		start->file = head->file;
		start->state = head->state;
		start->rank = head->rank;
		start->argc = head->argc;
		start->envc = head->envc;
		start->text_bytes = head->text_bytes;
		start->cwd = -1;
		for (int i = 0; i < ENDPOINTS_FDS_MAX; i++)
			start->received[i] = -1;
		rc = receive_fds(socket, start);
		if (!rc)
			rc = receive_text(socket, start);
		if (rc)
			message_free_start(start);
		else
			*out = start;
		start = NULL;
	}
	free(start);
	free(head);
	return rc;
}

void message_free_start(struct image_start *start)
{
	if (start->cwd >= 0)
		close(start->cwd);
	for (uint32_t i = 0; i < start->state.fd_count; i++)
		if (start->received[i] >= 0)
			close(start->received[i]);
	free(start->argv);
	free(start);
}
