/* SPDX-License-Identifier: BSD-3-Clause */
/* Failure injection: SLUICE_FAULT makes calls fail. */
#include <errno.h>
#include <string.h>

#include "base/base.h"
#include "base/internal.h"

struct fault {
	char name[32];
	uint64_t nth; /* 1 is the first call; 0 every call */
	_Atomic uint64_t calls;
};

static struct fault faults[16];
static _Atomic uint32_t fault_count; /* written by base_fault_load; 0 is the fast path */

static int fault_parse(const char *text, size_t length, struct fault *out)
{
	const char *colon = memchr(text, ':', length);
	const char *end = text + length;
	uint64_t nth = 0;

	if (!colon || colon == text || (size_t)(colon - text) >= sizeof(out->name) ||
	    colon + 1 == end)
		return -EINVAL;
	if (end - colon != 4 || memcmp(colon, ":all", 4)) {
		for (const char *c = colon + 1; c < end; c++) {
			if (*c < '0' || *c > '9' || nth > UINT32_MAX)
				return -EINVAL;
			nth = nth * 10 + (uint64_t)(*c - '0');
		}
		if (!nth)
			return -EINVAL;
	}
	memset(out->name, 0, sizeof(out->name));
	memcpy(out->name, text, (size_t)(colon - text));
	out->nth = nth;
	atomic_store_explicit(&out->calls, 0, memory_order_relaxed);
	return 0;
}

int base_fault_load(const char *spec)
{
	uint32_t count = 0;

	atomic_store_explicit(&fault_count, 0, memory_order_relaxed);
	while (*spec) {
		size_t length = strcspn(spec, ",");
		int rc = count < BASE_ARRAY_LEN(faults) ? fault_parse(spec, length, &faults[count])
							: -EINVAL;

		if (rc)
			return rc;
		count++;
		spec += length;
		if (*spec == ',')
			spec++;
	}
	/* Pairs with the acquire in base_fault(), which then sees all entries. */
	atomic_store_explicit(&fault_count, count, memory_order_release);
	return 0;
}

bool base_fault(const char *name)
{
	uint32_t count = atomic_load_explicit(&fault_count, memory_order_acquire);

	for (uint32_t i = 0; base_unlikely(i < count); i++) {
		struct fault *f = &faults[i];
		uint64_t call;

		if (strcmp(f->name, name))
			continue;
		call = atomic_fetch_add_explicit(&f->calls, 1, memory_order_relaxed) + 1;
		if (!f->nth || call == f->nth)
			return true;
	}
	return false;
}
