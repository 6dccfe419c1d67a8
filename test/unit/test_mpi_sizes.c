/* SPDX-License-Identifier: BSD-3-Clause */
/* Sizes of datatypes that are learnt once, by any thread. */
#include <pthread.h>

#include "mpi/abi/sizes.h"
#include "unit.h"

enum { HANDLES = 500, THREADS = 4, ROUNDS = 2000 };

static uint64_t size_of(uintptr_t handle) { return handle % 31 + 1; }

UNIT_TEST(sizes_are_found_as_they_were_learnt)
{
	static struct sizes s;
	int known = 0;

	for (uintptr_t h = 0x1000; h < 0x1000 + HANDLES; h++) {
		CHECK_EQ(sizes_find(&s, h), 0);
		sizes_learn(&s, h, size_of(h));
		sizes_learn(&s, h, size_of(h) + 1); /* once is enough */
	}
	for (uintptr_t h = 0x1000; h < 0x1000 + HANDLES; h++) {
		uint64_t size = sizes_find(&s, h);

		CHECK(!size || size == size_of(h));
		known += size != 0;
	}
	CHECK(known > SIZES / 2 && known <= SIZES);
}

static struct sizes shared[ROUNDS];

static void *learn_and_find(void *arg)
{
	uintptr_t first = (uintptr_t)arg;

	for (int round = 0; round < ROUNDS; round++) {
		for (uintptr_t h = 0x1000; h < 0x1010; h++) {
			uint64_t size = sizes_find(&shared[round], h ^ first);

			if (size && size != size_of(h ^ first))
				return (void *)1;
			sizes_learn(&shared[round], h ^ first, size_of(h ^ first));
		}
	}
	return NULL;
}

UNIT_TEST(threads_find_the_size_or_none)
{
	pthread_t threads[THREADS];
	void *wrong;

	for (uintptr_t i = 0; i < THREADS; i++)
		CHECK_EQ(pthread_create(&threads[i], NULL, learn_and_find, (void *)i), 0);
	for (int i = 0; i < THREADS; i++) {
		CHECK_EQ(pthread_join(threads[i], &wrong), 0);
		CHECK(!wrong);
	}
}
