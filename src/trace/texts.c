/* SPDX-License-Identifier: BSD-3-Clause */
/* Constant sentences of the library's, by their addresses. Inserted once, found by any thread. */
#include <string.h>

#include "trace/private.h"

static void fill(struct trace_text *t, const char *text)
{
	size_t n = strlen(text);

	memcpy(t->text, text, base_min_u64(n, sizeof t->text - 1)); /* the rest is zero */
	atomic_store_explicit(&t->is_set, 1, memory_order_release); /* partner: the reader of the file */
}

static uint16_t look_up(const char *text)
{
	struct trace_text *all = file_texts();
	uint64_t key = (uintptr_t)text;
	uint32_t at = (uint32_t)(key * 0x9e3779b97f4a7c15ull >> 40);

	for (uint32_t i = 0; i < TRACE_TEXTS; i++) {
		uint32_t k = 1 + (at + i) % (TRACE_TEXTS - 1);
		uint64_t found = atomic_load_explicit(&all[k].key, memory_order_relaxed);

		if (base_likely(found == key))
			return (uint16_t)k;
		if (found)
			continue;
		if (atomic_compare_exchange_strong_explicit(&all[k].key, &found, key, memory_order_relaxed,
							    memory_order_relaxed)) {
			fill(&all[k], text);
			return (uint16_t)k;
		}
		if (found == key)
			return (uint16_t)k;
	}
	return 0;
}

/* A thread says the same again and again. */
uint16_t text_index(const char *text)
{
	static __thread const char *last __attribute__((tls_model("initial-exec")));
	static __thread uint16_t index __attribute__((tls_model("initial-exec")));

	if (!text)
		return 0;
	if (base_unlikely(text != last)) {
		last = NULL; /* a handler of ours may come in between */
		atomic_signal_fence(memory_order_seq_cst);
		index = look_up(text);
		atomic_signal_fence(memory_order_seq_cst);
		last = text;
	}
	return index;
}
