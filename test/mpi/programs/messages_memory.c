/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Random messages of all modes from memory that is advised, protected, forked and cut at its edges
 * while they are on their way, and freed, moved and emptied between them.
 *
 * All ranks draw the same messages from HARNESS_SEED; what a sender's memory holds follows from its
 * rank, its buffer and the step.
 *
 * Run alone: HARNESS_SEED=7 HARNESS_STEPS=200 mpiexec -n 3 sluice run messages_memory
 */
#include "check.h"

#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

enum { KIB = 1 << 10, MIB = 1 << 20, PAGE = 4096 };
enum { BUFFERS = 4, BYTES = 4 * MIB, MESSAGES = 12, BSEND_BYTES = 64 * MIB };

static uint64_t common; /* state of the generator of all ranks */

static uint64_t draw(uint64_t below) { return check_random(&common) % below; }

/* ---- memory ------------------------------------------------------------------------------- */

enum memory_kind { HEAP, MAPPED, MOVED, MEMORY_KINDS };

static struct buffer {
	enum memory_kind kind;
	char *mapping, *at; /* one page before and one behind, if it is a mapping of its own */
	bool is_cut;        /* these pages are gone */
} buffers[BUFFERS];

static char *map_pages(size_t bytes)
{
	char *p = mmap(NULL, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);

	if (p == MAP_FAILED)
		MPI_Abort(MPI_COMM_WORLD, 1);
	return p;
}

static void buffer_get(struct buffer *b)
{
	*b = (struct buffer){ .kind = draw(MEMORY_KINDS) };
	if (b->kind == HEAP) {
		b->at = check_alloc(BYTES);
		return;
	}
	b->mapping = map_pages(BYTES + 2 * PAGE);
	b->at = b->mapping + PAGE;
}

static void buffer_put(struct buffer *b)
{
	if (b->kind == HEAP)
		free(b->at);
	else if (b->is_cut)
		munmap(b->at, BYTES);
	else
		munmap(b->mapping, BYTES + 2 * PAGE);
}

static uint64_t word_of(uint64_t seed, uint64_t k)
{
	return (k + seed * 0x9e3779b97f4a7c15ull) * 0xbf58476d1ce4e5b9ull;
}

static uint64_t seed_of(uint64_t step, int who, int buffer)
{
	return (step * 64 + (uint64_t)who) * BUFFERS + (uint64_t)buffer + 1;
}

static void fill(char *p, size_t from, size_t bytes, uint64_t seed)
{
	for (size_t k = from / 8; k < (from + bytes + 7) / 8; k++)
		((uint64_t *)p)[k] = word_of(seed, k);
}

static bool is_filled(const char *p, size_t from, size_t bytes, uint64_t seed)
{
	for (size_t i = 0; i < bytes; i += 8) {
		uint64_t want = word_of(seed, (from + i) / 8);

		if (memcmp(p + i, &want, bytes - i < 8 ? bytes - i : 8))
			return false;
	}
	return true;
}

/* Nothing may change in the buffer while messages are on their way, but all of this is allowed. */
static void disturb(struct buffer *b)
{
	char *at = (char *)(((uintptr_t)b->at + PAGE - 1) / PAGE * PAGE);
	size_t bytes = BYTES - 2 * PAGE;

	switch (draw(16)) {
	case 0:
		madvise(at, bytes, draw(2) ? MADV_HUGEPAGE : MADV_NOHUGEPAGE);
		break;
	case 1:
		EXPECT(!mprotect(at, bytes, PROT_READ));
		EXPECT(!mprotect(at, bytes, PROT_READ | PROT_WRITE));
		break;
	case 2:
		if (!fork())
			_exit(0);
		break;
	case 3:
		if (b->kind != HEAP && !b->is_cut) {
			munmap(b->mapping, PAGE);
			munmap(b->at + BYTES, PAGE);
			b->is_cut = true;
		}
		break;
	case 4:
		madvise(at, bytes, draw(2) ? MADV_WILLNEED : MADV_COLD);
		break;
	}
}

/* Between messages the memory goes, moves, or loses its bytes. */
static void change(struct buffer *b)
{
	char *at = (char *)(((uintptr_t)b->at + PAGE - 1) / PAGE * PAGE);
	size_t bytes = BYTES - 2 * PAGE, part = (1 + draw(64)) * PAGE;
	char *to;

	switch (draw(10)) {
	case 0:
		buffer_put(b);
		buffer_get(b);
		break;
	case 1:
		madvise(at, bytes, MADV_DONTNEED);
		break;
	case 2:
		madvise(at + part, part, MADV_DONTNEED);
		break;
	case 3:
		madvise(at, bytes, MADV_FREE);
		break;
	case 4:
		if (b->kind != MOVED)
			break;
		/* to a given address would not be understood by UCX, which Debian's MPICH uses */
		to = mremap(b->at, BYTES, 2 * BYTES, MREMAP_MAYMOVE);
		if (to == MAP_FAILED)
			break; /* advice has split the mapping */
		if (!b->is_cut) {
			munmap(b->mapping, PAGE);
			munmap(b->at + BYTES, PAGE);
		}
		munmap(to + BYTES, BYTES);
		b->at = to;
		b->is_cut = true;
		break;
	}
}

/* ---- messages ----------------------------------------------------------------------------- */

enum mode { STANDARD, SYNCHRONOUS, BUFFERED, READY, PERSISTENT, MODES };
enum receive { POSTED, ANY_SOURCE, PROBED, MATCHED, MATCHED_LATER, RECEIVES };

static struct message {
	int from, to, buffer;
	size_t at, bytes;
	enum mode mode;
	enum receive receive;
	char *into;
	MPI_Request send, recv;
} messages[MESSAGES];

static size_t some_bytes(void)
{
	size_t most = (size_t)1 << (6 + draw(17));

	return draw(4) ? 1 + draw(most) : most;
}

static void message_draw(struct message *m)
{
	*m = (struct message){ .from = (int)draw((uint64_t)size), .to = (int)draw((uint64_t)size),
			       .buffer = (int)draw(BUFFERS), .bytes = some_bytes(),
			       .mode = draw(MODES), .receive = draw(RECEIVES),
			       .send = MPI_REQUEST_NULL, .recv = MPI_REQUEST_NULL };
	m->at = draw((BYTES - m->bytes) / 8 + 1) * 8;
	if (draw(2)) { /* the same again and again, so that it is adopted */
		m->bytes = draw(2) ? MIB : 48 * KIB;
		m->at = draw(2) * MIB + 16;
	}
	if (m->mode == READY)
		m->receive = draw(2) ? POSTED : ANY_SOURCE;
}

static void message_post(struct message *m, int tag)
{
	if (m->to != rank)
		return;
	m->into = check_alloc(m->bytes + 8);
	memset(m->into, 0, m->bytes + 8);
	if (m->receive <= ANY_SOURCE)
		MPI_Irecv(m->into, (int)m->bytes, MPI_BYTE,
			  m->receive == POSTED ? m->from : MPI_ANY_SOURCE, tag, MPI_COMM_WORLD,
			  &m->recv);
}

static void message_send(struct message *m, int tag)
{
	char *p = buffers[m->buffer].at + m->at;
	int n = (int)m->bytes;

	if (m->from != rank)
		return;
	switch (m->mode) {
	case SYNCHRONOUS:
		MPI_Issend(p, n, MPI_BYTE, m->to, tag, MPI_COMM_WORLD, &m->send);
		break;
	case BUFFERED:
		MPI_Ibsend(p, n, MPI_BYTE, m->to, tag, MPI_COMM_WORLD, &m->send);
		break;
	case READY:
		MPI_Irsend(p, n, MPI_BYTE, m->to, tag, MPI_COMM_WORLD, &m->send);
		break;
	case PERSISTENT:
		MPI_Send_init(p, n, MPI_BYTE, m->to, tag, MPI_COMM_WORLD, &m->send);
		MPI_Start(&m->send);
		break;
	default:
		MPI_Isend(p, n, MPI_BYTE, m->to, tag, MPI_COMM_WORLD, &m->send);
	}
}

static void message_receive(struct message *m, int tag)
{
	int n = -1, found = 0, from = m->receive == PROBED ? MPI_ANY_SOURCE : m->from;
	MPI_Message message;
	MPI_Status s;

	if (m->to != rank || m->receive <= ANY_SOURCE)
		return;
	if (m->receive == PROBED) {
		MPI_Probe(from, tag, MPI_COMM_WORLD, &s);
		MPI_Get_count(&s, MPI_BYTE, &n);
		MPI_Recv(m->into, n, MPI_BYTE, s.MPI_SOURCE, tag, MPI_COMM_WORLD, &s);
	} else if (m->receive == MATCHED) {
		MPI_Mprobe(from, tag, MPI_COMM_WORLD, &message, &s);
		MPI_Get_count(&s, MPI_BYTE, &n);
		MPI_Mrecv(m->into, n, MPI_BYTE, &message, &s);
	} else {
		while (!found)
			MPI_Improbe(from, tag, MPI_COMM_WORLD, &found, &message, &s);
		MPI_Get_count(&s, MPI_BYTE, &n);
		MPI_Imrecv(m->into, n, MPI_BYTE, &message, &m->recv);
	}
	EXPECT(n == (int)m->bytes && s.MPI_SOURCE == m->from);
}

/* A receive that nobody answers. */
static void cancel_one(void)
{
	MPI_Request r;
	MPI_Status s;
	int is_cancelled;
	char c;

	MPI_Irecv(&c, 1, MPI_BYTE, MPI_ANY_SOURCE, 9999, MPI_COMM_WORLD, &r);
	MPI_Cancel(&r);
	MPI_Wait(&r, &s);
	MPI_Test_cancelled(&s, &is_cancelled);
	EXPECT(is_cancelled);
}

static void messages_end(uint64_t step)
{
	MPI_Request all[2 * MESSAGES];

	for (int i = 0; i < MESSAGES; i++) {
		all[2 * i] = messages[i].send;
		all[2 * i + 1] = messages[i].recv;
	}
	MPI_Waitall(2 * MESSAGES, all, MPI_STATUSES_IGNORE);
	for (int i = 0; i < MESSAGES; i++) {
		struct message *m = &messages[i];
		uint64_t seed = seed_of(step, m->from, m->buffer);

		if (m->from == rank && m->mode == PERSISTENT)
			MPI_Request_free(&all[2 * i]);
		if (m->to != rank)
			continue;
		if (!is_filled(m->into, m->at, m->bytes, seed))
			check_fail("step %d: %zu bytes at %zu, mode %d, receive %d", (int)step,
				   m->bytes, m->at, m->mode, m->receive);
		free(m->into);
	}
}

static void reap_children(void)
{
	while (waitpid(-1, NULL, WNOHANG) > 0)
		;
}

BEHAVIOUR(random_messages_from_memory_that_changes, 2)
{
	long steps = check_env("HARNESS_STEPS", 60);
	void *attached = check_alloc(BSEND_BYTES);
	int bytes;

	common = (uint64_t)check_env("HARNESS_SEED", 1) << 20;
	MPI_Buffer_attach(attached, BSEND_BYTES);
	for (int i = 0; i < BUFFERS; i++)
		buffer_get(&buffers[i]);
	for (long step = 0; step < steps; step++) {
		for (int i = 0; i < BUFFERS; i++)
			fill(buffers[i].at, 0, BYTES, seed_of((uint64_t)step, rank, i));
		for (int i = 0; i < MESSAGES; i++) {
			message_draw(&messages[i]);
			message_post(&messages[i], i);
		}
		MPI_Barrier(MPI_COMM_WORLD); /* ready sends may begin */
		for (int i = 0; i < MESSAGES; i++)
			message_send(&messages[i], i);
		for (int i = 0; i < BUFFERS; i++)
			disturb(&buffers[i]);
		for (int i = 0; i < MESSAGES; i++)
			message_receive(&messages[i], i);
		if (draw(4) == 0)
			cancel_one();
		messages_end((uint64_t)step);
		reap_children();
		for (int i = 0; i < BUFFERS && step % 4 == 0; i++)
			change(&buffers[i]);
	}
	MPI_Buffer_detach(&attached, &bytes);
	for (int i = 0; i < BUFFERS; i++)
		buffer_put(&buffers[i]);
	free(attached);
}

int main(int argc, char **argv) { return check_main(argc, argv, MPI_THREAD_SINGLE); }
