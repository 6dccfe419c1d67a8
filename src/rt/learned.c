/* SPDX-License-Identifier: BSD-3-Clause */
/* Writes the results of the trials of a run as a file of figures: SLUICE_DECIDE=measure:FILE. */
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "rt/trials.h"

enum { UNTRIED, FOR_HOST, FOR_SLUICE };

/* The last result of each class, over all communicators. */
static _Atomic uint8_t results[COLL_FORMS][COLL_COUNT][POLICY_SIZE_CLASSES];

void learned_note(enum coll_form form, enum coll kind, uint64_t bytes, bool is_for_sluice)
{
	atomic_store_explicit(&results[form][kind][policy_size_class(bytes)],
			      is_for_sluice ? FOR_SLUICE : FOR_HOST, memory_order_relaxed);
}

/*
 * Finds the least size from which on no trial was for the host MPI: the figures have one size for
 * each collective. Returns: false: no trial has ended.
 */
static bool find_least(enum coll_form form, enum coll kind, uint64_t *out)
{
	bool was_tried = false;

	*out = UINT64_MAX;
	for (int i = POLICY_SIZE_CLASSES - 1; i >= 0; i--) {
		uint8_t result = atomic_load_explicit(&results[form][kind][i],
						      memory_order_relaxed);

		was_tried |= result != UNTRIED;
		if (result == FOR_HOST)
			break;
		if (result == FOR_SLUICE)
			*out = policy_class_bytes(i);
	}
	return was_tried;
}

static void apply(enum coll kind, struct policy_figures *f)
{
	const struct coll_gate *gate = &rt_gates[COLL_NONBLOCKING][kind];
	struct policy_sizes *later = &f->nonblocking;
	uint64_t from;

	if (find_least(COLL_BLOCKING, kind, &from)) {
		f->again = from;
		f->always = base_max_u64(f->always, from);
	}
	if (!find_least(COLL_NONBLOCKING, kind, &from))
		return;
	/* `from` and `to` keep the sizes below those of trials */
	later->again = from;
	later->from = later->from < gate->measured_from ? later->from : UINT64_MAX;
	later->to = base_min_u64(later->to, gate->measured_from - 1);
}

/* "MPICH 5.0.2" becomes "*MPICH*5.0.2*": the text of MPI_Get_library_version has more between. */
static void pattern_of(const char *mpi, char *out, size_t cap)
{
	int n = snprintf(out, cap, "*%s*", mpi);

	for (int i = 0; i < n && i < (int)cap; i++)
		out[i] = out[i] == ' ' ? '*' : out[i];
}

__attribute__((cold))
static void write_text(const char *path, const char *mpi, const char *figures)
{
	char fresh[4096 + 16], pattern[256];
	struct stat st;
	bool is_file = stat(path, &st) || S_ISREG(st.st_mode); /* a device stays one */
	FILE *f;

	pattern_of(mpi, pattern, sizeof pattern);
	snprintf(fresh, sizeof fresh, "%.4096s.%d", path, (int)getpid());
	f = fopen(is_file ? fresh : path, "we");
	if (f) {
		fprintf(f, "# Written by a run with SLUICE_DECIDE=measure:%s\n"
			   "# To decide as that run did: SLUICE_DECIDE=%s\n"
			   "sluice-tune 1\nmpi %s\n%s", path, path, pattern, figures);
		if (!fclose(f) && (!is_file || !rename(fresh, path)))
			return;
	}
	base_log(BASE_LOG_ERROR, "rt", "SLUICE_DECIDE: %s cannot be written: %s", path,
		 strerror(errno));
	unlink(fresh);
}

__attribute__((cold))
void learned_write(const char *path, const char *mpi, const struct policy_figures *figures)
{
	struct policy_figures now[COLL_COUNT];
	char *text = NULL;
	size_t bytes;
	FILE *f = open_memstream(&text, &bytes);

	memcpy(now, figures, sizeof now);
	for (enum coll kind = 0; kind < COLL_COUNT; kind++)
		apply(kind, &now[kind]);
	if (!f)
		return base_log(BASE_LOG_ERROR, "rt", "SLUICE_DECIDE: %s", strerror(errno));
	policy_figures_print(now, f);
	if (!fclose(f))
		write_text(path, mpi, text);
	free(text);
}
