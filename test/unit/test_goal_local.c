/* SPDX-License-Identifier: BSD-3-Clause */
/* Local operations against a definition for one element, for every instruction set of this CPU. */
#include <math.h>
#include <string.h>
#include <sys/mman.h>

#include "goal/local.h"
#include "os/os.h"
#include "ranks.h"
#include "unit.h"

enum { COUNT_MAX = 300, ROOM = 4096 };

_Static_assert((int)GOAL_ISA_AVX2 == (int)OS_SIMD_AVX2 &&
		       (int)GOAL_ISA_AVX512 == (int)OS_SIMD_AVX512,
	       "one order");

/* ---- 16-bit numbers as what they mean ---------------------------------------------------- */

/* sign, exponent, fraction: the definition. bits: of the fraction; bias: of the exponent. */
static double meaning(uint32_t h, int bits, int bias)
{
	uint32_t fraction = h & ((1u << bits) - 1), exponent = (h & 0x7fff) >> bits,
		 top = 0x7fffu >> bits;
	double sign = h >> 15 ? -1 : 1;

	if (exponent == top)
		return fraction ? NAN : sign * INFINITY;
	return sign * (exponent ? ldexp(1 + ldexp(fraction, -bits), (int)exponent - bias) :
				  ldexp(fraction, 1 - bias - bits));
}

/* The nearest representable number, ties to even: bisects the interval of bit patterns. */
static uint32_t nearest(double x, int bits, int bias)
{
	uint32_t sign = signbit(x) ? 0x8000 : 0, low = 0,
		 high = 0x7fffu >> bits << bits; /* up to infinity */
	double v = fabs(x), a, b;

	if (isnan(x))
		return 0x7fff;
	while (high - low > 1) {
		uint32_t middle = (low + high) / 2;

		*(meaning(middle, bits, bias) <= v ? &low : &high) = middle;
	}
	a = meaning(low, bits, bias);
	/* half way from the last number to the one that would follow it, infinity begins */
	b = isinf(meaning(high, bits, bias)) ? ldexp(1, bias + 1) : meaning(high, bits, bias);
	if (v - a < b - v || (v - a == b - v && low % 2 == 0))
		return low | sign;
	return high | sign;
}

static double f16(uint32_t h) { return meaning(h, 10, 15); }
static double bf16(uint32_t h) { return meaning(h, 7, 127); }

static bool is_nan16(uint32_t h, uint32_t dtype)
{
	return isnan(dtype == GOAL_F16 ? f16(h) : bf16(h));
}

/* ---- one element ------------------------------------------------------------------------- */

#define INTEGER(T, U)                                                                          \
	static U one_##T(uint32_t type, T x, T y)                                              \
	{                                                                                      \
		U ux = (U)x, uy = (U)y;                                                        \
		switch (type) {                                                                \
		case GOAL_ADD: return (U)((uint64_t)ux + uy);                                  \
		case GOAL_SUB: return (U)((uint64_t)ux - uy);                                  \
		case GOAL_MUL: return (U)((uint64_t)ux * uy);                                  \
		case GOAL_MAX: return x > y ? ux : uy;                                         \
		case GOAL_MIN: return x < y ? ux : uy;                                         \
		case GOAL_AND: return ux & uy;                                                 \
		case GOAL_OR: return ux | uy;                                                  \
		case GOAL_XOR: return ux ^ uy;                                                 \
		}                                                                              \
		if (!y)                                                                        \
			return 0;                                                              \
		return (T)-1 < (T)1 && y == (T)-1 ? (U)(0 - (uint64_t)ux) : (U)(x / y);           \
	}
INTEGER(int8_t, uint8_t)
INTEGER(int16_t, uint16_t) INTEGER(int32_t, uint32_t) INTEGER(int64_t, uint64_t)
	INTEGER(uint8_t, uint8_t) INTEGER(uint16_t, uint16_t) INTEGER(uint32_t, uint32_t)
		INTEGER(uint64_t, uint64_t)

#define FLOATING(T)                                                                            \
	static T one_##T(uint32_t type, T x, T y)                                              \
	{                                                                                      \
		switch (type) {                                                                \
		case GOAL_ADD: return x + y;                                                   \
		case GOAL_SUB: return x - y;                                                   \
		case GOAL_MUL: return x * y;                                                   \
		case GOAL_DIV: return x / y;                                                   \
		}                                                                              \
		if (isnan(x) || isnan(y))                                                      \
			return isnan(x) ? x : y;                                               \
		if (x == y)                                                                    \
			return (type == GOAL_MAX) == !signbit(x) ? x : y;                      \
		return (type == GOAL_MAX) == (x > y) ? x : y;                                  \
	}
			FLOATING(float) FLOATING(double)

	/* In f32, as the header says; sums of two numbers follow from the definition of both
	 * formats. */
	static uint32_t one_16(uint32_t type, uint32_t dtype, uint32_t x, uint32_t y)
{
	bool half = dtype == GOAL_F16;
	float r =
		one_float(type, (float)(half ? f16(x) : bf16(x)), (float)(half ? f16(y) : bf16(y)));

	return half ? nearest(r, 10, 15) : nearest(r, 7, 127);
}

/* Covers numbers that are equal with different bits, and NaNs. */
static bool same_bits(const void *a, const void *b, size_t bytes) { return !memcmp(a, b, bytes); }

/* Returns: true when element i of out is right; any NaN is right, except for MAX and MIN. */
static bool is_right(uint32_t type, uint32_t dtype, const void *out, const void *a, const void *b,
		     size_t i)
{
#define INTEGER_CASE(id, T)                                                                    \
	case GOAL_##id: {                                                                      \
		T x, y, got;                                                                   \
		memcpy(&x, (const char *)a + i * sizeof x, sizeof x);                          \
		memcpy(&y, (const char *)b + i * sizeof y, sizeof y);                          \
		memcpy(&got, (const char *)out + i * sizeof got, sizeof got);                  \
		return (T)one_##T(type, x, y) == got;                                          \
	}
#define FLOAT_CASE(id, T)                                                                          \
	case GOAL_##id: {                                                                          \
		T x, y, got, want;                                                                 \
		memcpy(&x, (const char *)a + i * sizeof x, sizeof x);                              \
		memcpy(&y, (const char *)b + i * sizeof y, sizeof y);                              \
		memcpy(&got, (const char *)out + i * sizeof got, sizeof got);                      \
		want = one_##T(type, x, y);                                                        \
		return (isnan(want) && isnan(got) && type < GOAL_MAX) ||                           \
		       same_bits(&want, &got, sizeof want);                                        \
	}
	uint16_t x, y, got;

	switch (dtype) {
	INTEGER_CASE(I8, int8_t)
	INTEGER_CASE(I16, int16_t)
	INTEGER_CASE(I32, int32_t)
	INTEGER_CASE(I64, int64_t)
	INTEGER_CASE(U8, uint8_t)
	INTEGER_CASE(U16, uint16_t)
	INTEGER_CASE(U32, uint32_t)
	INTEGER_CASE(U64, uint64_t)
	FLOAT_CASE(F32, float)
	FLOAT_CASE(F64, double)
	}
	memcpy(&x, (const char *)a + 2 * i, 2);
	memcpy(&y, (const char *)b + 2 * i, 2);
	memcpy(&got, (const char *)out + 2 * i, 2);
	if (is_nan16(x, dtype) || is_nan16(y, dtype))
		return is_nan16(got, dtype);
	x = (uint16_t)one_16(type, dtype, x, y);
	return x == got || (is_nan16(x, dtype) && is_nan16(got, dtype));
}

static bool is_operation(uint32_t type, uint32_t dtype)
{
	return type < GOAL_AND || !goal_dtype_is_float(dtype);
}

/* Small numbers, extremes, random bits. */
static void fill(uint64_t *seed, char *p, size_t bytes, uint32_t element)
{
	for (size_t i = 0; i + element <= bytes; i += element) {
		uint64_t v = ranks_random(seed), kind = ranks_below(seed, 8);
		uint64_t top = element == 8 ? 1ull << 63 : 1ull << (8 * element - 1);

		v = kind == 0 ? 0 : kind == 1 ? UINT64_MAX : kind == 2 ? top : kind == 3 ? v % 8 :
		    kind == 4 ? top - 1 : v;
		memcpy(p + i, &v, element); /* little endian */
	}
}

/* The end of readable memory: reading past it faults. */
static char *fenced(void)
{
	char *p = mmap(NULL, 2 * ROOM, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);

	CHECK(p != MAP_FAILED && !mprotect(p + ROOM, ROOM, PROT_NONE));
	return p + ROOM;
}

enum alias { APART, IS_A, IS_B, IS_BOTH };

static void check(enum goal_isa isa, uint32_t type, uint32_t dtype, char *const end[3],
		  uint64_t *seed)
{
	uint32_t element = goal_dtype_bytes(dtype);
	size_t bytes = ranks_below(seed, COUNT_MAX) * element,
	       gap = ranks_below(seed, 2) ? ranks_below(seed, 64) : 0;
	enum alias alias = (enum alias)ranks_below(seed, 4);
	char *a = end[0] - bytes - gap, *b = end[1] - bytes - ranks_below(seed, 64),
	     *dst = end[2] - bytes;
	char was_a[ROOM], was_b[ROOM];

	b = alias == IS_BOTH ? a : b;
	dst = alias == APART ? dst - ranks_below(seed, 64) : alias == IS_B ? b : a;
	fill(seed, a, bytes, element);
	fill(seed, b, bytes, element);
	memcpy(was_a, a, bytes);
	memcpy(was_b, b, bytes);
	dst[-1] = 77;
	goal_local(isa, type, dtype, dst, a, b, bytes);
	CHECK_EQ(dst[-1], 77);
	for (size_t i = 0; i < bytes / element; i++)
		if (!is_right(type, dtype, dst, was_a, was_b, i))
			unit_fail(__FILE__, __LINE__,
				  "isa %d type %u dtype %u alias %d: element %zu of %zu", isa, type,
				  dtype, alias, i, bytes / element);
}

UNIT_TEST(local_operations_compute_what_is_written_down)
{
	char *const end[3] = { fenced(), fenced(), fenced() };
	uint64_t seed = 1;

	for (int isa = 0; isa <= (int)os_simd(); isa++)
		for (uint32_t type = GOAL_ADD; type <= GOAL_XOR; type++)
			for (uint32_t dtype = 0; dtype < GOAL_DTYPE_COUNT; dtype++)
				for (int round = 0; is_operation(type, dtype) && round < 12;
				     round++)
					check((enum goal_isa)isa, type, dtype, end, &seed);
	for (int i = 0; i < 3; i++)
		munmap(end[i] - ROOM, 2 * ROOM);
}

/* Each 16-bit number with itself and with some others: covers the conversion of every number. */
UNIT_TEST(all_numbers_of_16_bits_are_computed_with)
{
	static uint16_t a[65536], b[65536], out[65536];
	const uint16_t others[] = { 0,      0x8000, 1,      0x3c00, 0x03ff, 0x0400,
				    0x7bff, 0xfbff, 0x7c00, 0xfc01, 0x3f80, 0x7f7f };

	for (int isa = 0; isa <= (int)os_simd(); isa++) {
		for (uint32_t dtype = GOAL_F16; dtype <= GOAL_BF16; dtype++) {
			for (int k = 0; k < 12; k++) {
				uint32_t type = GOAL_ADD + (uint32_t)k % 6;

				for (uint32_t i = 0; i < 65536; i++) {
					a[i] = (uint16_t)i;
					b[i] = others[(k + (int)dtype + 2 * isa) % 12];
				}
				goal_local((enum goal_isa)isa, type, dtype, out, a, b, sizeof a);
				for (uint32_t i = 0; i < 65536; i++)
					if (!is_right(type, dtype, out, a, b, i))
						unit_fail(__FILE__, __LINE__,
							  "isa %d type %u: %04x, %04x give %04x",
							  isa, type, a[i], b[i], out[i]);
			}
			/* the larger of a number and itself has the same bits */
			goal_local((enum goal_isa)isa, GOAL_MAX, dtype, out, a, a, sizeof a);
			for (uint32_t i = 0; i < 65536; i++)
				if (!is_nan16(i, dtype))
					CHECK_EQ(out[i], i);
		}
	}
}

UNIT_TEST(division_that_has_no_result_gives_the_one_that_is_written_down)
{
	int32_t x[4] = { INT32_MIN, 5, -7, 0 }, y[4] = { -1, 0, 2, 0 }, out[4];
	int64_t lx = INT64_MIN, ly = -1;

	goal_local(GOAL_ISA_BASE, GOAL_DIV, GOAL_I32, out, x, y, sizeof x);
	CHECK_EQ(out[0], INT32_MIN);
	CHECK_EQ(out[1], 0);
	CHECK_EQ(out[2], -3);
	CHECK_EQ(out[3], 0);
	goal_local(GOAL_ISA_BASE, GOAL_DIV, GOAL_I64, &lx, &lx, &ly, sizeof lx);
	CHECK(lx == INT64_MIN);
}

UNIT_TEST(larger_and_smaller_do_not_depend_on_the_order)
{
	float x[] = { -0.0f, 0.0f, NAN, 1, INFINITY, -1 },
	      y[] = { 0.0f, -0.0f, 1, NAN, 2, -INFINITY }, xy[6], yx[6];

	for (int isa = 0; isa <= (int)os_simd(); isa++) {
		for (uint32_t type = GOAL_MAX; type <= GOAL_MIN; type++) {
			goal_local((enum goal_isa)isa, type, GOAL_F32, xy, x, y, sizeof x);
			goal_local((enum goal_isa)isa, type, GOAL_F32, yx, y, x, sizeof x);
			CHECK(same_bits(xy, yx, sizeof xy));
			CHECK_EQ(!!signbit(xy[0]), type == GOAL_MIN);
			CHECK(isnan(xy[2]) && isnan(xy[3]));
		}
	}
}
