/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * turns_random SEED STEPS: what ranks do between messages, in an order that the seed decides:
 * they compute, sleep, write files, fork, read pipes, catch signals, wait and poll. Prints a line a
 * rank, which is the same for the same seed and ranks, and ends with a status of the seed.
 */
#include <mpi.h>
#include <signal.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

enum { LONGEST = 1 << 18, KINDS = 12 };

static int rank, size;
static uint64_t common, own; /* states of two generators: the same in all ranks, and another */
static uint64_t sum;         /* of all that was seen */
static unsigned char out[LONGEST], in[LONGEST];
static volatile sig_atomic_t alarms;

static uint64_t draw(uint64_t *state)
{
	*state = *state * 6364136223846793005u + 1442695040888963407u;
	return *state >> 33;
}

static void see(uint64_t value) { sum = sum * 1000003u + value; }

static void need(int is_so, const char *what)
{
	if (is_so)
		return;
	fprintf(stderr, "rank %d: %s\n", rank, what);
	MPI_Abort(MPI_COMM_WORLD, 99);
}

static long now_us(void)
{
	struct timespec t;

	clock_gettime(CLOCK_MONOTONIC, &t);
	return t.tv_sec * 1000000 + t.tv_nsec / 1000;
}

static void spin(long us)
{
	for (long end = now_us() + us; now_us() < end;)
		;
}

static void see_bytes(const unsigned char *bytes, int n)
{
	uint64_t h = (uint64_t)n;

	for (int i = 0; i < n; i++)
		h = h * 31 + bytes[i];
	see(h);
}

static void fill(int n, int salt)
{
	for (int i = 0; i < n; i++)
		out[i] = (unsigned char)(rank * 37 + salt + i);
}

static void on_alarm(int sig)
{
	(void)sig;
	alarms++;
}

static void await_alarm(void)
{
	struct timespec nap = { .tv_nsec = 1000000 };
	int before = alarms;

	signal(SIGALRM, on_alarm);
	ualarm(500, 0);
	while (alarms == before)
		nanosleep(&nap, NULL);
}

static void use_file(int step)
{
	char name[] = "/tmp/turns-XXXXXX", text[64], back[64] = "";
	int fd = mkstemp(name), n = snprintf(text, sizeof text, "rank %d step %d", rank, step);

	need(fd >= 0 && write(fd, text, (size_t)n) == n, "a file cannot be written");
	need(pread(fd, back, sizeof back, 0) == n && !strcmp(text, back), "a file is another's");
	close(fd);
	unlink(name);
	see_bytes((unsigned char *)back, n);
}

static void fork_child(int step)
{
	int status = 0;
	pid_t child = fork();

	if (!child)
		_exit((rank * 5 + step) % 100);
	need(waitpid(child, &status, 0) == child && WIFEXITED(status), "a child is lost");
	need(WEXITSTATUS(status) == (rank * 5 + step) % 100, "a child's status is another's");
}

static void read_pipe(int step)
{
	char command[64], line[64] = "";
	FILE *pipe;

	snprintf(command, sizeof command, "echo %d", rank * 1000 + step);
	pipe = popen(command, "r");
	need(pipe && fgets(line, sizeof line, pipe) && atoi(line) == rank * 1000 + step,
	     "a pipe brings another's line");
	need(pclose(pipe) == 0, "a command has failed");
}

/* To one rank and from another, with a wait or a loop of tests. */
static void exchange(int n, int shift, int step, int is_polled)
{
	int to = (rank + shift) % size, from = (rank + size - shift) % size, done = 0;
	MPI_Request request[2];

	fill(n, step);
	MPI_Irecv(in, LONGEST, MPI_BYTE, is_polled ? from : MPI_ANY_SOURCE, step, MPI_COMM_WORLD,
		  &request[0]);
	MPI_Isend(out, n, MPI_BYTE, to, step, MPI_COMM_WORLD, &request[1]);
	while (is_polled && !done) {
		spin(20);
		MPI_Testall(2, request, &done, MPI_STATUSES_IGNORE);
	}
	if (!is_polled)
		MPI_Waitall(2, request, MPI_STATUSES_IGNORE);
	for (int i = 0; i < n; i++)
		need(in[i] == (unsigned char)(from * 37 + step + i), "a message has a wrong byte");
	see_bytes(in, n);
}

static void combine(int step)
{
	long mine = rank * 100 + step, total = 0;

	MPI_Allreduce(&mine, &total, 1, MPI_LONG, MPI_SUM, MPI_COMM_WORLD);
	see((uint64_t)total);
}

static void distribute(int n, int root)
{
	fill(n, 3);
	MPI_Bcast(out, n, MPI_BYTE, root, MPI_COMM_WORLD);
	see_bytes(out, n);
}

static void take_step(int step)
{
	int kind = (int)(draw(&common) % KINDS), n = (int)(draw(&common) % LONGEST);
	int shift = 1 + (int)(draw(&common) % (uint64_t)size);
	uint64_t dice = draw(&own);

	n >>= draw(&common) % 18;
	switch (kind) {
	case 0: case 1: exchange(n, shift % size, step, 0); break;
	case 2: exchange(n, shift % size, step, 1); break;
	case 3: combine(step); break;
	case 4: distribute(n, shift % size); break;
	case 5: MPI_Barrier(MPI_COMM_WORLD); break;
	case 6: spin((long)(dice % 300)); break;
	case 7: usleep((useconds_t)(dice % 2000)); break;
	case 8: use_file(step); break;
	case 9: dice % 8 ? spin(10) : fork_child(step); break;
	case 10: dice % 8 ? spin(10) : read_pipe(step); break;
	case 11: dice % 4 ? spin(10) : await_alarm(); break;
	}
}

int main(int argc, char **argv)
{
	uint64_t seed = argc > 1 ? strtoull(argv[1], NULL, 10) : 0;
	int steps = argc > 2 ? atoi(argv[2]) : 100, pid = getpid();

	MPI_Init(&argc, &argv);
	MPI_Comm_rank(MPI_COMM_WORLD, &rank);
	MPI_Comm_size(MPI_COMM_WORLD, &size);
	common = seed;
	own = seed * 31 + (uint64_t)rank;
	for (int i = 0; i < steps; i++)
		take_step(i);
	need(getpid() == pid, "the process has another number");
	MPI_Finalize();
	printf("rank %d: %d steps, %016llx\n", rank, steps, (unsigned long long)sum);
	return seed % 3 ? 0 : 1 + (int)(seed % 50);
}
