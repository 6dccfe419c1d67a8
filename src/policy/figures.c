/* SPDX-License-Identifier: BSD-3-Clause */
/* Figures of host MPIs, line by line from host-mpi.tune. */
#include <errno.h>
#include <string.h>
#include <strings.h>

#include "policy/gate.h"

#define NEVER UINT64_MAX

enum { WITHOUT_FILE_BYTES = 256 << 10 };

static const char *const coll_names[COLL_COUNT] = {
#define X(id, pattern, family, is_local) #id,
	COLL_LIST(X)
#undef X
};

static void fill(struct policy_figures figures[COLL_COUNT], uint64_t again, uint64_t always)
{
	for (int kind = 0; kind < COLL_COUNT; kind++)
		figures[kind] = (struct policy_figures){ .again = again, .always = always,
							 .nonblocking = { .from = NEVER,
									  .again = NEVER } };
}

void policy_figures_init(struct policy_figures figures[COLL_COUNT])
{
	fill(figures, WITHOUT_FILE_BYTES, NEVER);
}

void policy_figures_begin(struct policy_figures figures[COLL_COUNT]) { fill(figures, 0, 0); }

static int find_coll(const char *name, size_t length)
{
	for (int kind = 0; kind < COLL_COUNT; kind++)
		if (!strncasecmp(coll_names[kind], name, length) && !coll_names[kind][length])
			return kind;
	return -ENOENT;
}

static uint64_t *find_field(struct policy_figures *f, bool is_blocking, const char *name)
{
	const struct {
		const char *name;
		uint64_t *blocking, *nonblocking;
	} fields[] = {
		{ "again", &f->again, &f->nonblocking.again },
		{ "always", &f->always, NULL },
		{ "crowded_again", &f->crowded_again, NULL },
		{ "crowded_always", &f->crowded_always, NULL },
		{ "from", NULL, &f->nonblocking.from },
		{ "to", NULL, &f->nonblocking.to },
		{ "not_from", NULL, &f->nonblocking.not_from },
		{ "not_to", NULL, &f->nonblocking.not_to },
	};

	for (size_t i = 0; i < BASE_ARRAY_LEN(fields); i++)
		if (!strcmp(fields[i].name, name))
			return is_blocking ? fields[i].blocking : fields[i].nonblocking;
	return NULL;
}

int policy_figures_set(struct policy_figures figures[COLL_COUNT], const char *name,
		       const char *value)
{
	const char *dot = strchr(name, '.');
	bool is_blocking = *name != 'i'; /* no collective begins so */
	uint64_t *field = NULL, bytes = NEVER;
	int kind;

	name += !is_blocking;
	kind = dot ? find_coll(name, (size_t)(dot - name)) : -ENOENT;
	if (kind >= 0)
		field = find_field(&figures[kind], is_blocking, dot + 1);
	if (!field)
		return -ENOENT;
	if (strcmp(value, "never") && strcmp(value, "all") && base_parse_bytes(value, &bytes))
		return -EINVAL;
	*field = bytes;
	return 0;
}

uint64_t policy_figures_hash(const struct policy_figures figures[COLL_COUNT])
{
	const uint64_t *words = (const uint64_t *)figures;
	uint64_t hash = 14695981039346656037u; /* FNV-1a */

	_Static_assert(sizeof(struct policy_figures) == 9 * sizeof(uint64_t), "words only");
	for (size_t i = 0; i < COLL_COUNT * sizeof *figures / sizeof *words; i++)
		hash = (hash ^ words[i]) * 1099511628211u;
	return hash;
}
