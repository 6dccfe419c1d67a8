/* SPDX-License-Identifier: BSD-3-Clause */
/* Constant sentences of Sluice, by address. Entered once, found by any thread. */
#include <string.h>

#include "trace/private.h"

static void fill(struct trace_text *t, const char *text)
{
	size_t n = strlen(text);

	memcpy(t->text, text, base_min_u64(n, sizeof t->text - 1)); /* the rest is zero */
	atomic_store_explicit(&t->is_set, 1,
			      memory_order_release); /* partner: the reader of the file */
}

uint16_t key_find(void *table, size_t entry_bytes, uint32_t count, uint64_t key, bool *out_new)
{
	uint32_t at = (uint32_t)(key * 0x9e3779b97f4a7c15ull >> 40);

	if (out_new)
		*out_new = false;
	for (uint32_t i = 0; i < count - 1; i++) {
		uint32_t k = 1 + (at + i) % (count - 1);
		_Atomic uint64_t *place = (_Atomic uint64_t *)((char *)table + k * entry_bytes);
		uint64_t found = atomic_load_explicit(place, memory_order_relaxed);

		if (!found && !out_new)
			return 0;
		if (!found)
			*out_new = atomic_compare_exchange_strong_explicit(
				place, &found, key, memory_order_relaxed, memory_order_relaxed);
		if (found == key || (out_new && *out_new))
			return (uint16_t)k;
	}
	return 0;
}

static uint8_t find_key(const char *text)
{
	struct trace_text *all = file_texts();
	bool is_new;
	uint16_t k = key_find(all, sizeof *all, TRACE_TEXTS, (uintptr_t)text, &is_new);

	if (is_new)
		fill(&all[k], text);
	return (uint8_t)k;
}

/* A thread mostly uses the same text again. */
uint8_t text_index(const char *text)
{
	static __thread const char *last __attribute__((tls_model("initial-exec")));
	static __thread uint8_t index __attribute__((tls_model("initial-exec")));

	if (!text)
		return 0;
	if (base_unlikely(text != last)) {
		last = NULL; /* a handler may interrupt here */
		atomic_signal_fence(memory_order_seq_cst);
		index = find_key(text);
		atomic_signal_fence(memory_order_seq_cst);
		last = text;
	}
	return index;
}
