/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Schedules of sluice.ko in user space, under sanitizers: group.c and run.c over kernel.h. Ranks
 * run whole and damaged programs, cancel and leave in any order, and allocations fail.
 *
 *   host ROUNDS   exit status 1 when a result is wrong
 */
#include "kernel.h"

unsigned fail_at, spinning;
struct work_struct *queued_work;
struct file group_file;

#include "../../../kernel/sluice/group.c"
#include "goal/gen/gen.h"

enum { RANKS = 4, PAGES = 8, BYTES = PAGES * 4096, BLOCK_BYTES = 64 << 10, OPS = 600 };

struct sluice_counters sluice_counters;
static struct sluice_context contexts[RANKS];
static struct sluice_record records[RANKS][SLUICE_SLOTS];
/* Page i of a rank lies at address_of(rank) + i * PAGE_SIZE, and nowhere near page i + 1. */
static struct page *memory[RANKS][PAGES];
static uint64_t words[BLOCK_BYTES / 8];
static struct goal_block *const block = (struct goal_block *)words;
static unsigned pins;

#define CHECK(x)                                                                                   \
	do {                                                                                       \
		if (!(x)) {                                                                        \
			printf("BROKEN line %d: %s\n", __LINE__, #x);                              \
			exit(1);                                                                   \
		}                                                                                  \
	} while (0)

/* ---- what the other files of the module do ------------------------------------------------ */

static u64 address_of(u32 rank) { return (u64)(rank + 1) << 40; }

static u8 *byte_at(u32 rank, u64 off)
{
	return &memory[rank][off / PAGE_SIZE]->bytes[off % PAGE_SIZE];
}

/* Only memory[rank] is mapped. The page table has exactly the pages of the range. */
struct sluice_region *sluice_region_get(struct sluice_context *c, u64 address, u64 bytes,
					bool writable)
{
	u32 rank = (u32)(c - contexts);
	u64 from = address - address_of(rank), start = from & ~(u64)(PAGE_SIZE - 1);
	struct sluice_region *r;

	if (from >= BYTES || bytes > BYTES - from)
		return ERR_PTR(-EFAULT);
	r = calloc(1, sizeof(*r));
	r->start = address_of(rank) + start;
	r->count = DIV_ROUND_UP(from + bytes - start, PAGE_SIZE);
	r->writable = writable;
	r->pages = calloc(r->count, sizeof(*r->pages));
	for (unsigned long i = 0; i < r->count; i++)
		r->pages[i] = memory[rank][start / PAGE_SIZE + i];
	pins++;
	return r;
}

void sluice_region_put(struct sluice_region *r)
{
	pins--;
	free(r->pages);
	free(r);
}

bool sluice_slot_claim(struct sluice_context *c, unsigned int slot)
{
	bool is_free = !(c->busy & BIT_ULL(slot));

	c->busy |= BIT_ULL(slot);
	return is_free;
}

void sluice_slot_end(struct sluice_context *c, unsigned int slot, int result)
{
	CHECK(c->busy & BIT_ULL(slot) && !records[c - contexts][slot].state);
	c->busy &= ~BIT_ULL(slot);
	records[c - contexts][slot] = (struct sluice_record){ SLUICE_RECORD_ENDED, result, 0 };
}

/* ---- programs ----------------------------------------------------------------------------- */

static unsigned below(unsigned n) { return (unsigned)rand() % n; }

static void make(const char *name, u32 rank, u32 ranks)
{
	static struct goal_op ops[OPS];
	static struct goal_edge edges[OPS];
	struct gen_params p = { .ranks = ranks,
				.bytes = 4096 * 3 / ranks / 8 * 8,
				.op = GOAL_ADD,
				.dtype = GOAL_I64,
				.segment_bytes = 1000 };
	struct goal_build b;
	const char *why;

	CHECK(!gen_check(gen_find(name), &p, &why));
	goal_build_init(&b, ops, OPS, edges, OPS);
	gen_build(gen_find(name), &p, rank, &b);
	CHECK(!goal_compile(&b, block, BLOCK_BYTES));
}

static void damage(void)
{
	u8 *bytes = (u8 *)block;
	u64 n = block->bytes;

	for (unsigned k = 1 + below(3); k; k--)
		bytes[(u64)rand() % n] = below(2) ? (u8)rand() : (u8)(bytes[(u64)rand() % n] ^ 1);
}

/* Buffer 0 begins `off` bytes after the beginning of memory, buffer 1 as far behind its middle. */
static int run_block(u32 rank, unsigned slot, u64 id, size_t bytes, unsigned off)
{
	u64 at = address_of(rank) + off;
	struct sluice_buffer buffers[2] = { { at, BYTES / 2 - off },
					    { at + BYTES / 2, BYTES / 2 - off } };
	void *program = malloc(bytes); /* exactly as long: a read beyond it shows */
	struct sluice_run arg = { .slot = slot,
				  .buffer_count = 2,
				  .bytes = bytes,
				  .program = (uintptr_t)program,
				  .id = id,
				  .cookie = slot,
				  .buffers = (uintptr_t)buffers };
	int rc;

	memcpy(program, block, bytes);
	if (!(contexts[rank].busy & BIT_ULL(slot)))
		records[rank][slot].state = 0;
	rc = sluice_run_start(&contexts[rank], &arg);
	free(program);
	return rc;
}

static void work(void) { run_work(); }

/* ---- rounds ------------------------------------------------------------------------------- */

static const char *const names[] = { "dissemination-barrier", "bruck-alltoall", "ring-bcast",
				     "dissemination-allreduce", "linear-alltoall" };

static void begin(u32 ranks)
{
	memset(contexts, 0, sizeof(contexts));
	CHECK(sluice_group_create(&(struct sluice_group){ ranks, 0 }) == 3);
	for (u32 i = 0; i < ranks; i++)
		CHECK(!sluice_group_join(&contexts[i], &(struct sluice_join){ 3, i }));
}

static void end(u32 ranks)
{
	for (u32 i = 0; i < ranks; i++)
		sluice_run_cancel(&contexts[i], 0, U64_MAX);
	work();
	for (u32 i = 0; i < ranks; i++) {
		CHECK(!contexts[i].busy);
		sluice_group_leave(&contexts[i]);
	}
	work();
	group_file.f_op->release(NULL, &group_file);
	CHECK(!pins);
}

/* Every rank runs everything, each in an order of its own: all of it ends well. */
static void whole(void)
{
	u32 ranks = 1 + below(RANKS);
	unsigned todo[RANKS] = { 0 }, n = 20;

	begin(ranks);
	for (unsigned left = ranks * n; left; left--) {
		u32 rank = below(ranks);

		while (todo[rank] == n)
			rank = (rank + 1) % ranks;
		make(names[todo[rank] % 5], rank, ranks);
		CHECK(!run_block(rank, todo[rank], todo[rank], block->bytes, below(300)));
		todo[rank]++;
		if (below(2))
			work();
	}
	work();
	for (u32 rank = 0; rank < ranks; rank++)
		for (unsigned i = 0; i < n; i++)
			CHECK(records[rank][i].state && !records[rank][i].result);
	end(ranks);
}

/* Three messages under one tag arrive in the order in which they were posted. */
static void make_three(u32 rank)
{
	static struct goal_op ops[OPS];
	static struct goal_edge edges[OPS];
	struct goal_build b;
	u32 last = GOAL_NONE;

	goal_build_init(&b, ops, OPS, edges, OPS);
	for (u32 i = 0; i < 3; i++) {
		u64 at = 5000 * i;
		u32 op = rank ? goal_recv(&b, 0, 9, GOAL_USER + 1, at, 5000)
			      : goal_send(&b, 1, 9, i, GOAL_USER, at, 5000);

		if (i)
			goal_irequires(&b, op, last);
		last = op;
	}
	CHECK(!goal_compile(&b, block, BLOCK_BYTES));
}

static void contents(void)
{
	unsigned off = below(300);
	u32 first = below(2);

	begin(2);
	for (u32 i = 0; i < 2; i++) {
		u32 rank = i ? 1 - first : first;

		for (u64 k = 0; k < BYTES; k++)
			*byte_at(rank, k) = (u8)(k * 7 + k / 251 + rank);
		make_three(rank);
		CHECK(!run_block(rank, 1, 1, block->bytes, off));
		if (below(2))
			work();
	}
	work();
	CHECK(!records[0][1].result && records[0][1].state && records[1][1].state);
	for (u64 k = 0; k < BYTES; k++) {
		u64 from = k - BYTES / 2;
		bool is_copied = k >= BYTES / 2 + off && k < BYTES / 2 + off + 15000;

		CHECK(*byte_at(1, k) ==
		      (u8)(is_copied ? from * 7 + from / 251 : k * 7 + k / 251 + 1));
	}
	/* one waits, the other leaves */
	make("dissemination-barrier", 0, 2);
	CHECK(!run_block(0, 2, 2, block->bytes, 0));
	work();
	CHECK(!records[0][2].state);
	sluice_group_leave(&contexts[1]);
	work();
	CHECK(records[0][2].state && records[0][2].result == -EPIPE);
	end(2);
}

static void one_step(u32 ranks)
{
	u32 rank = below(ranks), as = below(8) ? rank : below(ranks);
	size_t bytes;

	make(names[below(5)], as, ranks);
	bytes = block->bytes;
	if (below(2))
		damage();
	fail_at = below(4) ? 0 : 1 + below(8);
	run_block(rank, below(8), below(6), bytes, below(300));
	fail_at = 0;
	if (below(3))
		work();
	if (!below(30))
		sluice_run_cancel(&contexts[rank], below(8), 2);
}

static void damaged(void)
{
	u32 ranks = 1 + below(RANKS);

	begin(ranks);
	for (unsigned i = 0; i < 30; i++)
		one_step(ranks);
	if (!below(3)) { /* a rank leaves; the others hear of it */
		sluice_run_cancel(&contexts[0], 0, U64_MAX);
		work();
		sluice_group_leave(&contexts[0]);
		work();
		contexts[0].retired = true;
	}
	end(ranks);
}

int main(int argc, char **argv)
{
	int rounds = argc > 1 ? atoi(argv[1]) : 100;

	CHECK(!sluice_group_init());
	for (int i = 0; i < RANKS * PAGES; i++)
		memory[i / PAGES][i % PAGES] = malloc(sizeof(struct page));
	for (int i = 0; i < rounds; i++) {
		srand((unsigned)i);
		whole();
		contents();
		damaged();
	}
	sluice_group_exit();
	printf("HOST %d rounds, %ld runs, %ld messages\n", rounds, (long)sluice_counters.runs,
	       (long)sluice_counters.messages);
	return !sluice_counters.messages;
}
