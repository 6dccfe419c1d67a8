/* SPDX-License-Identifier: BSD-3-Clause */
/* The generated trampolines, with a resolver of our own: what the caller passes arrives, whatever
 * the resolver does with the registers, and the first decision stands. */
#include <stdatomic.h>

#include "mpi/front/front.h"
#include "rt/early.h"
#include "unit.h"

enum { SLOTS = 2 * FRONT_EXPORTED_COUNT };

typedef double many(long, long, long, long, long, long, long, long, double, double, double, double,
		    double, double, double, double, long, double);

many MPI_Win_attach, PMPI_Win_attach, MPI_Init, PMPI_Win_create_c, MPI_Send;

extern _Atomic(void *) front_slots[2 * SLOTS] __attribute__((visibility("hidden")));

static int resolved, arrived;
static uint64_t last_slot;
static const void *last_caller;
static void *last_return;

static double target(long a, long b, long c, long d, long e, long f, long g, long h, double i,
		     double j, double k, double l, double m, double n, double o, double p, long q,
		     double r)
{
	arrived = a == 1 && b == 2 && c == 3 && d == 4 && e == 5 && f == 6 && g == 7 && h == 8 &&
		  i == 1.5 && j == 2.5 && k == 3.5 && l == 4.5 && m == 5.5 && n == 6.5 &&
		  o == 7.5 && p == 8.5 && q == 9 && r == 9.5;
	last_return = __builtin_return_address(0);
	return 42.25;
}

static double target_while_pending(long a, long b, long c, long d, long e, long f, long g, long h,
				   double i, double j, double k, double l, double m, double n,
				   double o, double p, long q, double r)
{
	return target(a, b, c, d, e, f, g, h, i, j, k, l, m, n, o, p, q, r) + 1;
}

/* Uses every register that passes arguments, and a stack that must be aligned for vectors. */
static __attribute__((noinline)) double scramble(long a, long b, long c, long d, long e, long f,
						 long g, long h, double i, double j, double k,
						 double l, double m, double n, double o, double p)
{
	_Alignas(16) volatile double v[2] = { (double)(a + b + c + d), (double)(e + f + g + h) };

	__asm__ volatile("" ::"r"(v) : "memory");
	return v[0] + v[1] + i + j + k + l + m + n + o + p + ((uintptr_t)v % 16 ? 1e9 : 0);
}

void *front_choose(void *trampoline, const char *name) { return trampoline; }

void *front_resolve(uint64_t slot, const void *caller)
{
	volatile double sum =
		scramble(-1, -2, -3, -4, -5, -6, -7, -8, .1, .2, .3, .4, .5, .6, .7, .8);

	resolved++;
	last_slot = slot;
	last_caller = caller;
	if (slot >= 2) { /* as for MPI_Init: decided anew each time */
		atomic_store_explicit(&front_slots[slot], (void *)target, memory_order_release);
		atomic_store_explicit(&front_slots[SLOTS + slot], (void *)target_while_pending,
				      memory_order_release);
	}
	return sum < 1e8 ? (void *)target : NULL;
}

static double call(many *function)
{
	arrived = 0;
	return function(1, 2, 3, 4, 5, 6, 7, 8, 1.5, 2.5, 3.5, 4.5, 5.5, 6.5, 7.5, 8.5, 9, 9.5);
}

enum {
#define X(name, is_init) WRAPPED_##name,
	FRONT_WRAPPED(X)
#undef X
};

UNIT_TEST(arguments_and_result_pass_the_resolver)
{
	resolved = 0;
	CHECK(call(MPI_Win_attach) == 42.25 && arrived);
	CHECK(resolved == 1 && last_slot == 2 * WRAPPED_Win_attach);
	CHECK(last_caller == last_return);
}

UNIT_TEST(a_filled_slot_is_jumped_through)
{
	call(PMPI_Win_attach);
	CHECK(last_slot == 2 * WRAPPED_Win_attach + 1);
	resolved = 0;
	CHECK(call(PMPI_Win_attach) == 42.25 && arrived);
	CHECK(resolved == 0);
}

UNIT_TEST(a_slot_that_is_not_filled_is_resolved_each_time)
{
	resolved = 0;
	CHECK(call(MPI_Init) == 42.25 && arrived);
	CHECK(call(MPI_Init) == 42.25 && arrived);
	CHECK(resolved == 2 && last_slot == 0);
}

UNIT_TEST(names_have_their_own_slots)
{
	resolved = 0;
	call(PMPI_Win_create_c);
	CHECK(resolved == 1 && last_slot == 2 * WRAPPED_Win_create_c + 1);
}

/* Both ways lead to the resolver at first, with the same number, and each has its own slot
 * afterwards. */
UNIT_TEST(pending_operations_lead_another_way)
{
	resolved = 0;
	atomic_store_explicit(&rt_intercept_refs, 1, memory_order_relaxed);
	CHECK(call(MPI_Send) == 42.25 && arrived);
	CHECK(resolved == 1 && last_slot == 2 * FRONT_WRAPPED_COUNT);
	CHECK(call(MPI_Send) == 43.25 && arrived);
	atomic_store_explicit(&rt_intercept_refs, 0, memory_order_relaxed);
	CHECK(call(MPI_Send) == 42.25 && arrived);
	CHECK(resolved == 1);
}
