/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * first_messages: the time from the first message of a job to the n-th, for several n of one run:
 * 1 to 1,000 messages of one size between two ranks, whose data is written before and read after.
 * bench/first_messages.py launches it with and without Sluice in turn and compares.
 */
#include <mpi.h>
#include <stdlib.h>
#include <string.h>

#include "job.h"

enum { COUNTS = 7 };
static const int counts[COUNTS] = { 1, 2, 5, 10, 30, 100, 1000 };

static void write_lines(char *buf, size_t bytes, int value)
{
	for (size_t i = 0; i < bytes; i += 64)
		buf[i] = (char)value;
}

static uint64_t read_lines(const char *buf, size_t bytes)
{
	uint64_t sum = 0;

	for (size_t i = 0; i < bytes; i += 64)
		sum += (unsigned char)buf[i];
	return sum;
}

static void send_one(char *buf, size_t bytes, int number)
{
	write_lines(buf, bytes, number);
	MPI_Send(buf, (int)bytes, MPI_BYTE, 1 - number % 2, 0, MPI_COMM_WORLD);
}

static void receive_one(char *buf, size_t bytes, int number, int from)
{
	MPI_Recv(buf, (int)bytes, MPI_BYTE, from, 0, MPI_COMM_WORLD, MPI_STATUS_IGNORE);
	if (read_lines(buf, bytes) != bytes / 64 * (unsigned char)number)
		job_die("a message has other data than was sent");
}

/* Message `number`, from 0 on: even ones go to rank 1, odd ones, of a ping-pong, to rank 0. */
static void message(const struct bench *b, char *out, char *in, size_t bytes, int number)
{
	if (b->rank == number % 2)
		send_one(out, bytes, number);
	else
		receive_one(in, bytes, number, number % 2);
}

int main(int argc, char **argv)
{
	struct bench b = { 0 };
	bool is_pingpong = true;
	uint64_t begin, at[COUNTS] = { 0 };
	size_t bytes = 65536;
	char *out, *in, *end;
	const char *v;

	MPI_Init(&argc, &argv);
	for (int i = 1; i < argc; i++) {
		if ((v = job_value(argv[i], "bytes")))
			bytes = bench_parse_bytes(v, &end);
		else if ((v = job_value(argv[i], "pingpong")))
			is_pingpong = atoi(v);
		else
			job_die("arguments: bytes pingpong");
	}
	job_open(&b);
	if (b.ranks != 2)
		job_die("two ranks");
	if (!b.crowded)
		bench_pin(b.rank);
	out = job_memory(bytes);
	in = job_memory(bytes);
	memset(out, 1, bytes);
	memset(in, 1, bytes);
	MPI_Barrier(MPI_COMM_WORLD);
	begin = bench_start(&b);
	for (int i = 0, n = 0; i < COUNTS; i++) {
		for (; n < counts[i]; n++)
			message(&b, out, in, bytes, is_pingpong ? n : 2 * n);
		at[i] = bench_now_ns() - begin;
	}
	for (int i = 0; i < COUNTS; i++) {
		uint64_t ns = bench_max(&b, at[i]);

		if (!b.rank)
			printf("{\"what\": \"first\", \"messages\": %d, \"us\": %.2f}\n", counts[i],
			       (double)ns / 1000);
	}
	MPI_Finalize();
	return 0;
}
