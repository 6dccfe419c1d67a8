/* SPDX-License-Identifier: BSD-3-Clause */
/* Which ranks share a memory domain, sorted. Pure: all ranks come to the same. */
#include "coll/coll.h"

static int size_of(const struct coll_domains *m, int d) { return m->first[d + 1] - m->first[d]; }

int coll_domains_entry(const struct coll_domains *m, int d, int from)
{
	return m->members[m->first[d] + m->at[from] % size_of(m, d)];
}

/* Numbers domains in the order of their first rank. */
static void number(struct coll_domains *m, int ranks, const int *number_of)
{
	for (int r = 0; r < ranks; r++) {
		int like = 0;

		while (number_of[like] != number_of[r])
			like++;
		m->of[r] = like < r ? m->of[like] : m->count++;
	}
}

static void sort(struct coll_domains *m, int ranks)
{
	int n = 0;

	for (int d = 0; d < m->count; d++) {
		m->first[d] = n;
		for (int r = 0; r < ranks; r++)
			if (m->of[r] == d) {
				m->at[r] = n - m->first[d];
				m->members[n++] = r;
			}
	}
	m->first[m->count] = n;
}

/* Sends of a rank in an allgather: its own block to its domain and to one rank of each other, and
 * on to its domain what enters it through this rank. */
static bool is_even(const struct coll_domains *m, int ranks)
{
	for (int r = 0; r < ranks; r++) {
		int d = m->of[r], sends = size_of(m, d) - 1 + m->count - 1;

		for (int from = 0; from < ranks; from++)
			if (m->of[from] != d && coll_domains_entry(m, d, from) == r)
				sends += size_of(m, d) - 1;
		if (sends > ranks)
			return false;
	}
	return true;
}

void coll_domains_init(struct coll_domains *out, int *words, int ranks, const int *number_of)
{
	*out = (struct coll_domains){ .of = words,
				      .members = words + ranks,
				      .at = words + 2 * ranks,
				      .first = words + 3 * ranks };
	number(out, ranks, number_of);
	if (out->count == ranks)
		out->count = 1;
	if (out->count == 1)
		return;
	sort(out, ranks);
	out->is_even = is_even(out, ranks);
}
