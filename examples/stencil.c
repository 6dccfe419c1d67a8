/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * A five-point stencil on a periodic grid whose halo exchange is done in three ways: by nonblocking
 * MPI messages, by MPI's neighbourhood collective, and by a GOAL schedule (doc/tutorial-goal.md).
 * All compute the same numbers, bit for bit; the time of each is printed.
 *
 *   mpicc -O2 stencil.c -o stencil $(pkg-config --cflags --libs sluice-goal)
 *   mpiexec -n 4 ./stencil [rows and columns of a rank] [steps of a round] [rounds]
 */
#include <mpi.h>
#include <sluice/goal_mpi.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum side { NORTH, SOUTH, WEST, EAST, SIDES };
static const enum side opposite[SIDES] = { SOUTH, NORTH, EAST, WEST };

/* A rank's part: n x n cells and a frame of one cell, two of them, as a step reads one and writes
 * one. */
struct grid {
	int n, stride;
	double *cells[2];
	int neighbour[SIDES];
	MPI_Comm comm;
};

struct exchange {
	const char *name;
	void (*start)(struct grid *g, int which);
	void (*wait)(struct grid *g, int which);
};

static void fail(const char *what, int error)
{
	fprintf(stderr, "stencil: %s: %s\n", what, strerror(-error));
	MPI_Abort(MPI_COMM_WORLD, 1);
}

static double *cell(double *cells, const struct grid *g, int row, int column)
{
	return cells + (size_t)row * (size_t)g->stride + column;
}

/* The first of the n cells that go to the neighbour, or of the frame that come from it. */
static double *edge(double *cells, const struct grid *g, enum side s, int is_frame)
{
	switch (s) {
	case NORTH: return cell(cells, g, is_frame ? 0 : 1, 1);
	case SOUTH: return cell(cells, g, is_frame ? g->n + 1 : g->n, 1);
	case WEST: return cell(cells, g, 1, is_frame ? 0 : 1);
	default: return cell(cells, g, 1, is_frame ? g->n + 1 : g->n);
	}
}

/* ---- by messages ------------------------------------------------------------------------- */

static MPI_Datatype column_type;
static MPI_Request requests[2 * SIDES];

static MPI_Datatype type_of(enum side s) { return s < WEST ? MPI_DOUBLE : column_type; }
static int count_of(const struct grid *g, enum side s) { return s < WEST ? g->n : 1; }

static void messages_start(struct grid *g, int which)
{
	for (enum side s = 0; s < SIDES; s++)
		MPI_Irecv(edge(g->cells[which], g, s, 1), count_of(g, s), type_of(s),
			  g->neighbour[s], (int)s, g->comm, &requests[s]);
	for (enum side s = 0; s < SIDES; s++)
		MPI_Isend(edge(g->cells[which], g, s, 0), count_of(g, s), type_of(s),
			  g->neighbour[s], (int)opposite[s], g->comm, &requests[SIDES + s]);
}

static void messages_wait(struct grid *g, int which)
{
	(void)g, (void)which;
	MPI_Waitall(2 * SIDES, requests, MPI_STATUSES_IGNORE);
}

/* ---- by the neighbourhood collective ----------------------------------------------------- */

static MPI_Request neighbour_request;

static void neighbours_start(struct grid *g, int which)
{
	static int counts[SIDES];
	static MPI_Datatype types[SIDES];
	static MPI_Aint from[SIDES], to[SIDES];

	for (enum side s = 0; s < SIDES; s++) {
		counts[s] = count_of(g, s);
		types[s] = type_of(s);
		from[s] = (char *)edge(g->cells[which], g, s, 0) - (char *)g->cells[which];
		to[s] = (char *)edge(g->cells[which], g, s, 1) - (char *)g->cells[which];
	}
	MPI_Ineighbor_alltoallw(g->cells[which], counts, from, types, g->cells[which], counts, to,
				types, g->comm, &neighbour_request);
}

static void neighbours_wait(struct grid *g, int which)
{
	(void)g, (void)which;
	MPI_Wait(&neighbour_request, MPI_STATUS_IGNORE);
}

/* ---- by a schedule ----------------------------------------------------------------------- */

static struct sluice_goal_group *group;
static struct sluice_goal_instance *instances[2];

/* The pieces of an edge: one run of cells, or n cells that lie a row apart. */
static uint32_t pieces_of(const struct grid *g, enum side s, int is_frame,
			  struct sluice_goal_piece *out)
{
	uint64_t first =
		(uint64_t)((char *)edge(g->cells[0], g, s, is_frame) - (char *)g->cells[0]);

	if (s < WEST) {
		out[0] = (struct sluice_goal_piece){ sluice_goal_user(0, first),
						     (uint64_t)g->n * sizeof(double) };
		return 1;
	}
	for (int i = 0; i < g->n; i++)
		out[i] = (struct sluice_goal_piece){
			sluice_goal_user(0, first + (uint64_t)i * (uint64_t)g->stride *
							    sizeof(double)),
			sizeof(double)
		};
	return (uint32_t)g->n;
}

static void schedule_open(struct grid *g)
{
	struct sluice_goal_piece *pieces = malloc((size_t)g->n * sizeof *pieces);
	struct sluice_goal_schedule *schedule;
	struct sluice_goal *goal;
	int ret;

	ret = pieces ? sluice_goal_group_mpi(g->comm, &group) : -ENOMEM;
	if (ret)
		fail(ret == -ENOTSUP ? sluice_goal_refusal() : "no group", ret);
	ret = sluice_goal_create(0, &goal);
	if (ret)
		fail("no schedule", ret);
	/* No operation requires another one: all of them start at once. */
	for (enum side s = 0; s < SIDES; s++)
		sluice_goal_recvv(goal, pieces, pieces_of(g, s, 1, pieces),
				  (uint32_t)g->neighbour[s], s);
	for (enum side s = 0; s < SIDES; s++)
		sluice_goal_sendv(goal, pieces, pieces_of(g, s, 0, pieces),
				  (uint32_t)g->neighbour[s], opposite[s]);
	ret = sluice_goal_compile(goal, (uint32_t)sluice_goal_group_size(group), &schedule);
	for (int which = 0; which < 2 && !ret; which++) {
		struct sluice_goal_buffer buffer = { g->cells[which],
						     sluice_goal_user_bytes(schedule, 0) };

		ret = sluice_goal_open(group, schedule, &buffer, 1, NULL, &instances[which]);
	}
	if (ret)
		fail("cannot open the schedule", ret);
	sluice_goal_schedule_destroy(schedule);
	sluice_goal_destroy(goal);
	free(pieces);
}

static void schedule_close(void)
{
	for (int which = 0; which < 2; which++)
		sluice_goal_close(instances[which]);
	sluice_goal_group_destroy(group);
}

static void schedule_start(struct grid *g, int which)
{
	int ret = sluice_goal_start(instances[which]);

	(void)g;
	if (ret)
		fail("cannot start the schedule", ret);
}

static void schedule_wait(struct grid *g, int which)
{
	int ret = sluice_goal_wait(instances[which], -1);

	(void)g;
	if (ret)
		fail("the schedule failed", ret);
}

/* ---- the computation --------------------------------------------------------------------- */

static void update(const struct grid *g, int which, int row, int from, int to)
{
	const double *old = cell(g->cells[which], g, row, 0);
	double *new = cell(g->cells[!which], g, row, 0);

	for (int c = from; c <= to; c++)
		new[c] = 0.2 * (old[c] + old[c - 1] + old[c + 1] + old[c - g->stride] +
				old[c + g->stride]);
}

/* One step: the inner cells while the frame is on its way, then the outer ones. */
static void step(struct grid *g, const struct exchange *x, int which)
{
	x->start(g, which);
	for (int row = 2; row < g->n; row++)
		update(g, which, row, 2, g->n - 1);
	x->wait(g, which);
	update(g, which, 1, 1, g->n);
	for (int row = 2; row < g->n; row++) {
		update(g, which, row, 1, 1);
		update(g, which, row, g->n, g->n);
	}
	update(g, which, g->n, 1, g->n);
}

static void fill(struct grid *g, int rank)
{
	for (int row = 1; row <= g->n; row++)
		for (int c = 1; c <= g->n; c++)
			*cell(g->cells[0], g, row, c) =
				(double)((row * 31 + c * 17 + rank * 7) % 100);
}

/* Seconds of the slowest rank for a step, and what the grid holds afterwards. */
static double run(struct grid *g, const struct exchange *x, int rank, int steps, double *out_sum)
{
	double begin, mine, slowest, sum = 0;

	fill(g, rank);
	MPI_Barrier(g->comm);
	begin = MPI_Wtime();
	for (int i = 0; i < steps; i++)
		step(g, x, i % 2);
	mine = (MPI_Wtime() - begin) / steps;
	MPI_Allreduce(&mine, &slowest, 1, MPI_DOUBLE, MPI_MAX, g->comm);
	for (int row = 1; row <= g->n; row++)
		for (int c = 1; c <= g->n; c++)
			sum = sum * 0.999 + *cell(g->cells[steps % 2], g, row, c);
	MPI_Allreduce(&sum, out_sum, 1, MPI_DOUBLE, MPI_SUM, g->comm);
	return slowest;
}

/* ---- the program ------------------------------------------------------------------------- */

static void create(struct grid *g, int n)
{
	int ranks, dims[2] = { 0, 0 }, periodic[2] = { 1, 1 };

	MPI_Comm_size(MPI_COMM_WORLD, &ranks);
	MPI_Dims_create(ranks, 2, dims);
	MPI_Cart_create(MPI_COMM_WORLD, 2, dims, periodic, 0, &g->comm);
	MPI_Cart_shift(g->comm, 0, 1, &g->neighbour[NORTH], &g->neighbour[SOUTH]);
	MPI_Cart_shift(g->comm, 1, 1, &g->neighbour[WEST], &g->neighbour[EAST]);
	g->n = n;
	g->stride = n + 2;
	for (int i = 0; i < 2; i++) {
		g->cells[i] = calloc((size_t)g->stride * (size_t)g->stride, sizeof(double));
		if (!g->cells[i])
			fail("no memory for the grid", -ENOMEM);
	}
	MPI_Type_vector(n, 1, g->stride, MPI_DOUBLE, &column_type);
	MPI_Type_commit(&column_type);
}

static int compare(const void *a, const void *b)
{
	double x = *(const double *)a, y = *(const double *)b;

	return (x > y) - (x < y);
}

static const struct exchange exchanges[] = {
	{ "Isend, Irecv", messages_start, messages_wait },
	{ "Ineighbor_alltoallw", neighbours_start, neighbours_wait },
	{ "GOAL schedule", schedule_start, schedule_wait },
};
enum { EXCHANGES = sizeof exchanges / sizeof exchanges[0], ROUNDS_MAX = 1000 };

/* MPIs differ in which message is whose where the same rank is the neighbour on two sides (Open MPI
 * 5 gives what comes from the north to the south). */
static int is_served(const struct grid *g, const struct exchange *x)
{
	return x->start != neighbours_start || (g->neighbour[NORTH] != g->neighbour[SOUTH] &&
						g->neighbour[WEST] != g->neighbour[EAST]);
}

/* All of them in turn, so that what else the machine does meets each alike. */
static int measure(struct grid *g, int rank, int steps, int rounds)
{
	static double seconds[EXCHANGES][ROUNDS_MAX];
	double sum[EXCHANGES] = { 0 };
	int differ = 0;

	for (int round = -1; round < rounds; round++) /* the first one is warm-up */
		for (int x = 0; x < EXCHANGES; x++)
			if (is_served(g, &exchanges[x]))
				seconds[x][round < 0 ? 0 : round] =
					run(g, &exchanges[x], rank, steps, &sum[x]);
	for (int x = 0; x < EXCHANGES; x++) {
		if (!is_served(g, &exchanges[x]))
			continue;
		qsort(seconds[x], (size_t)rounds, sizeof(double), compare);
		differ |= sum[x] != sum[0];
		if (rank)
			continue;
		printf("%-20s %9.2f us a step (%.2f to %.2f)   %.2f x\n", exchanges[x].name,
		       seconds[x][rounds / 2] * 1e6, seconds[x][0] * 1e6,
		       seconds[x][rounds - 1] * 1e6,
		       seconds[0][rounds / 2] / seconds[x][rounds / 2]);
	}
	if (!rank)
		printf(differ ? "the results differ\n" : "all results are the same\n");
	return differ;
}

int main(int argc, char **argv)
{
	int rank, n = argc > 1 ? atoi(argv[1]) : 256, steps = argc > 2 ? atoi(argv[2]) : 200;
	int rounds = argc > 3 ? atoi(argv[3]) : 21, differ;
	struct grid g;

	MPI_Init(&argc, &argv);
	MPI_Comm_rank(MPI_COMM_WORLD, &rank);
	if (n < 3 || n > 20000 || steps < 1 || rounds < 1 || rounds > ROUNDS_MAX) {
		if (!rank)
			fprintf(stderr,
				"usage: stencil [3 to 20000 rows] [steps] [1 to %d rounds]\n",
				ROUNDS_MAX);
		MPI_Finalize();
		return 2;
	}
	create(&g, n);
	MPI_Comm_rank(g.comm, &rank);
	schedule_open(&g);
	if (!rank)
		printf("%d x %d cells a rank, %d steps, %d rounds; medians of the slowest rank\n",
		       n, n, steps, rounds);
	differ = measure(&g, rank, steps, rounds);
	schedule_close();
	MPI_Type_free(&column_type);
	MPI_Comm_free(&g.comm);
	for (int i = 0; i < 2; i++)
		free(g.cells[i]);
	MPI_Finalize();
	return differ;
}
