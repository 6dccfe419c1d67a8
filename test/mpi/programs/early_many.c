/* SPDX-License-Identifier: BSD-3-Clause */
/* Several collectives at once: beside each other, over each other, on many communicators. */
#include "early.h"

#include <sys/syscall.h>
#include <sys/utsname.h>

enum { SLICE = 61000, MANY = 200, COMMS = 5 };

static char *area; /* MANY slices, or whatever a behaviour makes of it */

static void begin(void)
{
	if (!area)
		area = (char *)early_map(MANY * SLICE + PAGE) + 100;
}

static void fill_if(bool sender, char *at, size_t bytes, uint64_t seed)
{
	if (sender)
		check_fill(at, bytes, seed);
	else
		memset(at, 0, bytes);
}

static void maybe_late(int round)
{
	MPI_Barrier(MPI_COMM_WORLD);
	if (round % 3 && rank == round % 3 % size)
		early_sleep_us(1000);
}

/* n slices in flight, looked at in another order than they were sent in. */
static void in_flight(int n, int step, size_t bytes, MPI_Comm *comms, int count)
{
	for (int round = 0; round < 3; round++) {
		for (int i = 0; i < n; i++)
			fill_if(rank == i % size, area + i * SLICE, bytes, check_seed(round, i));
		maybe_late(round);
		for (int i = 0; i < n; i++)
			EXPECT(!MPI_Bcast(area + i * SLICE, (int)bytes, MPI_BYTE, i % size,
					  comms[i % count]));
		for (int k = 0; k < n; k++) {
			int i = k * step % n;

			if (!check_same(area + i * SLICE, bytes, check_seed(round, i), "slice"))
				return;
		}
	}
}

BEHAVIOUR(sixty_four_in_flight, 2)
{
	MPI_Comm world = MPI_COMM_WORLD;

	begin();
	in_flight(64, 37, SLICE, &world, 1);
}

BEHAVIOUR(two_hundred_in_flight, 2)
{
	MPI_Comm world = MPI_COMM_WORLD;

	begin();
	in_flight(MANY, 91, SLICE, &world, 1);
	in_flight(MANY, 199, SLICE - 777, &world, 1);
}

BEHAVIOUR(in_flight_on_several_communicators, 2)
{
	MPI_Comm comms[COMMS];

	begin();
	for (int i = 0; i < COMMS; i++)
		MPI_Comm_dup(MPI_COMM_WORLD, &comms[i]);
	in_flight(100, 37, SLICE, comms, COMMS);
	in_flight(64, 63, SLICE, comms, COMMS);
	for (int i = 0; i < COMMS; i++)
		MPI_Comm_free(&comms[i]);
}

/* Freed with data under way; the buffers are looked at afterwards. */
BEHAVIOUR(communicators_freed_meanwhile, 2)
{
	MPI_Comm comms[COMMS];
	size_t bytes = 600001;

	begin();
	for (int round = 0; round < 4; round++) {
		for (int i = 0; i < COMMS; i++) {
			MPI_Comm_dup(MPI_COMM_WORLD, &comms[i]);
			fill_if(rank == i % size, area + (size_t)i * bytes, bytes,
				check_seed(round, i));
		}
		maybe_late(round);
		for (int i = 0; i < COMMS; i++) {
			MPI_Bcast(area + (size_t)i * bytes, (int)bytes, MPI_BYTE, i % size,
				  comms[i]);
			if (round % 2)
				MPI_Comm_free(&comms[i]);
		}
		for (int i = COMMS - 1; i >= 0 && !(round % 2); i--)
			MPI_Comm_free(&comms[i]);
		for (int i = 0; i < COMMS; i++)
			check_same(area + (size_t)i * bytes, bytes, check_seed(round, i),
				   "afterwards");
	}
}

/* Ranks look at their buffers in different orders: nobody may wait for one who waits for him. */
BEHAVIOUR(touched_in_different_orders, 2)
{
	MPI_Comm comms[COMMS];
	size_t bytes = 700000;

	begin();
	for (int i = 0; i < COMMS; i++)
		MPI_Comm_dup(MPI_COMM_WORLD, &comms[i]);
	for (int round = 0; round < 6; round++) {
		for (int i = 0; i < COMMS; i++)
			fill_if(rank == (i + round) % size, area + (size_t)i * bytes, bytes,
				check_seed(round, i));
		maybe_late(round);
		for (int i = 0; i < COMMS; i++)
			MPI_Bcast(area + (size_t)i * bytes, (int)bytes, MPI_BYTE,
				  (i + round) % size, comms[i]);
		for (int k = 0; k < COMMS; k++) {
			int i = rank % 2 ? COMMS - 1 - k : k;

			check_same(area + (size_t)i * bytes, bytes, check_seed(round, i),
				   "in its order");
			area[(size_t)i * bytes] = 1;
		}
	}
	for (int i = 0; i < COMMS; i++)
		MPI_Comm_free(&comms[i]);
}

/* ---- buffers that meet ------------------------------------------------------------------- */

enum { HALF = 1 << 20 };

BEHAVIOUR(adjacent_buffers, 2)
{
	static const size_t cuts[] = { HALF, HALF + 1, HALF - 100, HALF + PAGE };

	begin();
	for (int i = 0; i < 12; i++) {
		size_t cut = cuts[i % 4], end = 2 * HALF;
		int root = i / 4 % 2 ? size - 1 : 0;

		fill_if(rank == root, area, cut, check_seed(i, 1));
		fill_if(rank == size - 1 - root, area + cut, end - cut, check_seed(i, 2));
		maybe_late(i);
		MPI_Bcast(area, (int)cut, MPI_BYTE, root, MPI_COMM_WORLD);
		MPI_Bcast(area + cut, (int)(end - cut), MPI_BYTE, size - 1 - root, MPI_COMM_WORLD);
		check_same(area + cut, end - cut, check_seed(i, 2), "upper part");
		check_same(area, cut, check_seed(i, 1), "lower part");
	}
}

/* The second broadcast goes over part of the first: its bytes are there, the others' are the
 * first's. */
BEHAVIOUR(overlapping_buffers, 2)
{
	char *model = check_alloc(2 * HALF);

	begin();
	for (int i = 0; i < 12; i++) {
		size_t at = (size_t)i * 54321 + 7, bytes = HALF + (size_t)i * 1111;
		int root = i % size, second = (i + i / 2) % size;

		fill_if(rank == root, area, 2 * HALF, check_seed(i, 3));
		maybe_late(i);
		MPI_Bcast(area, 2 * HALF, MPI_BYTE, root, MPI_COMM_WORLD);
		if (i % 2 && rank == second) /* the sender's own new bytes */
			check_fill(area + at, bytes, check_seed(i, 4));
		MPI_Bcast(area + at, (int)bytes, MPI_BYTE, second, MPI_COMM_WORLD);
		check_fill(model, 2 * HALF, check_seed(i, 3));
		if (i % 2)
			check_fill(model + at, bytes, check_seed(i, 4));
		if (memcmp(model, area, 2 * HALF))
			check_fail("round %d: overlapping broadcasts", i);
	}
	free(model);
}

BEHAVIOUR(the_same_buffer_again, 2)
{
	begin();
	for (int i = 0; i < 40; i++) {
		int root = i * 7 / 3 % size;

		if (rank == root)
			check_fill(area, HALF, i);
		if (i % 5 == 4)
			maybe_late(i);
		MPI_Bcast(area, HALF, MPI_BYTE, root, MPI_COMM_WORLD);
		if (i % 4 == 3) /* else the next rank sends on what it has not looked at */
			check_same(area, HALF, i, "the last of several");
	}
}

/* A ring of broadcasts without a look: what one rank received is what it sends next. */
BEHAVIOUR(passed_on_unseen, 2)
{
	begin();
	for (int round = 0; round < 10; round++) {
		fill_if(rank == 0, area, HALF, round);
		maybe_late(round);
		for (int i = 0; i < 7; i++)
			MPI_Bcast(area, HALF, MPI_BYTE, i % size, MPI_COMM_WORLD);
		check_same(area, HALF, round, "passed on");
	}
}

/* Broadcast, then gathered, both under way. */
BEHAVIOUR(broadcast_then_gathered, 2)
{
	size_t piece = 400000;
	char *all = check_alloc(piece * (size_t)size);

	begin();
	for (int i = 0; i < 12; i++) {
		int root = i % size, to = i / 2 % size;

		fill_if(rank == root, area, piece, i);
		if (rank == to)
			memset(all, 0, piece * (size_t)size);
		maybe_late(i);
		MPI_Bcast(area, (int)piece, MPI_BYTE, root, MPI_COMM_WORLD);
		MPI_Gather(area, (int)piece, MPI_BYTE, all, (int)piece, MPI_BYTE, to,
			   MPI_COMM_WORLD);
		for (int r = 0; r < size && rank == to; r++)
			check_same(all + (size_t)r * piece, piece, i, "gathered");
		check_same(area, piece, i, "broadcast");
	}
	free(all);
}

/* One side's type has gaps; the bytes in the gaps are not the collective's. */
BEHAVIOUR(strided_types, 2)
{
	enum { BLOCKS = 300, BLOCK = 3000, STRIDE = 5000 };
	char *plain = check_alloc(BLOCKS * BLOCK);
	MPI_Datatype strided;

	begin();
	MPI_Type_vector(BLOCKS, BLOCK, STRIDE, MPI_BYTE, &strided);
	MPI_Type_commit(&strided);
	for (int i = 0; i < 8; i++) {
		int root = i % size;
		bool gaps = (rank + i / 2) % 2;

		check_fill(plain, BLOCKS * BLOCK, i);
		memset(area, 0x5e, BLOCKS * STRIDE);
		for (int b = 0; b < BLOCKS && gaps && rank == root; b++)
			memcpy(area + b * STRIDE, plain + b * BLOCK, BLOCK);
		if (!gaps && rank != root)
			memset(plain, 0, BLOCKS * BLOCK);
		maybe_late(i);
		if (gaps)
			MPI_Bcast(area, 1, strided, root, MPI_COMM_WORLD);
		else
			MPI_Bcast(plain, BLOCKS * BLOCK, MPI_BYTE, root, MPI_COMM_WORLD);
		for (int b = 0; b < BLOCKS && gaps; b++)
			if (memcmp(area + b * STRIDE, plain + b * BLOCK, BLOCK) ||
			    (b < BLOCKS - 1 && area[b * STRIDE + BLOCK] != 0x5e)) {
				check_fail("round %d, block %d", i, b);
				break;
			}
		check_same(plain, BLOCKS * BLOCK, i, "without gaps");
	}
	MPI_Type_free(&strided);
	free(plain);
}

/* Other memory lies where a block was whose data still moves. */
static void end_and_map_again(char *get(size_t), void end(char *, size_t), size_t bytes)
{
	begin();
	for (int i = 0; i < 6; i++) {
		char *block = get(bytes), *other;
		int root = i % size;

		fill_if(rank == root, block, bytes, i);
		MPI_Bcast(block, (int)bytes, MPI_BYTE, root, MPI_COMM_WORLD);
		MPI_Barrier(MPI_COMM_WORLD);
		if (rank != root)
			early_sleep_us(30000);
		MPI_Bcast(block, (int)bytes, MPI_BYTE, root, MPI_COMM_WORLD);
		end(block, bytes);
		other = early_map(bytes);
		check_fill(other, bytes, 100 + i);
		MPI_Barrier(MPI_COMM_WORLD);
		MPI_Bcast(area, 1, MPI_BYTE, root, MPI_COMM_WORLD); /* retires calls before */
		check_same(other, bytes, 100 + i, "what was mapped afterwards");
		munmap(other, bytes);
	}
}

static char *get_block(size_t bytes) { return check_alloc(bytes); }
static void free_block(char *block, size_t bytes) { free(block); }
static char *map_block(size_t bytes) { return early_map(bytes); }
static void unmap_unnoticed(char *block, size_t bytes) { syscall(SYS_munmap, block, bytes); }

BEHAVIOUR(freed_and_mapped_again, 2) { end_and_map_again(get_block, free_block, 1500000); }

/* By a raw system call, where nothing but the kernel sees it. */
BEHAVIOUR(unmapped_unnoticed_and_mapped_again, 2)
{
	int major = 0, minor = 0;
	struct utsname kernel;

	uname(&kernel);
	sscanf(kernel.release, "%d.%d", &major, &minor);
	if (major * 100 + minor < 611)
		check_skip("before Linux 6.11 nothing tells what is mapped");
	else
		end_and_map_again(map_block, unmap_unnoticed, 1500000 / PAGE * PAGE);
}

/* Nothing of a thousand collectives is ever looked at. */
BEHAVIOUR(never_looked_at, 2)
{
	begin();
	for (int i = 0; i < 1000; i++)
		MPI_Bcast(area + (size_t)(i % 50) * SLICE, SLICE, MPI_BYTE, i % size,
			  MPI_COMM_WORLD);
}

int main(int argc, char **argv)
{
	return check_main(argc, argv, MPI_THREAD_SINGLE);
}
