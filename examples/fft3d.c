/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * A three-dimensional FFT of n x n x n complex numbers, cut into pencils: each rank transforms
 * whole lines in x, then in y, then in z, and between these the ranks of a row, then of a column,
 * of a process grid transpose by all-to-all. Done in two ways: by MPI_Alltoall, and cut into slabs
 * by MPI_Ialltoall, so that one slab travels while the next is transformed. Both are checked
 * against the spectrum, which is known.
 *
 *   mpicc -O2 fft3d.c -o fft3d -lm
 *   mpiexec -n 4 ./fft3d [n, a power of two] [rounds]         compare with   sluice run ./fft3d ...
 */
#include <complex.h>
#include <math.h>
#include <mpi.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

typedef double complex cplx; /* as MPI_C_DOUBLE_COMPLEX */

enum { SLABS = 4, WAVES = 3 };
static const int wave[WAVES][3] = { { 1, 2, 3 }, { 0, 5, 1 }, { 7, 0, 2 } };

/* A rank's pencil: `planes` outer indices of n / ranks lines of n numbers each. */
struct transpose {
	MPI_Comm comm; /* those who exchange */
	int ranks, n, planes, lines;
	cplx *from, *to;     /* [planes][lines][n] both */
	cplx *out, *in;      /* packed, slab by slab */
	MPI_Request request[SLABS];
};

struct fft {
	int n, rows, columns, row, column; /* of the process grid, and this rank's place */
	cplx *data, *roots;
	struct transpose xy, yz;
};

static void *get(size_t count)
{
	void *p = malloc(count * sizeof(cplx));

	if (!p) {
		fprintf(stderr, "fft3d: no memory for %zu numbers\n", count);
		MPI_Abort(MPI_COMM_WORLD, 1);
	}
	return memset(p, 0, count * sizeof(cplx));
}

/* ---- one line ---------------------------------------------------------------------------- */

/* In place, decimation in time (Cooley and Tukey); n is a power of two. */
static void transform(cplx *a, int n, const cplx *roots)
{
	for (int i = 1, j = 0; i < n; i++) {
		int bit = n >> 1;

		for (; j & bit; bit >>= 1)
			j ^= bit;
		j ^= bit;
		if (i < j) {
			cplx t = a[i];

			a[i] = a[j];
			a[j] = t;
		}
	}
	for (int len = 2; len <= n; len <<= 1)
		for (int i = 0; i < n; i += len)
			for (int k = 0; k < len / 2; k++) {
				cplx u = a[i + k], v = a[i + k + len / 2] * roots[k * (n / len)];

				a[i + k] = u + v;
				a[i + k + len / 2] = u - v;
			}
}

static void transform_planes(const struct fft *f, cplx *data, const struct transpose *t, int first,
			     int planes)
{
	for (size_t line = 0; line < (size_t)planes * (size_t)t->lines; line++)
		transform(data + ((size_t)first * (size_t)t->lines + line) * (size_t)f->n, f->n,
			  f->roots);
}

/* ---- transposing ------------------------------------------------------------------------- */

/*
 * Pack each plane [lines][n]: the partner with index r gets columns [r * lines, (r + 1) * lines)
 * and sends its lines of this rank's columns, so a plane becomes [my columns][all lines].
 */
static void pack(const struct transpose *t, int first, int planes)
{
	size_t piece = (size_t)t->lines, block = piece * piece,
	       at = (size_t)first * piece * (size_t)t->n;

	for (int r = 0; r < t->ranks; r++)
		for (int p = 0; p < planes; p++)
			for (size_t line = 0; line < piece; line++)
				memcpy(t->out + at +
					       ((size_t)r * (size_t)planes + (size_t)p) * block +
					       line * piece,
				       t->from +
					       (((size_t)first + (size_t)p) * piece + line) *
						       (size_t)t->n +
					       (size_t)r * piece,
				       piece * sizeof(cplx));
}

static void unpack(const struct transpose *t, int first, int planes)
{
	size_t piece = (size_t)t->lines, block = piece * piece,
	       at = (size_t)first * piece * (size_t)t->n;

	for (int r = 0; r < t->ranks; r++)
		for (int p = 0; p < planes; p++)
			for (size_t line = 0; line < piece; line++)
				for (size_t c = 0; c < piece; c++)
					t->to[(((size_t)first + (size_t)p) * piece + c) *
						      (size_t)t->n +
					      (size_t)r * piece + line] =
						t->in[at +
						      ((size_t)r * (size_t)planes + (size_t)p) *
							      block +
						      line * piece + c];
}

static int first_of(const struct transpose *t, int slab) { return t->planes * slab / SLABS; }

static void exchange(struct fft *f, struct transpose *t)
{
	int count = t->planes * t->lines * t->lines;

	transform_planes(f, t->from, t, 0, t->planes);
	pack(t, 0, t->planes);
	MPI_Alltoall(t->out, count, MPI_C_DOUBLE_COMPLEX, t->in, count, MPI_C_DOUBLE_COMPLEX,
		     t->comm);
	unpack(t, 0, t->planes);
}

/* A slab travels while the next one is transformed. */
static void exchange_slabs(struct fft *f, struct transpose *t)
{
	for (int s = 0; s < SLABS; s++) {
		int first = first_of(t, s), planes = first_of(t, s + 1) - first,
		    count = planes * t->lines * t->lines;
		size_t at = (size_t)first * (size_t)t->lines * (size_t)t->n;

		transform_planes(f, t->from, t, first, planes);
		pack(t, first, planes);
		MPI_Ialltoall(t->out + at, count, MPI_C_DOUBLE_COMPLEX, t->in + at, count,
			      MPI_C_DOUBLE_COMPLEX, t->comm, &t->request[s]);
	}
	for (int s = 0; s < SLABS; s++) {
		MPI_Wait(&t->request[s], MPI_STATUS_IGNORE);
		unpack(t, first_of(t, s), first_of(t, s + 1) - first_of(t, s));
	}
}

/* ---- the whole --------------------------------------------------------------------------- */

static void setup_transpose(struct transpose *t, struct fft *f, MPI_Comm comm, int planes,
			    cplx *from)
{
	size_t count;

	t->comm = comm;
	MPI_Comm_size(comm, &t->ranks);
	t->n = f->n;
	t->lines = f->n / t->ranks;
	t->planes = planes;
	count = (size_t)planes * (size_t)t->lines * (size_t)f->n;
	t->from = from;
	t->to = get(count);
	t->out = get(count);
	t->in = get(count);
}

/* The grid is square or nearly so. Planes of x and y belong to a z of this rank, later ones to an
 * x: before the second transposition these are put outside. */
static cplx *swap_planes(const struct transpose *t, cplx *out, int lines)
{
	for (int p = 0; p < t->planes; p++)
		for (int c = 0; c < t->lines; c++)
			memcpy(out + ((size_t)c * (size_t)lines + (size_t)p) * (size_t)t->n,
			       t->to + ((size_t)p * (size_t)t->lines + (size_t)c) * (size_t)t->n,
			       (size_t)t->n * sizeof(cplx));
	return out;
}

static void setup(struct fft *f, int n)
{
	int ranks, rank, dims[2] = { 0, 0 };
	MPI_Comm row, column;

	MPI_Comm_size(MPI_COMM_WORLD, &ranks);
	MPI_Comm_rank(MPI_COMM_WORLD, &rank);
	MPI_Dims_create(ranks, 2, dims);
	if (n < 8 || n & (n - 1) || n % dims[0] || n % dims[1]) {
		if (!rank)
			fprintf(stderr,
				"fft3d: n is %d: it has to be a power of two, 8 or more, that %d "
				"and %d divide\n",
				n, dims[0], dims[1]);
		MPI_Abort(MPI_COMM_WORLD, 2);
	}
	*f = (struct fft){ .n = n,
			   .rows = dims[0],
			   .columns = dims[1],
			   .row = rank / dims[1],
			   .column = rank % dims[1] };
	MPI_Comm_split(MPI_COMM_WORLD, f->column, f->row, &column);
	MPI_Comm_split(MPI_COMM_WORLD, f->row, f->column, &row);
	f->roots = get((size_t)n);
	for (int k = 0; k < n; k++)
		f->roots[k] = cexp(-2 * M_PI * I * k / n);
	/* x: [z of the column][y of the row][x] */
	f->data = get((size_t)(n / f->columns) * (size_t)(n / f->rows) * (size_t)n);
	setup_transpose(&f->xy, f, column, n / f->columns, f->data);
	setup_transpose(&f->yz, f, row, n / f->rows,
			get((size_t)(n / f->columns) * (size_t)(n / f->rows) * (size_t)n));
}

/* A sum of plane waves. */
static void fill(struct fft *f)
{
	int nz = f->n / f->columns, ny = f->n / f->rows;

	for (int z = 0; z < nz; z++)
		for (int y = 0; y < ny; y++)
			for (int x = 0; x < f->n; x++) {
				cplx sum = 0;

				for (int w = 0; w < WAVES; w++)
					sum += (w + 1) * cexp(2 * M_PI * I *
							      (wave[w][0] * x +
							       wave[w][1] * (f->row * ny + y) +
							       wave[w][2] * (f->column * nz + z)) /
							      f->n);
				f->data[((size_t)z * (size_t)ny + (size_t)y) * (size_t)f->n +
					(size_t)x] = sum;
			}
}

/* The largest error, relative to n^3: the spectrum of a plane wave is one number. Now [x of the
 * row][y of the column][z]. */
static double error_of(const struct fft *f)
{
	int nx = f->n / f->rows, ny = f->n / f->columns;
	double worst = 0, cube = (double)f->n * f->n * f->n, all;

	for (int x = 0; x < nx; x++)
		for (int y = 0; y < ny; y++)
			for (int z = 0; z < f->n; z++) {
				cplx got = f->yz.to[((size_t)x * (size_t)ny + (size_t)y) *
							    (size_t)f->n +
						    (size_t)z] /
					   cube;
				double want = 0;

				for (int w = 0; w < WAVES; w++)
					if (wave[w][0] == f->row * nx + x &&
					    wave[w][1] == f->column * ny + y && wave[w][2] == z)
						want += w + 1;
				worst = fmax(worst, cabs(got - want));
			}
	MPI_Allreduce(&worst, &all, 1, MPI_DOUBLE, MPI_MAX, MPI_COMM_WORLD);
	return all;
}

static double run(struct fft *f, void (*how)(struct fft *, struct transpose *))
{
	double t0;

	fill(f);
	MPI_Barrier(MPI_COMM_WORLD);
	t0 = MPI_Wtime();
	how(f, &f->xy);
	swap_planes(&f->xy, f->yz.from, f->xy.planes);
	how(f, &f->yz);
	for (int p = 0; p < f->yz.planes; p++)
		transform_planes(f, f->yz.to, &f->yz, p, 1);
	t0 = MPI_Wtime() - t0;
	MPI_Allreduce(MPI_IN_PLACE, &t0, 1, MPI_DOUBLE, MPI_MAX, MPI_COMM_WORLD);
	return t0;
}

int main(int argc, char **argv)
{
	static const struct {
		const char *name;
		void (*how)(struct fft *, struct transpose *);
	} ways[] = {
		{ "MPI_Alltoall", exchange },
		{ "MPI_Ialltoall, in slabs", exchange_slabs },
	};
	int n = argc > 1 ? atoi(argv[1]) : 64, rounds = argc > 2 ? atoi(argv[2]) : 5, rank,
	    is_wrong = 0;
	struct fft f;

	MPI_Init(&argc, &argv);
	MPI_Comm_rank(MPI_COMM_WORLD, &rank);
	setup(&f, n);
	for (int way = 0; way < 2; way++) {
		double best = 1e9, error = 0;

		for (int r = 0; r < rounds; r++) {
			best = fmin(best, run(&f, ways[way].how));
			error = fmax(error, error_of(&f));
		}
		is_wrong |= !(error < 1e-12);
		if (!rank)
			printf("%-24s %8.3f ms, largest error %.1e\n", ways[way].name, best * 1e3,
			       error);
	}
	if (!rank)
		printf("%s\n", is_wrong ? "WRONG" : "the spectrum is right");
	MPI_Finalize();
	return is_wrong;
}
