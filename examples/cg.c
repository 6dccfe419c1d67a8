/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Conjugate gradients for the Poisson equation on a square (five-point stencil), rows dealt to the
 * ranks. In two ways: the textbook's, whose dot products each stop everybody (MPI_Allreduce), and
 * the pipelined one of Ghysels and Vanroose, whose single reduction (MPI_Iallreduce) travels while
 * the matrix is applied. Both stop at the same residual, and are checked against the solution,
 * which is known.
 *
 *   mpicc -O2 cg.c -o cg -lm
 *   mpiexec -n 4 ./cg [rows and columns] [rounds]             compare with   sluice run ./cg ...
 */
#include <math.h>
#include <mpi.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define TOLERANCE 1e-10

/* Vectors are [rows + 2][n]: a row of each neighbour before and after. */
struct problem {
	int n, rows, first, rank, up, down, iterations_max;
	double *exact, *rhs;
};

static double *get(const struct problem *p)
{
	double *v = calloc((size_t)(p->rows + 2) * (size_t)p->n, sizeof(double));

	if (!v) {
		fprintf(stderr, "cg: no memory for %d rows of %d numbers\n", p->rows, p->n);
		MPI_Abort(MPI_COMM_WORLD, 1);
	}
	return v;
}

static double *own(const struct problem *p, double *v) { return v + p->n; }
static size_t count(const struct problem *p) { return (size_t)p->rows * (size_t)p->n; }

/* y = A x; the neighbours' rows arrive while the inner ones are computed. */
static void apply_row(const struct problem *p, double *y, const double *x, int row)
{
	const double *at = x + (size_t)(row + 1) * (size_t)p->n;
	double *out = y + (size_t)(row + 1) * (size_t)p->n;

	for (int c = 0; c < p->n; c++)
		out[c] = 4 * at[c] - at[c - p->n] - at[c + p->n] - (c ? at[c - 1] : 0) -
			 (c + 1 < p->n ? at[c + 1] : 0);
}

static void apply(const struct problem *p, double *y, double *x)
{
	double *last = x + (size_t)p->rows * (size_t)p->n;
	MPI_Request r[4];

	MPI_Irecv(x, p->n, MPI_DOUBLE, p->up, 1, MPI_COMM_WORLD, &r[0]);
	MPI_Irecv(last + p->n, p->n, MPI_DOUBLE, p->down, 2, MPI_COMM_WORLD, &r[1]);
	MPI_Isend(own(p, x), p->n, MPI_DOUBLE, p->up, 2, MPI_COMM_WORLD, &r[2]);
	MPI_Isend(last, p->n, MPI_DOUBLE, p->down, 1, MPI_COMM_WORLD, &r[3]);
	for (int row = 1; row < p->rows - 1; row++)
		apply_row(p, y, x, row);
	MPI_Waitall(4, r, MPI_STATUSES_IGNORE);
	apply_row(p, y, x, 0);
	if (p->rows > 1)
		apply_row(p, y, x, p->rows - 1);
}

static double dot(const struct problem *p, double *x, double *y)
{
	const double *a = own(p, x), *b = own(p, y);
	double sum = 0;

	for (size_t i = 0; i < count(p); i++)
		sum += a[i] * b[i];
	return sum;
}

static double dot_all(const struct problem *p, double *x, double *y)
{
	double mine = dot(p, x, y), all;

	MPI_Allreduce(&mine, &all, 1, MPI_DOUBLE, MPI_SUM, MPI_COMM_WORLD);
	return all;
}

/* y = x + a y */
static void scale_add(const struct problem *p, double *y, double a, double *x)
{
	double *to = own(p, y), *from = own(p, x);

	for (size_t i = 0; i < count(p); i++)
		to[i] = from[i] + a * to[i];
}

/* y += a x */
static void add(const struct problem *p, double *y, double a, double *x)
{
	double *to = own(p, y), *from = own(p, x);

	for (size_t i = 0; i < count(p); i++)
		to[i] += a * from[i];
}

/* Hestenes and Stiefel. Returns the iterations. */
static int solve_plain(const struct problem *p, double *x)
{
	double *r = get(p), *s = get(p), *w = get(p), gamma, first;
	int i;

	memcpy(own(p, r), own(p, p->rhs), count(p) * sizeof(double));
	memcpy(own(p, s), own(p, r), count(p) * sizeof(double));
	first = gamma = dot_all(p, r, r);
	for (i = 0; i < p->iterations_max && gamma > TOLERANCE * TOLERANCE * first; i++) {
		double alpha, next;

		apply(p, w, s);
		alpha = gamma / dot_all(p, s, w);
		add(p, x, alpha, s);
		add(p, r, -alpha, w);
		next = dot_all(p, r, r);
		scale_add(p, s, next / gamma, r);
		gamma = next;
	}
	free(r);
	free(s);
	free(w);
	return i;
}

/* Ghysels and Vanroose, "Hiding global synchronization latency in the preconditioned conjugate
 * gradient algorithm", 2014, without preconditioner. */
static int solve_pipelined(const struct problem *p, double *x)
{
	double *r = get(p), *w = get(p), *q = get(p), *z = get(p), *s = get(p), *d = get(p);
	double gamma_before = 0, alpha = 0, first = 0;
	int i;

	memcpy(own(p, r), own(p, p->rhs), count(p) * sizeof(double));
	apply(p, w, r);
	for (i = 0; i < p->iterations_max; i++) {
		double mine[2] = { dot(p, r, r), dot(p, w, r) }, all[2], beta;
		MPI_Request request;

		MPI_Iallreduce(mine, all, 2, MPI_DOUBLE, MPI_SUM, MPI_COMM_WORLD, &request);
		apply(p, q, w);
		MPI_Wait(&request, MPI_STATUS_IGNORE);
		if (!i)
			first = all[0];
		if (all[0] <= TOLERANCE * TOLERANCE * first)
			break;
		beta = i ? all[0] / gamma_before : 0;
		alpha = i ? all[0] / (all[1] - beta * all[0] / alpha) : all[0] / all[1];
		scale_add(p, z, beta, q);
		scale_add(p, s, beta, w);
		scale_add(p, d, beta, r);
		add(p, x, alpha, d);
		add(p, r, -alpha, s);
		add(p, w, -alpha, z);
		gamma_before = all[0];
	}
	for (double **v = (double *[]){ r, w, q, z, s, d, NULL }; *v; v++)
		free(*v);
	return i;
}

static double value(int n, int row, int column)
{
	double x = (column + 1.0) / (n + 1), y = (row + 1.0) / (n + 1);

	return sin(M_PI * x) * y * (1 - y) + x * x * (1 - x) * sin(2 * M_PI * y);
}

static void setup(struct problem *p, int n)
{
	int ranks;

	MPI_Comm_size(MPI_COMM_WORLD, &ranks);
	MPI_Comm_rank(MPI_COMM_WORLD, &p->rank);
	if (n < ranks) {
		if (!p->rank)
			fprintf(stderr, "cg: %d rows are fewer than %d ranks\n", n, ranks);
		MPI_Abort(MPI_COMM_WORLD, 2);
	}
	p->n = n;
	p->iterations_max = 20 * n;
	p->first = (int)((long)n * p->rank / ranks);
	p->rows = (int)((long)n * (p->rank + 1) / ranks) - p->first;
	p->up = p->rank ? p->rank - 1 : MPI_PROC_NULL;
	p->down = p->rank + 1 < ranks ? p->rank + 1 : MPI_PROC_NULL;
	p->exact = get(p);
	p->rhs = get(p);
	for (int row = 0; row < p->rows; row++)
		for (int c = 0; c < n; c++)
			own(p, p->exact)[(size_t)row * (size_t)n + (size_t)c] =
				value(n, p->first + row, c);
	apply(p, p->rhs, p->exact);
}

/* The largest difference from the solution. */
static double error_of(const struct problem *p, double *x)
{
	double worst = 0, all;

	for (size_t i = 0; i < count(p); i++)
		worst = fmax(worst, fabs(own(p, x)[i] - own(p, p->exact)[i]));
	MPI_Allreduce(&worst, &all, 1, MPI_DOUBLE, MPI_MAX, MPI_COMM_WORLD);
	return all;
}

int main(int argc, char **argv)
{
	static const struct {
		const char *name;
		int (*solve)(const struct problem *, double *);
	} ways[] = {
		{ "MPI_Allreduce", solve_plain },
		{ "MPI_Iallreduce, pipelined", solve_pipelined },
	};
	int n = argc > 1 ? atoi(argv[1]) : 128, rounds = argc > 2 ? atoi(argv[2]) : 3, is_wrong = 0;
	struct problem p = { 0 };

	MPI_Init(&argc, &argv);
	setup(&p, n);
	for (int way = 0; way < 2; way++) {
		double best = 1e9, error = 0;
		int iterations = 0;

		for (int k = 0; k < rounds; k++) {
			double *x = get(&p), t0;

			MPI_Barrier(MPI_COMM_WORLD);
			t0 = MPI_Wtime();
			iterations = ways[way].solve(&p, x);
			t0 = MPI_Wtime() - t0;
			MPI_Allreduce(MPI_IN_PLACE, &t0, 1, MPI_DOUBLE, MPI_MAX, MPI_COMM_WORLD);
			best = fmin(best, t0);
			error = fmax(error, error_of(&p, x));
			free(x);
		}
		is_wrong |= !(error < 1e-6);
		if (!p.rank)
			printf("%-28s %4d iterations, %8.3f ms, largest error %.1e\n",
			       ways[way].name, iterations, best * 1e3, error);
	}
	if (!p.rank)
		printf("%s\n", is_wrong ? "WRONG" : "the solutions are right");
	MPI_Finalize();
	return is_wrong;
}
