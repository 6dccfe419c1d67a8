/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * libFuzzer: bytes as calls of the public functions. The result verifies, runs, loads again, and
 * starts no operation before those that it requires.
 */
#include <stdint.h>
#include <stdio.h>

#include "goal_run.h"
#include "goal_walk.h"
#include "sluice/goal.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

enum { RANKS = 4, EDGES_MAX = 64, OPS_MAX = 64 };

struct input {
	const uint8_t *at, *end;
};

static uint32_t byte(struct input *in) { return in->at < in->end ? *in->at++ : 0; }

/* Mostly small, sometimes near the largest value. */
static uint64_t number(struct input *in)
{
	uint32_t v = byte(in);

	return v < 240 ? v : v < 250 ? v * 257u : UINT64_MAX - (v - 250);
}

static struct sluice_goal_place place(struct input *in)
{
	uint32_t space = byte(in) % 16;

	return (struct sluice_goal_place){ number(in), space < 14 ? space % 3 : space * 40 };
}

static int list(struct sluice_goal *g, struct input *in)
{
	struct sluice_goal_piece pieces[4];
	uint32_t count = byte(in) % 5;

	for (uint32_t k = 0; k < count; k++)
		pieces[k] = (struct sluice_goal_piece){ place(in), number(in) };
	return byte(in) % 2 ? sluice_goal_sendv(g, pieces, count, byte(in) % (RANKS + 1), 1) :
			      sluice_goal_recvv(g, pieces, count, byte(in) % (RANKS + 1), 1);
}

static int operation(struct sluice_goal *g, struct input *in)
{
	uint32_t what = byte(in) % 8;

	if (what == 0)
		return sluice_goal_send(g, place(in), number(in), byte(in) % (RANKS + 1), byte(in));
	if (what == 1)
		return sluice_goal_recv(g, place(in), number(in),
					byte(in) % 3 ? byte(in) % (RANKS + 1) : SLUICE_GOAL_ANY,
					byte(in));
	if (what == 2)
		return sluice_goal_copy(g, place(in), place(in), number(in));
	if (what == 3)
		return sluice_goal_calc(g, number(in));
	if (what == 4)
		return sluice_goal_stamp(g, place(in));
	if (what == 5)
		return list(g, in);
	if (what == 6)
		return sluice_goal_nop(g);
	return sluice_goal_local(g, (enum sluice_goal_operation)(byte(in) % 10),
				 (enum sluice_goal_type)(byte(in) % 13), place(in), place(in),
				 place(in), number(in));
}

static void must(bool is, const char *what)
{
	if (is)
		return;
	fprintf(stderr, "%s\n", what);
	abort();
}

static void check(const struct sluice_goal_schedule *s)
{
	static const uint64_t mem_bytes[GOAL_RUN_MEMS] = { UINT64_MAX, 70000, 70000 };
	static const struct goal_limits limits = { RANKS, GOAL_RUN_MEMS, mem_bytes, false };
	struct sluice_goal_schedule *again = NULL;
	uint64_t bytes, bytes_again;
	const struct goal_block *b = sluice_goal_data(s, &bytes);
	uint32_t work[OPS_MAX + EDGES_MAX];
	const char *wrong;

	must(!sluice_goal_load(b, bytes, RANKS, &again), "what was compiled does not load");
	must(!memcmp(sluice_goal_data(again, &bytes_again), b, bytes), "what was loaded differs");
	sluice_goal_schedule_destroy(again);
	if (b->scratch_bytes > 70000 || goal_verify(b, bytes, &limits, work))
		return; /* memory that there is not */
	wrong = goal_walk(b, bytes, &limits);
	wrong = wrong ? wrong : goal_run(b, mem_bytes);
	must(!wrong, wrong ? wrong : "");
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	struct input in = { data, data + size };
	struct sluice_goal_schedule *s = NULL;
	struct sluice_goal *g = NULL;
	int ops = 0, edges = 0;

	must(!sluice_goal_create(number(&in), &g), "no memory");
	while (in.at < in.end && ops < OPS_MAX && edges < EDGES_MAX) {
		if (ops && byte(&in) % 2) {
			int op = (int)(byte(&in) % ((uint32_t)ops + 1)),
			    before = (int)(byte(&in) % ((uint32_t)ops));

			(byte(&in) % 2 ? sluice_goal_requires : sluice_goal_irequires)(g, op,
										       before);
			edges++;
			continue;
		}
		if (operation(g, &in) < 0)
			break;
		ops++;
	}
	if (!sluice_goal_compile(g, RANKS, &s))
		check(s);
	sluice_goal_schedule_destroy(s);
	sluice_goal_destroy(g);
	return 0;
}
