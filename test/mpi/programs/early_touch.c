/* SPDX-License-Identifier: BSD-3-Clause */
/* Loads, stores and library functions on the buffer of a collective right after its return. */
#include "early.h"

#include <stdatomic.h>

static void load_at(struct trial *t, size_t at)
{
	uint8_t got = ((volatile uint8_t *)t->buf)[at];

	if (got != (uint8_t)t->want[at])
		check_fail("trial %d: byte %zu was %02x when it was first loaded, not %02x",
			   t->index, at, got, (uint8_t)t->want[at]);
}

static void store_at(struct trial *t, size_t at)
{
	((volatile char *)t->buf)[at] = (char)(t->index + 17);
	t->want[at] = (char)(t->index + 17);
}

static void load_first(struct trial *t)
{
	load_at(t, 0);
}

BEHAVIOUR(load_of_the_first_byte, 2)
{
	early_trials(load_first);
}

static void load_last(struct trial *t)
{
	load_at(t, t->bytes - 1);
	load_at(t, t->bytes - 1 - PAGE);
}

BEHAVIOUR(load_of_the_last_bytes, 2)
{
	early_trials(load_last);
}

static void load_middle(struct trial *t)
{
	load_at(t, t->bytes / 2);
	for (int i = 0; i < 40; i++)
		load_at(t, early_random(t, t->bytes));
}

BEHAVIOUR(loads_here_and_there, 2)
{
	early_trials(load_middle);
}

static void load_backwards(struct trial *t)
{
	for (size_t at = t->bytes; at > 3 * PAGE; at -= 3 * PAGE)
		load_at(t, at - 1);
}

BEHAVIOUR(loads_from_the_end_to_the_beginning, 2)
{
	early_trials(load_backwards);
}

static void store_first(struct trial *t)
{
	store_at(t, 0);
}

BEHAVIOUR(store_to_the_first_byte, 2)
{
	early_trials(store_first);
}

static void store_last(struct trial *t)
{
	store_at(t, t->bytes - 1);
	store_at(t, t->bytes - 1 - PAGE);
}

BEHAVIOUR(store_to_the_last_bytes, 2)
{
	early_trials(store_last);
}

static void store_middle(struct trial *t)
{
	for (int i = 0; i < 40; i++)
		store_at(t, early_random(t, t->bytes));
}

BEHAVIOUR(stores_here_and_there, 2)
{
	early_trials(store_middle);
}

/* A store does not have to read what was there: peers must get the old bytes, the buffer the new.
 */
static void overwrite(struct trial *t)
{
	memset(t->buf, t->index + 3, t->bytes);
	memset(t->want, t->index + 3, t->bytes);
}

BEHAVIOUR(the_whole_is_overwritten, 2)
{
	early_trials(overwrite);
}

static void overwrite_backwards(struct trial *t)
{
	for (size_t at = t->bytes; at >= 1000; at -= 1000)
		memset(t->buf + at - 1000, (int)at, 1000);
	for (size_t at = t->bytes; at >= 1000; at -= 1000)
		memset(t->want + at - 1000, (int)at, 1000);
}

BEHAVIOUR(the_whole_is_overwritten_backwards, 2)
{
	early_trials(overwrite_backwards);
}

/* Bytes beside the buffer in its first and last page stay the program's. */
static void use_neighbours(struct trial *t)
{
	for (int i = 1; i <= CANARY; i++) {
		volatile char *below = t->buf - i, *above = t->buf + t->bytes - 1 + i;

		EXPECT((uint8_t)*below == (uint8_t)t->index);
		EXPECT((uint8_t)*above == (uint8_t)(t->index + 1));
		*below = (char)~*below;
		*above = (char)~*above;
	}
	load_middle(t);
	for (int i = 1; i <= CANARY; i++) {
		EXPECT((uint8_t)t->buf[-i] == (uint8_t)~t->index);
		EXPECT((uint8_t)t->buf[t->bytes - 1 + (size_t)i] == (uint8_t)~(t->index + 1));
	}
	set_canaries(t, t->index);
}

BEHAVIOUR(bytes_beside_the_buffer_are_used, 2)
{
	early_trials(use_neighbours);
}

static void across_pages(struct trial *t)
{
	uintptr_t page = ((uintptr_t)t->buf + t->bytes / 2) & ~(uintptr_t)(PAGE - 1);

	for (int i = 1; i < 8; i++) {
		size_t at = page + (size_t)i * 2 * PAGE - (uintptr_t)t->buf - (size_t)i;
		uint64_t got;

		memcpy(&got, t->buf + at, 8);
		early_same(t, &got, t->want + at, 8, "a word across pages");
		got = ~got;
		memcpy(t->buf + at, &got, 8);
		memcpy(t->want + at, &got, 8);
	}
}

BEHAVIOUR(words_across_pages, 2)
{
	early_trials(across_pages);
}

static void count_in_it(struct trial *t)
{
	uintptr_t word = ((uintptr_t)t->buf + t->bytes / 3 + 7) & ~(uintptr_t)7;
	_Atomic uint64_t *counter = (_Atomic uint64_t *)word;
	uint64_t want;

	memcpy(&want, t->want + (word - (uintptr_t)t->buf), 8);
	EXPECT(atomic_fetch_add(counter, 5) == want);
	want += 5;
	EXPECT(atomic_compare_exchange_strong(counter, &want, want + 1));
	want++;
	memcpy(t->want + (word - (uintptr_t)t->buf), &want, 8);
}

BEHAVIOUR(atomic_operations, 2)
{
	early_trials(count_in_it);
}

static void copy_out(struct trial *t)
{
	char *copy = check_alloc(t->bytes);

	memcpy(copy, t->buf, t->bytes);
	early_same(t, copy, t->want, t->bytes, "memcpy");
	memset(copy, 0, t->bytes);
#ifdef __x86_64__
	void *to = copy;
	const void *from = t->buf;
	size_t n = t->bytes;

	__asm__ volatile("rep movsb" : "+D"(to), "+S"(from), "+c"(n) : : "memory");
	early_same(t, copy, t->want, t->bytes, "rep movsb");
#endif
	free(copy);
}

BEHAVIOUR(copied_out, 2)
{
	early_trials(copy_out);
}

static void copy_within(struct trial *t)
{
	size_t third = t->bytes / 3;

	memmove(t->buf + third / 2, t->buf, third);
	memmove(t->want + third / 2, t->want, third);
	memmove(t->buf + 1, t->buf + 2 * third, third);
	memmove(t->want + 1, t->want + 2 * third, third);
}

BEHAVIOUR(moved_within, 2)
{
	early_trials(copy_within);
}

static void as_string(struct trial *t)
{
	EXPECT(strlen(t->buf) == t->piece - 1);
	EXPECT(memchr(t->buf, 0, t->bytes) == t->buf + t->piece - 1);
	EXPECT(!strcmp(t->buf, t->want));
}

BEHAVIOUR(used_as_a_string, 2)
{
	early_trials(as_string);
}

static int by_value(const void *a, const void *b)
{
	uint32_t x, y;

	memcpy(&x, a, 4);
	memcpy(&y, b, 4);
	return (x > y) - (x < y);
}

static void sort_part(struct trial *t)
{
	size_t at = t->bytes / 4 * 3 / 4 * 4, n = least(t->bytes - at, 200000) / 4;

	qsort(t->buf + at, n, 4, by_value);
	qsort(t->want + at, n, 4, by_value);
}

BEHAVIOUR(sorted, 2)
{
	early_trials(sort_part);
}

static void only_wait(struct trial *t)
{
	early_sleep_us((long)early_random(t, 6000));
}

/* The data has long been there, or has not, when the buffer is first looked at. */
BEHAVIOUR(touched_after_a_while, 2)
{
	early_trials(only_wait);
}

static double matrix[96][96], product[96][96];
static void compute(struct trial *t)
{
	for (int i = 0; i < 96; i++)
		for (int j = 0; j < 96; j++)
			matrix[i][j] = i + j + t->index;
	for (int i = 0; i < 96; i++)
		for (int j = 0; j < 96; j++) {
			product[i][j] = 0;
			for (int k = 0; k < 96; k++)
				product[i][j] += matrix[i][k] * matrix[k][j];
		}
	EXPECT(product[1][2] == product[2][1]);
}

BEHAVIOUR(touched_after_computing, 2)
{
	early_trials(compute);
}

/* A buffer whose pages are used while those behind them are still coming. */
static void one_by_one(struct trial *t)
{
	uint64_t sum = 0, want = 0;

	for (size_t at = 0; at < t->bytes; at += 512) {
		sum += (uint8_t)t->buf[at];
		t->buf[at] = (char)at;
	}
	for (size_t at = 0; at < t->bytes; at += 512) {
		want += (uint8_t)t->want[at];
		t->want[at] = (char)at;
	}
	EXPECT(sum == want);
}

BEHAVIOUR(used_page_by_page, 2)
{
	early_trials(one_by_one);
}

int main(int argc, char **argv)
{
	return check_main(argc, argv, MPI_THREAD_SINGLE);
}
