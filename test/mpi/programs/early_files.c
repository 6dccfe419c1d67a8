/* SPDX-License-Identifier: BSD-3-Clause */
/* Files, pipes and sockets that are written from or read into the buffer of a collective right
 * after it. */
#include "early.h"

#include <aio.h>
#include <fcntl.h>
#include <pthread.h>
#include <sys/sendfile.h>
#include <sys/socket.h>
#include <sys/uio.h>

static int scratch_file(void)
{
	int fd = memfd_create("scratch", 0);

	if (fd < 0)
		check_fail("memfd_create: %s", strerror(errno));
	return fd;
}

/* The file holds the whole buffer, and nothing behind it. */
static void check_file(struct trial *t, int fd, const char *how)
{
	char *got = check_alloc(t->bytes + 1);
	ssize_t n = pread(fd, got, t->bytes + 1, 0);

	if (n != (ssize_t)t->bytes)
		check_fail("trial %d: %s wrote %zd of %zu bytes: %s", t->index, how, n, t->bytes,
			   n < 0 ? strerror(errno) : "");
	else
		early_same(t, got, t->want, t->bytes, how);
	free(got);
}

/* A call that is to move n bytes has done so. */
static bool moved(struct trial *t, const char *how, ssize_t got, size_t n)
{
	if (got == (ssize_t)n)
		return true;
	check_fail("trial %d: %s moved %zd of %zu bytes: %s", t->index, how, got, n,
		   got < 0 ? strerror(errno) : "no error");
	return false;
}

enum { PIECES = 5 };

/* The buffer in pieces, not in order of address. */
static void cut(struct trial *t, struct iovec *iov)
{
	size_t piece = t->bytes / PIECES;

	for (size_t i = 0; i < PIECES; i++) {
		size_t k = i * 2 % PIECES;

		iov[i].iov_base = t->buf + k * piece;
		iov[i].iov_len = k == PIECES - 1 ? t->bytes - k * piece : piece;
	}
}

static void write_out(struct trial *t)
{
	int fd = scratch_file();

	moved(t, "write", write(fd, t->buf, t->bytes), t->bytes);
	check_file(t, fd, "write");
	close(fd);
}

BEHAVIOUR(write_to_a_file, 2)
{
	early_trials(write_out);
}

static void pwrite_out(struct trial *t)
{
	int fd = scratch_file();
	size_t half = t->bytes / 2;

	moved(t, "pwrite", pwrite(fd, t->buf + half, t->bytes - half, (off_t)half),
	      t->bytes - half);
	moved(t, "pwrite", pwrite(fd, t->buf, half, 0), half);
	check_file(t, fd, "pwrite");
	close(fd);
}

BEHAVIOUR(pwrite_to_a_file, 2)
{
	early_trials(pwrite_out);
}

static void writev_out(struct trial *t)
{
	struct iovec iov[PIECES];
	int fd = scratch_file();

	cut(t, iov);
	for (int i = 0; i < PIECES; i++) /* where each belongs */
		moved(t, "pwritev", pwritev(fd, iov + i, 1, (char *)iov[i].iov_base - t->buf),
		      iov[i].iov_len);
	check_file(t, fd, "pwritev");
	iov[0] = (struct iovec){ t->buf, t->bytes / 7 };
	iov[1] = (struct iovec){ t->buf + t->bytes / 7, t->bytes - t->bytes / 7 };
	moved(t, "writev", writev(fd, iov, 2), t->bytes);
	check_file(t, fd, "writev");
	moved(t, "pwritev2", pwritev2(fd, iov, 2, 0, 0), t->bytes);
	close(fd);
}

BEHAVIOUR(writev_to_a_file, 2)
{
	early_trials(writev_out);
}

/* Other contents than the collective's, which the buffer then has to hold. */
static int other_contents(struct trial *t)
{
	int fd = scratch_file();

	check_fill(t->want, t->bytes, check_seed(500, t->index));
	moved(t, "write", write(fd, t->want, t->bytes), t->bytes);
	lseek(fd, 0, SEEK_SET);
	return fd;
}

static void read_in(struct trial *t)
{
	int fd = other_contents(t);

	moved(t, "read", read(fd, t->buf, t->bytes), t->bytes);
	close(fd);
}

BEHAVIOUR(read_from_a_file, 2)
{
	early_trials(read_in);
}

static void pread_in(struct trial *t)
{
	int fd = other_contents(t);
	size_t half = t->bytes / 2;

	moved(t, "pread", pread(fd, t->buf + half, t->bytes - half, (off_t)half), t->bytes - half);
	early_same(t, t->buf + half, t->want + half, t->bytes - half, "pread");
	moved(t, "pread", pread(fd, t->buf, half, 0), half);
	close(fd);
}

BEHAVIOUR(pread_from_a_file, 2)
{
	early_trials(pread_in);
}

static void readv_in(struct trial *t)
{
	struct iovec iov[PIECES];
	int fd = other_contents(t);

	cut(t, iov);
	moved(t, "preadv", preadv(fd, iov, 1, (char *)iov[0].iov_base - t->buf), iov[0].iov_len);
	iov[0] = (struct iovec){ t->buf, t->bytes / 7 };
	iov[1] = (struct iovec){ t->buf + t->bytes / 7, t->bytes - t->bytes / 7 };
	moved(t, "readv", readv(fd, iov, 2), t->bytes);
	moved(t, "preadv2", preadv2(fd, iov, 2, 0, 0), t->bytes);
	close(fd);
}

BEHAVIOUR(readv_from_a_file, 2)
{
	early_trials(readv_in);
}

/* Only a few bytes of the buffer, with others around them that nobody asks for. */
static void read_a_bit(struct trial *t)
{
	char *at = early_at(t, 30), bits[100];
	int fd = scratch_file();

	memset(bits, 7, sizeof(bits));
	write(fd, bits, sizeof(bits));
	lseek(fd, 0, SEEK_SET);
	moved(t, "read", read(fd, at, 1000), sizeof(bits));
	memset(early_want(t, at), 7, sizeof(bits));
	early_same(t, at, early_want(t, at), 1000, "the end of a file");
	lseek(fd, 0, SEEK_END);
	EXPECT(read(fd, t->buf, 10) == 0);
	EXPECT(write(fd, t->buf, 0) == 0);
	close(fd);
}

BEHAVIOUR(read_at_the_end_of_a_file, 2)
{
	early_trials(read_a_bit);
}

/* ---- streams ----------------------------------------------------------------------------- */

struct pump {
	pthread_t thread;
	int fd;
	bool reads;
	char *data; /* private to the thread */
	size_t bytes, done;
};

static void *pump_run(void *arg)
{
	struct pump *p = arg;

	while (p->done < p->bytes) {
		ssize_t n = p->reads ? read(p->fd, p->data + p->done, p->bytes - p->done) :
				       write(p->fd, p->data + p->done, p->bytes - p->done);
		if (n <= 0)
			break;
		p->done += (size_t)n;
	}
	return NULL;
}

/* Another thread at the other end. */
static void pump_start(struct pump *p, int fd, bool reads, const char *data, size_t bytes)
{
	*p = (struct pump){ .fd = fd, .reads = reads, .bytes = bytes, .data = check_alloc(bytes) };
	if (data)
		memcpy(p->data, data, bytes);
	if (pthread_create(&p->thread, NULL, pump_run, p))
		check_fail("pthread_create: %s", strerror(errno));
}

static void pump_end(struct pump *p, struct trial *t, const char *how)
{
	pthread_join(p->thread, NULL);
	if (p->done != p->bytes)
		check_fail("trial %d: %s: %zu of %zu bytes", t->index, how, p->done, p->bytes);
	else if (p->reads)
		early_same(t, p->data, t->want, t->bytes, how);
	free(p->data);
}

static void all_by_write(struct trial *t, int fd, const char *how)
{
	for (size_t done = 0; done < t->bytes;) {
		ssize_t n = write(fd, t->buf + done, t->bytes - done);

		if (n <= 0) {
			moved(t, how, n, t->bytes - done);
			return;
		}
		done += (size_t)n;
	}
}

static void pipe_out(struct trial *t)
{
	struct pump p;
	int fds[2];

	EXPECT(!pipe(fds));
	pump_start(&p, fds[0], true, NULL, t->bytes);
	all_by_write(t, fds[1], "write to a pipe");
	close(fds[1]);
	pump_end(&p, t, "through a pipe");
	close(fds[0]);
}

BEHAVIOUR(write_to_a_pipe, 2)
{
	early_trials(pipe_out);
}

static void pipe_in(struct trial *t)
{
	struct pump p;
	int fds[2];

	check_fill(t->want, t->bytes, check_seed(501, t->index));
	EXPECT(!pipe(fds));
	pump_start(&p, fds[1], false, t->want, t->bytes);
	for (size_t done = 0; done < t->bytes;) {
		ssize_t n = read(fds[0], t->buf + done, t->bytes - done);

		if (n <= 0) {
			moved(t, "read from a pipe", n, t->bytes - done);
			break;
		}
		done += (size_t)n;
	}
	pump_end(&p, t, "into a pipe");
	close(fds[0]);
	close(fds[1]);
}

BEHAVIOUR(read_from_a_pipe, 2)
{
	early_trials(pipe_in);
}

static void send_all(struct trial *t)
{
	struct pump p;
	int fds[2];

	EXPECT(!socketpair(AF_UNIX, SOCK_STREAM, 0, fds));
	pump_start(&p, fds[0], true, NULL, t->bytes);
	moved(t, "send", send(fds[1], t->buf, t->bytes, 0), t->bytes);
	pump_end(&p, t, "through a socket");
	close(fds[0]);
	close(fds[1]);
}

BEHAVIOUR(send_to_a_socket, 2)
{
	early_trials(send_all);
}

static void recv_all(struct trial *t)
{
	struct pump p;
	int fds[2];

	check_fill(t->want, t->bytes, check_seed(502, t->index));
	EXPECT(!socketpair(AF_UNIX, SOCK_STREAM, 0, fds));
	pump_start(&p, fds[1], false, t->want, t->bytes);
	moved(t, "recv", recv(fds[0], t->buf, t->bytes, MSG_WAITALL), t->bytes);
	pump_end(&p, t, "into a socket");
	close(fds[0]);
	close(fds[1]);
}

BEHAVIOUR(recv_from_a_socket, 2)
{
	early_trials(recv_all);
}

static void messages(struct trial *t)
{
	struct iovec iov[PIECES], in[2];
	struct msghdr m = { .msg_iov = iov, .msg_iovlen = PIECES };
	struct pump p;
	int fds[2];
	char *copy = check_alloc(t->bytes);
	size_t done = 0;

	cut(t, iov);
	for (int i = 0; i < PIECES; i++) {
		memcpy(copy + done, early_want(t, iov[i].iov_base), iov[i].iov_len);
		done += iov[i].iov_len;
	}
	EXPECT(!socketpair(AF_UNIX, SOCK_STREAM, 0, fds));
	pump_start(&p, fds[0], true, NULL, t->bytes);
	moved(t, "sendmsg", sendmsg(fds[1], &m, 0), t->bytes);
	pthread_join(p.thread, NULL);
	early_same(t, p.data, copy, t->bytes, "sendmsg");
	free(p.data);
	/* and back, as it is to be */
	pump_start(&p, fds[0], false, copy, t->bytes);
	memcpy(t->want, copy, t->bytes);
	in[0] = (struct iovec){ t->buf, t->bytes / 3 };
	in[1] = (struct iovec){ t->buf + t->bytes / 3, t->bytes - t->bytes / 3 };
	m = (struct msghdr){ .msg_iov = in, .msg_iovlen = 2 };
	moved(t, "recvmsg", recvmsg(fds[1], &m, MSG_WAITALL), t->bytes);
	pump_end(&p, t, "recvmsg");
	free(copy);
	close(fds[0]);
	close(fds[1]);
}

BEHAVIOUR(sendmsg_and_recvmsg, 2)
{
	early_trials(messages);
}

/* Pages of the buffer in a pipe: they are moved on before the buffer is written again. */
static void splice_out(struct trial *t)
{
	int fds[2], other[2], file = scratch_file();
	char *at = early_at(t, 11), got[3 * PAGE];
	struct iovec iov = { at, sizeof(got) };

	EXPECT(!pipe(fds) && !pipe(other));
	moved(t, "vmsplice", vmsplice(fds[1], &iov, 1, 0), sizeof(got));
	moved(t, "tee", tee(fds[0], other[1], sizeof(got), 0), sizeof(got));
	moved(t, "splice", splice(other[0], NULL, file, NULL, sizeof(got), 0), sizeof(got));
	moved(t, "read", read(fds[0], got, sizeof(got)), sizeof(got));
	early_same(t, got, early_want(t, at), sizeof(got), "vmsplice");
	moved(t, "pread", pread(file, got, sizeof(got), 0), sizeof(got));
	early_same(t, got, early_want(t, at), sizeof(got), "tee and splice");
	/* the other way: a pipe that is emptied into the buffer */
	memset(got, 9, sizeof(got));
	write(fds[1], got, sizeof(got));
	iov.iov_base = early_at(t, 22);
	moved(t, "vmsplice in", vmsplice(fds[0], &iov, 1, 0), sizeof(got));
	memset(early_want(t, iov.iov_base), 9, sizeof(got));
	close(fds[0]);
	close(fds[1]);
	close(other[0]);
	close(other[1]);
	close(file);
}

BEHAVIOUR(splice_family, 2)
{
	early_trials(splice_out);
}

/* ---- C library --------------------------------------------------------------------------- */

static void stdio_out(struct trial *t)
{
	int fd = scratch_file();
	FILE *f = fdopen(dup(fd), "w");

	EXPECT(fwrite(t->buf, 1, t->bytes, f) == t->bytes);
	EXPECT(!fclose(f));
	check_file(t, fd, "fwrite");
	close(fd);
}

BEHAVIOUR(fwrite_to_a_file, 2)
{
	early_trials(stdio_out);
}

static void stdio_in(struct trial *t)
{
	int fd = other_contents(t);
	FILE *f = fdopen(fd, "r");

	EXPECT(fread(t->buf, 1, t->bytes, f) == t->bytes);
	fclose(f);
}

BEHAVIOUR(fread_from_a_file, 2)
{
	early_trials(stdio_in);
}

static void print_it(struct trial *t)
{
	char *got = check_alloc(t->bytes + 10);
	int fd = scratch_file(), n;
	FILE *f = fdopen(dup(fd), "w");

	EXPECT(fprintf(f, "%s", t->buf) == (int)t->piece - 1);
	fclose(f);
	moved(t, "pread", pread(fd, got, t->piece, 0), t->piece - 1);
	early_same(t, got, t->want, t->piece - 1, "printf");
	n = snprintf(got, t->bytes + 10, "%.1000s", t->buf);
	EXPECT(n == 1000);
	early_same(t, got, t->want, 1000, "snprintf");
	close(fd);
	free(got);
}

BEHAVIOUR(printf_of_it, 2)
{
	early_trials(print_it);
}

static void print_into(struct trial *t)
{
	char *at = early_at(t, 9), text[40];
	int fd = scratch_file();
	FILE *f = fdopen(fd, "w+");

	snprintf(text, sizeof(text), "line %d\n", t->index);
	sprintf(at, "line %d\n", t->index);
	early_same(t, at, text, strlen(text) + 1, "sprintf");
	memcpy(early_want(t, at), text, strlen(text) + 1);
	fputs(text, f);
	rewind(f);
	at = early_at(t, 19);
	EXPECT(fgets(at, 4000, f) == at);
	early_same(t, at, text, strlen(text) + 1, "fgets");
	memcpy(early_want(t, at), text, strlen(text) + 1);
	fclose(f);
}

BEHAVIOUR(printf_and_fgets_into_it, 2)
{
	early_trials(print_into);
}

static void mapped_file(struct trial *t)
{
	int fd = scratch_file();
	char *map;

	EXPECT(!ftruncate(fd, (off_t)t->bytes));
	map = mmap(NULL, t->bytes, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
	memcpy(map, t->buf, t->bytes);
	check_file(t, fd, "a mapped file");
	check_fill(map, t->bytes, check_seed(503, t->index));
	check_fill(t->want, t->bytes, check_seed(503, t->index));
	memcpy(t->buf, map, t->bytes);
	munmap(map, t->bytes);
	close(fd);
}

BEHAVIOUR(copied_to_a_mapped_file_and_back, 2)
{
	early_trials(mapped_file);
}

/* ---- asynchronous input and output ------------------------------------------------------- */

static bool aio_end(struct trial *t, struct aiocb *c, const char *how)
{
	const struct aiocb *list[] = { c };

	while (aio_error(c) == EINPROGRESS)
		aio_suspend(list, 1, NULL);
	errno = aio_error(c);
	return moved(t, how, aio_return(c), c->aio_nbytes);
}

/* The C library's threads do it, which nobody creates by pthread_create. */
static void posix_aio(struct trial *t)
{
	struct aiocb c = { .aio_fildes = scratch_file(),
			   .aio_buf = t->buf,
			   .aio_nbytes = t->bytes };

	EXPECT(!aio_write(&c));
	if (aio_end(t, &c, "aio_write"))
		check_file(t, c.aio_fildes, "aio_write");
	check_fill(t->want, t->bytes, check_seed(504, t->index));
	pwrite(c.aio_fildes, t->want, t->bytes, 0);
	c.aio_offset = 0;
	EXPECT(!aio_read(&c));
	aio_end(t, &c, "aio_read");
	close(c.aio_fildes);
}

BEHAVIOUR(posix_aio, 2)
{
	early_trials(posix_aio);
}

int main(int argc, char **argv)
{
	return check_main(argc, argv, MPI_THREAD_FUNNELED);
}
