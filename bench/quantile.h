/* SPDX-License-Identifier: BSD-3-Clause */
/* Quantiles of measured values, also for programs that mpicc alone compiles. */
#ifndef SLUICE_BENCH_QUANTILE_H
#define SLUICE_BENCH_QUANTILE_H

#include <stdlib.h>

static inline int bench_by_value(const void *a, const void *b)
{
	double x = *(const double *)a, y = *(const double *)b;

	return (x > y) - (x < y);
}

/* Sorts n values. Returns: the value below which `percent` of them lie; 50: the median. */
static inline double bench_quantile(double *v, int n, int percent)
{
	int at = n * percent / 100;

	qsort(v, (size_t)n, sizeof *v, bench_by_value);
	return v[at < n ? at : n - 1];
}

#endif
