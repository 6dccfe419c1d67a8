/* SPDX-License-Identifier: BSD-3-Clause */
/* MPI calls right after a collective: on its buffer, beside it, over it, and while many are under
 * way. */
#include "early.h"

#include <dlfcn.h>

enum { TAG = 7 };

static int next_rank(void)
{
	return (rank + 1) % size;
}

static int previous(void)
{
	return (rank + size - 1) % size;
}

/* ---- sends of the buffer ----------------------------------------------------------------- */

/* Bytes that the previous rank sends in a trial of the same kind: the common beginning. */
static size_t common(struct trial *t)
{
	return t->piece;
}

/* The beginning of a rank's buffer. */
static const char *beginning_of(struct trial *t, int r)
{
	bool at_root = !t->gather || r == t->root;

	return early.whole + (at_root ? 0 : (size_t)r * t->piece);
}

static void check_received(struct trial *t, char *got, const char *how)
{
	early_same(t, got, beginning_of(t, previous()), common(t), how);
	memset(got, 0, common(t));
}

static void by_sendrecv(struct trial *t)
{
	char *got = check_alloc(common(t));

	MPI_Sendrecv(t->buf, (int)common(t), MPI_BYTE, next_rank(), TAG, got, (int)common(t),
		     MPI_BYTE, previous(), TAG, MPI_COMM_WORLD, MPI_STATUS_IGNORE);
	check_received(t, got, "MPI_Sendrecv");
	free(got);
}

BEHAVIOUR(sendrecv, 2)
{
	early_trials(by_sendrecv);
}

static void by_isend(struct trial *t)
{
	char *got = check_alloc(common(t));
	MPI_Request r[2];

	for (int way = 0; way < 3; way++) {
		MPI_Irecv(got, (int)common(t), MPI_BYTE, previous(), TAG, MPI_COMM_WORLD, &r[0]);
		if ((way + t->index) % 3 == 0)
			MPI_Isend(t->buf, (int)common(t), MPI_BYTE, next_rank(), TAG,
				  MPI_COMM_WORLD, &r[1]);
		else if ((way + t->index) % 3 == 1)
			MPI_Issend(t->buf, (int)common(t), MPI_BYTE, next_rank(), TAG,
				   MPI_COMM_WORLD, &r[1]);
		else
			MPI_Send_init(t->buf, (int)common(t), MPI_BYTE, next_rank(), TAG,
				      MPI_COMM_WORLD, &r[1]);
		if ((way + t->index) % 3 == 2)
			MPI_Start(&r[1]);
		MPI_Waitall(2, r, MPI_STATUSES_IGNORE);
		if (r[1] != MPI_REQUEST_NULL)
			MPI_Request_free(&r[1]);
		check_received(t, got, "MPI_Isend, MPI_Issend, MPI_Start");
	}
	free(got);
}

BEHAVIOUR(isend_issend_start, 2)
{
	early_trials(by_isend);
}

static void by_send(struct trial *t, int how, MPI_Comm comm)
{
	char *room = NULL;
	int bytes;

	switch (how % 4) {
	case 0:
		MPI_Send(t->buf, (int)common(t), MPI_BYTE, next_rank(), TAG, comm);
		return;
	case 1:
		MPI_Ssend(t->buf, (int)common(t), MPI_BYTE, next_rank(), TAG, comm);
		return;
	case 2:
		MPI_Rsend(t->buf, (int)common(t), MPI_BYTE, next_rank(), TAG, comm);
		return;
	default:
		room = check_alloc(common(t) + MPI_BSEND_OVERHEAD);
		MPI_Buffer_attach(room, (int)common(t) + MPI_BSEND_OVERHEAD);
		MPI_Bsend(t->buf, (int)common(t), MPI_BYTE, next_rank(), TAG, comm);
		MPI_Buffer_detach(&room, &bytes);
		free(room);
	}
}

static void all_sends(struct trial *t)
{
	char *got = check_alloc(common(t));
	MPI_Request r;

	for (int i = 0; i < 4; i++) {
		MPI_Irecv(got, (int)common(t), MPI_BYTE, previous(), TAG, MPI_COMM_WORLD, &r);
		if ((i + t->index) % 4 == 2) /* a ready send: the receive is there */
			MPI_Barrier(MPI_COMM_WORLD);
		by_send(t, i + t->index, MPI_COMM_WORLD);
		MPI_Wait(&r, MPI_STATUS_IGNORE);
		check_received(t, got, "MPI_Send, Ssend, Rsend, Bsend");
	}
	free(got);
}

BEHAVIOUR(send_ssend_rsend_bsend, 2)
{
	early_trials(all_sends);
}

/* Persistent requests from before the collective, started after it. */
static void persistent(struct trial *t)
{
	char *got = check_alloc(common(t));
	MPI_Request r[2];

	MPI_Send_init(t->buf, (int)common(t), MPI_BYTE, next_rank(), TAG, MPI_COMM_WORLD, &r[0]);
	MPI_Recv_init(got, (int)common(t), MPI_BYTE, previous(), TAG, MPI_COMM_WORLD, &r[1]);
	for (int i = 0; i < 3; i++) {
		if (t->receiver && !t->gather)
			memset(t->buf, 0, t->bytes);
		early_collective(t, MPI_COMM_WORLD);
		MPI_Startall(2, r);
		MPI_Waitall(2, r, MPI_STATUSES_IGNORE);
		check_received(t, got, "a persistent request");
	}
	MPI_Request_free(&r[0]);
	MPI_Request_free(&r[1]);
	free(got);
}

BEHAVIOUR(persistent_requests_from_before, 2)
{
	early_trials(persistent);
}

/* Received into right after it was sent by, or received from, a collective. */
static void receive_into(struct trial *t)
{
	size_t bytes = t->piece / 2;
	char *out = check_alloc(bytes);
	MPI_Request r;

	check_fill(out, bytes, check_seed(t->index, 40 + rank));
	if (t->index % 2) {
		MPI_Sendrecv(out, (int)bytes, MPI_BYTE, next_rank(), TAG, t->buf, (int)bytes,
			     MPI_BYTE, previous(), TAG, MPI_COMM_WORLD, MPI_STATUS_IGNORE);
	} else {
		MPI_Irecv(t->buf, (int)bytes, MPI_BYTE, previous(), TAG, MPI_COMM_WORLD, &r);
		MPI_Send(out, (int)bytes, MPI_BYTE, next_rank(), TAG, MPI_COMM_WORLD);
		MPI_Wait(&r, MPI_STATUS_IGNORE);
	}
	/* beginning_of() others is not asked for any more */
	check_fill(t->want, bytes, check_seed(t->index, 40 + previous()));
	free(out);
}

BEHAVIOUR(received_into, 2)
{
	early_trials(receive_into);
}

/* A strided view of the buffer is sent: its extent overlaps, its address alone does not say so. */
static void strided_send(struct trial *t)
{
	size_t blocks = common(t) / 8192;
	char *got = check_alloc(blocks * 4096);
	MPI_Datatype absolute, strided;
	MPI_Aint at;
	int one = 1;

	MPI_Type_vector((int)blocks, 4096, 8192, MPI_BYTE, &strided);
	MPI_Get_address(t->buf, &at);
	MPI_Type_create_hindexed(1, &one, &at, strided, &absolute);
	MPI_Type_commit(&absolute);
	MPI_Type_commit(&strided);
	for (int i = 0; i < 2; i++) {
		MPI_Sendrecv((i + t->index) % 2 ? MPI_BOTTOM : t->buf, 1,
			     (i + t->index) % 2 ? absolute : strided, next_rank(), TAG, got,
			     (int)blocks * 4096, MPI_BYTE, previous(), TAG, MPI_COMM_WORLD,
			     MPI_STATUS_IGNORE);
		for (size_t b = 0; b < blocks; b++)
			if (!early_same(t, got + b * 4096, beginning_of(t, previous()) + b * 8192,
					4096, "strided"))
				break;
	}
	MPI_Type_free(&absolute);
	MPI_Type_free(&strided);
	free(got);
}

BEHAVIOUR(strided_and_absolute_types, 2)
{
	early_trials(strided_send);
}

/* ---- other MPI calls that look at it ----------------------------------------------------- */

static void reductions(struct trial *t)
{
	size_t words = t->piece / 8;
	uint64_t *sum = check_alloc(words * 8), *want = check_alloc(words * 8);
	int from = t->gather ? t->root : 0;

	memset(want, 0, words * 8);
	for (int r = 0; r < size; r++) {
		const char *in = beginning_of(t, r);

		for (size_t i = 0; i < words; i++) {
			uint64_t w;

			memcpy(&w, in + i * 8, 8);
			want[i] += w;
		}
	}
	if (t->index % 2) {
		MPI_Allreduce(t->buf, sum, (int)words, MPI_UINT64_T, MPI_SUM, MPI_COMM_WORLD);
	} else {
		MPI_Reduce(t->buf, sum, (int)words, MPI_UINT64_T, MPI_SUM, from, MPI_COMM_WORLD);
		MPI_Bcast(sum, (int)words, MPI_UINT64_T, from, MPI_COMM_WORLD);
	}
	early_same(t, sum, want, words * 8, "a reduction");
	free(sum);
	free(want);
}

BEHAVIOUR(reduced, 2)
{
	early_trials(reductions);
}

static void packed(struct trial *t)
{
	char *room = check_alloc(t->bytes);
	double local[10];
	int at = 0;

	MPI_Pack(t->buf, (int)t->bytes, MPI_BYTE, room, (int)t->bytes, &at, MPI_COMM_WORLD);
	early_same(t, room, t->want, t->bytes, "MPI_Pack");
	memset(room, 3, 1000);
	memset(t->want, 3, 1000);
	at = 0;
	MPI_Unpack(room, (int)t->bytes, &at, t->buf, 1000, MPI_BYTE, MPI_COMM_WORLD);
	MPI_Reduce_local(local, local, 0, MPI_DOUBLE, MPI_SUM);
	free(room);
}

BEHAVIOUR(packed_and_unpacked, 2)
{
	early_trials(packed);
}

static void window(struct trial *t)
{
	size_t bytes = t->piece / 2;
	char *mine = check_alloc(bytes);
	MPI_Win win;

	check_fill(mine, bytes, check_seed(60, rank));
	MPI_Win_create(t->buf, (MPI_Aint)t->piece, 1, MPI_INFO_NULL, MPI_COMM_WORLD, &win);
	MPI_Win_fence(0, win);
	MPI_Put(mine, (int)bytes, MPI_BYTE, next_rank(), 0, (int)bytes, MPI_BYTE, win);
	MPI_Win_fence(0, win);
	MPI_Win_free(&win);
	check_fill(t->want, bytes, check_seed(60, previous()));
	free(mine);
}

BEHAVIOUR(window_made_of_it, 2)
{
	early_trials_with(window, NULL, FRESH_MAP);
}

/* The buffer was a window before the collective; others read it by RMA afterwards. */
static void window_before(struct trial *t)
{
	size_t bytes = least(common(t), 300000);
	char *got = check_alloc(bytes);
	MPI_Win win;

	MPI_Win_create(t->buf, (MPI_Aint)t->piece, 1, MPI_INFO_NULL, MPI_COMM_WORLD, &win);
	for (int i = 0; i < 2; i++) {
		if (t->receiver && !t->gather)
			memset(t->buf, 0, t->bytes);
		early_collective(t, MPI_COMM_WORLD);
		if (i % 2) {
			MPI_Win_fence(0, win);
			MPI_Get(got, (int)bytes, MPI_BYTE, previous(), 0, (int)bytes, MPI_BYTE,
				win);
			MPI_Win_fence(0, win);
		} else {
			MPI_Barrier(MPI_COMM_WORLD);
			MPI_Win_lock(MPI_LOCK_SHARED, previous(), 0, win);
			MPI_Get(got, (int)bytes, MPI_BYTE, previous(), 0, (int)bytes, MPI_BYTE,
				win);
			MPI_Win_unlock(previous(), win);
			MPI_Barrier(MPI_COMM_WORLD);
		}
		early_same(t, got, beginning_of(t, previous()), bytes, "MPI_Get");
	}
	MPI_Win_free(&win);
	free(got);
}

BEHAVIOUR(window_from_before, 2)
{
	/* windows are looked at by others: never early */
	early_trials_with(window_before, NULL, FRESH_MAP | NEVER_EARLY);
}

static void to_file(struct trial *t)
{
	static char path[200];
	MPI_File f;
	char *got;

	snprintf(path, sizeof(path), "%s/early-%d-%d", getenv("TMPDIR") ? getenv("TMPDIR") : "/tmp",
		 (int)getpid(), rank);
	if (MPI_File_open(MPI_COMM_SELF, path,
			  MPI_MODE_CREATE | MPI_MODE_RDWR | MPI_MODE_DELETE_ON_CLOSE, MPI_INFO_NULL,
			  &f)) {
		check_fail("MPI_File_open");
		return;
	}
	got = check_alloc(t->bytes);
	MPI_File_write_at(f, 0, t->buf, (int)t->bytes, MPI_BYTE, MPI_STATUS_IGNORE);
	MPI_File_read_at(f, 0, got, (int)t->bytes, MPI_BYTE, MPI_STATUS_IGNORE);
	early_same(t, got, t->want, t->bytes, "MPI_File_write_at");
	check_fill(t->want, 5000, 99);
	MPI_File_write_at(f, 0, t->want, 5000, MPI_BYTE, MPI_STATUS_IGNORE);
	MPI_File_read_at(f, 0, t->buf, 5000, MPI_BYTE, MPI_STATUS_IGNORE);
	MPI_File_close(&f);
	free(got);
}

BEHAVIOUR(file_written_and_read_by_the_mpi, 2)
{
	early_trials(to_file);
}

static void nothing(struct trial *t)
{
	int flag;

	MPI_Iprobe(MPI_ANY_SOURCE, 99, MPI_COMM_WORLD, &flag, MPI_STATUS_IGNORE);
	EXPECT(!flag);
	EXPECT(MPI_Wtime() >= 0);
}

typedef int pack_external_c(const char *, const void *, MPI_Count, MPI_Datatype, void *, MPI_Count,
			    MPI_Count *);

/* Found by name, as bindings do: there is one, also where the library has none. */
static void by_pack_external_c(struct trial *t)
{
	pack_external_c *pack = (pack_external_c *)dlsym(RTLD_DEFAULT, "MPI_Pack_external_c");
	char *got = check_alloc(common(t));
	MPI_Count at = 0;

	if (pack) {
		EXPECT(!pack("external32", t->buf, (MPI_Count)common(t), MPI_BYTE, got,
			     (MPI_Count)common(t), &at));
		EXPECT(at == (MPI_Count)common(t));
		early_same(t, got, t->want, common(t), "MPI_Pack_external_c");
	}
	free(got);
}

BEHAVIOUR(functions_that_the_library_may_lack, 2)
{
	early_trials(by_pack_external_c);
}

BEHAVIOUR(calls_that_do_not_concern_it, 2)
{
	early_trials(nothing);
}

static void barrier(struct trial *t)
{
	MPI_Barrier(MPI_COMM_WORLD);
}

BEHAVIOUR(barrier_first, 2)
{
	early_trials(barrier);
}

/* The sender tells by a message that it has written its buffer anew: the data had been taken
 * before. */
static void told_by_message(struct trial *t)
{
	int token = 1;

	if (!t->receiver) {
		memset(t->buf, 0x33, t->bytes);
		memset(t->want, 0x33, t->gather ? t->bytes : 0);
	}
	if (!t->gather && rank == t->root)
		for (int r = 0; r < size; r++)
			if (r != rank)
				MPI_Send(&token, 1, MPI_INT, r, TAG, MPI_COMM_WORLD);
	if (!t->gather && rank != t->root)
		MPI_Recv(&token, 1, MPI_INT, t->root, TAG, MPI_COMM_WORLD, MPI_STATUS_IGNORE);
	if (!t->gather && rank == t->root)
		memset(t->want, 0x33, t->bytes);
}

BEHAVIOUR(sender_writes_and_tells, 2)
{
	early_trials(told_by_message);
}

int main(int argc, char **argv)
{
	return check_main(argc, argv, MPI_THREAD_SINGLE);
}
