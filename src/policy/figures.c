/* SPDX-License-Identifier: BSD-3-Clause */
/* Figures of host MPIs, line by line from host-mpi.tune. */
#include <errno.h>
#include <inttypes.h>
#include <stddef.h>
#include <string.h>

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
		if (strlen(coll_names[kind]) == length &&
		    base_alike(coll_names[kind], name, length))
			return kind;
	return -ENOENT;
}

/* Names of the members, and where they are; 0: this form has no such figure. */
#define BLOCKING(member)    (1 + offsetof(struct policy_figures, member))
#define NONBLOCKING(member) (1 + offsetof(struct policy_figures, nonblocking.member))
static const struct field {
	const char *name;
	size_t at[COLL_FORMS];
} fields[] = {
	{ "again", { BLOCKING(again), NONBLOCKING(again) } },
	{ "always", { BLOCKING(always), 0 } },
	{ "crowded_again", { BLOCKING(crowded_again), 0 } },
	{ "crowded_always", { BLOCKING(crowded_always), 0 } },
	{ "from", { 0, NONBLOCKING(from) } },
	{ "to", { 0, NONBLOCKING(to) } },
	{ "not_from", { 0, NONBLOCKING(not_from) } },
	{ "not_to", { 0, NONBLOCKING(not_to) } },
};

static uint64_t *find_field(struct policy_figures *f, enum coll_form form, const char *name)
{
	for (size_t i = 0; i < BASE_ARRAY_LEN(fields); i++)
		if (!strcmp(fields[i].name, name) && fields[i].at[form])
			return (uint64_t *)((char *)f + fields[i].at[form] - 1);
	return NULL;
}

static void print_coll(const struct policy_figures *f, enum coll kind, enum coll_form form,
		       FILE *out)
{
	char name[32];
	size_t n = strlen(coll_names[kind]);

	for (size_t i = 0; i <= n; i++)
		name[i] = base_lower(coll_names[kind][i]);
	for (size_t i = 0; i < BASE_ARRAY_LEN(fields); i++) {
		uint64_t bytes;

		if (!fields[i].at[form])
			continue;
		bytes = *(const uint64_t *)((const char *)f + fields[i].at[form] - 1);
		fprintf(out, "%s%s.%s = ", form == COLL_NONBLOCKING ? "i" : "", name,
			fields[i].name);
		if (bytes == NEVER)
			fprintf(out, "never\n");
		else
			fprintf(out, "%" PRIu64 "\n", bytes);
	}
}

void policy_figures_print(const struct policy_figures figures[COLL_COUNT], FILE *out)
{
	for (enum coll kind = 0; kind < COLL_COUNT; kind++)
		for (enum coll_form form = 0; form < COLL_FORMS; form++)
			print_coll(&figures[kind], kind, form, out);
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
		field = find_field(&figures[kind],
				   is_blocking ? COLL_BLOCKING : COLL_NONBLOCKING, dot + 1);
	if (!field)
		return -ENOENT;
	if (strcmp(value, "never") && strcmp(value, "all") && base_parse_bytes(value, &bytes))
		return -EINVAL;
	*field = bytes;
	return 0;
}

uint64_t policy_figures_hash(const struct policy_figures figures[COLL_COUNT])
{
	_Static_assert(sizeof *figures == 9 * sizeof(uint64_t), "no padding");
	return base_hash(BASE_HASH_START, figures, COLL_COUNT * sizeof *figures);
}
