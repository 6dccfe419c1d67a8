/* SPDX-License-Identifier: BSD-3-Clause */
/* The contract of engine/engine.h, for every engine of the registry, for `late`, and for `fault`
 * around each of them with several settings. A new engine is tested once it is in the registry. */
#include <errno.h>
#include <pthread.h>
#include <signal.h>
#include <sys/mman.h>
#include <unistd.h>

#include "engine_case.h"
#include "unit.h"

/* ---- bytes ------------------------------------------------------------------------------- */

static void copies_of_any_size(struct engine_case *e)
{
	enum { COPIES = 40, PAD = 64 };
	static struct engine_job jobs[COPIES];
	struct engine_chan *ch = engine_case_open(e, 0);
	unsigned seed = 1;

	for (int i = 0; i < COPIES; i++) {
		size_t bytes = (size_t)1 << rand_r(&seed) % 23;
		size_t from = (size_t)rand_r(&seed) % PAD, to = (size_t)rand_r(&seed) % PAD;

		bytes += (size_t)rand_r(&seed) % bytes;
		bytes = base_min_u64(bytes, e->caps.max_copy_bytes - PAD);
		engine_job_make(&jobs[i], base_round_up(to, e->caps.align_bytes),
				base_round_up(from, e->caps.align_bytes),
				base_round_up(bytes, e->caps.align_bytes));
		engine_job_post(e, ch, &jobs[i]);
	}
	for (int i = 0; i < COPIES; i++) {
		engine_job_wait(e, ch, &jobs[i]);
		CHECK_EQ(jobs[i].result, 0);
		engine_job_check(&jobs[i]);
		engine_job_free(&jobs[i]);
	}
	engine_case_close(e, ch);
}

UNIT_TEST(engine_copies_any_size_at_any_alignment) { engine_case_each(copies_of_any_size, 0); }

/* ---- ends -------------------------------------------------------------------------------- */

struct poster {
	struct engine_case *e;
	struct engine_chan *chans[3];
	struct engine_job *jobs;
	int count;
	unsigned seed;
};

static void *post_many(void *arg)
{
	struct poster *p = arg;

	for (int i = 0; i < p->count; i++) {
		struct engine_chan *ch = p->chans[(unsigned)rand_r(&p->seed) % 3];

		engine_job_post(p->e, ch, &p->jobs[i]);
	}
	return NULL;
}

static void many_threads_many_channels(struct engine_case *e)
{
	enum { THREADS = 4, EACH = 150 };
	static struct engine_job jobs[THREADS][EACH];
	static struct poster posters[THREADS];
	pthread_t threads[THREADS];
	struct engine_chan *chans[3];

	for (int i = 0; i < 3; i++)
		chans[i] = engine_case_open(e, i);
	for (int t = 0; t < THREADS; t++) {
		posters[t] = (struct poster){ e, { chans[0], chans[1], chans[2] }, jobs[t], EACH,
					      (unsigned)t };
		for (int i = 0; i < EACH; i++)
			engine_job_make(&jobs[t][i], 0, 0, 64 + 64 * (size_t)i);
	}
	for (int t = 0; t < THREADS; t++)
		CHECK(!pthread_create(&threads[t], NULL, post_many, &posters[t]));
	for (int t = 0; t < THREADS; t++)
		pthread_join(threads[t], NULL);
	for (int t = 0; t < THREADS; t++)
		for (int i = 0; i < EACH; i++) {
			engine_job_wait_any(e, chans, 3, &jobs[t][i]);
			CHECK_EQ(jobs[t][i].result, 0);
			engine_job_check(&jobs[t][i]);
		}
	for (int i = 0; i < 3; i++)
		engine_case_close(e, chans[i]);
	for (int t = 0; t < THREADS; t++)
		for (int i = 0; i < EACH; i++) {
			CHECK_EQ(jobs[t][i].ends,
				 1); /* no second end until the very end */
			engine_job_free(&jobs[t][i]);
		}
}

UNIT_TEST(engine_ends_each_copy_once_with_many_threads_and_channels)
{
	engine_case_each(many_threads_many_channels, 0);
}

/* The end of a copy posts the next, as detached operations do. */
struct relay {
	struct engine_job jobs[100];
	struct engine_chan *ch;
	_Atomic int next, refused;
};

static void post_next(struct engine_job *j)
{
	struct relay *r = j->arg;
	int i = atomic_fetch_add(&r->next, 1);

	if (i >= (int)BASE_ARRAY_LEN(r->jobs))
		return;
	if (engine_post(r->ch, &r->jobs[i].c))
		atomic_fetch_add(&r->refused, 1);
	engine_flush(r->ch);
}

static void posts_from_done(struct engine_case *e)
{
	static struct relay r;

	memset(&r, 0, sizeof r);
	r.ch = engine_case_open(e, 0);
	for (size_t i = 0; i < BASE_ARRAY_LEN(r.jobs); i++) {
		engine_job_make(&r.jobs[i], 0, 0, 20 * KIB);
		r.jobs[i].then = post_next;
		r.jobs[i].arg = &r;
	}
	/* as many as the channel holds, so that done() finds it full except for its own slot */
	for (uint32_t n = 0; n < e->caps.depth; n++) {
		int i = atomic_fetch_add(&r.next, 1); /* the relay is running already */

		if (i < (int)BASE_ARRAY_LEN(r.jobs))
			engine_job_post(e, r.ch, &r.jobs[i]);
	}
	for (size_t i = 0; i < BASE_ARRAY_LEN(r.jobs); i++) {
		engine_job_wait(e, r.ch, &r.jobs[i]);
		engine_job_check(&r.jobs[i]);
		engine_job_free(&r.jobs[i]);
	}
	engine_case_close(e, r.ch);
	CHECK_EQ(r.refused, 0);
}

UNIT_TEST(engine_is_posted_to_from_done) { engine_case_each(posts_from_done, 0); }

/* engine_job_post() fails when done() runs inside it; short copies make an immediate end likely. */
static void not_inside_post(struct engine_case *e)
{
	static struct engine_job j;
	struct engine_chan *ch = engine_case_open(e, 0);

	for (int i = 0; i < 200; i++) {
		engine_job_make(&j, 0, 0, 16);
		engine_job_post(e, ch, &j);
		engine_job_wait(e, ch, &j);
		engine_job_free(&j);
	}
	engine_case_close(e, ch);
}

UNIT_TEST(engine_calls_done_outside_of_post) { engine_case_each(not_inside_post, 0); }

/* ---- a full channel ---------------------------------------------------------------------- */

static _Atomic uint32_t gate;

static void wait_at_gate(struct engine_job *j)
{
	(void)j;
	while (!atomic_load(&gate))
		usleep(100);
}

static void full_channel(struct engine_case *e)
{
	static struct engine_job jobs[300];
	struct engine_chan *ch;
	uint32_t accepted = 0;
	int rc = 0;

	if (e->caps.flags & ENGINE_POLLED)
		return; /* done() of such an engine would wait for itself */
	ch = engine_case_open(e, 0);
	atomic_store(&gate, 0);
	CHECK(e->caps.depth < 200);
	while (accepted < 300) {
		engine_job_make(&jobs[accepted], 0, 0, 4 * KIB);
		jobs[accepted].then = wait_at_gate;
		rc = engine_post(ch, &jobs[accepted].c);
		if (rc)
			break;
		accepted++;
		engine_flush(ch);
	}
	engine_job_free(&jobs[accepted]);
	CHECK_EQ(rc, -EAGAIN);
	CHECK(accepted >= e->caps.depth);
	atomic_store(&gate, 1);
	for (uint32_t i = 0; i < accepted; i++) {
		engine_job_wait(e, ch, &jobs[i]);
		engine_job_check(&jobs[i]);
		engine_job_free(&jobs[i]);
	}
	CHECK_EQ(jobs[accepted].ends, 0);
	engine_job_make(&jobs[0], 0, 0, 4 * KIB);
	engine_job_post(e, ch, &jobs[0]); /* there is room again */
	engine_job_wait(e, ch, &jobs[0]);
	engine_job_free(&jobs[0]);
	engine_case_close(e, ch);
}

UNIT_TEST(engine_says_that_it_is_full_and_loses_nothing) { engine_case_each(full_channel, 0); }

/* ---- flush ------------------------------------------------------------------------------- */

static void flush_starts(struct engine_case *e)
{
	static struct engine_job jobs[4];
	struct engine_chan *ch = engine_case_open(e, 0);

	for (int round = 0; round < 30; round++) {
		usleep(round % 3 * 1000); /* workers seek, fall asleep, sleep */
		for (int i = 0; i < 4; i++) {
			engine_job_make(&jobs[i], 0, 0, 4 * KIB);
			CHECK_EQ(engine_post(ch, &jobs[i].c), 0);
		}
		engine_flush(ch);
		for (int i = 0; i < 4; i++) {
			engine_job_wait(e, ch, &jobs[i]);
			engine_job_free(&jobs[i]);
		}
		engine_flush(ch); /* flushing an empty channel does nothing */
	}
	engine_case_close(e, ch);
}

UNIT_TEST(engine_starts_all_that_was_posted_when_flushed) { engine_case_each(flush_starts, 0); }

/* Copies that ended without a poll. */
static void no_end_without_poll(struct engine_case *e)
{
	static struct engine_job jobs[4];
	struct engine_chan *ch;

	if (!(e->caps.flags & ENGINE_POLLED))
		return;
	ch = engine_case_open(e, 0);
	for (int i = 0; i < 4; i++) {
		engine_job_make(&jobs[i], 0, 0, 64 * KIB);
		CHECK_EQ(engine_post(ch, &jobs[i].c), 0);
	}
	engine_flush(ch);
	usleep(5000);
	for (int i = 0; i < 4; i++) {
		CHECK_EQ(atomic_load(&jobs[i].ends), 0);
		if (e->caps.flags & ENGINE_AUTONOMOUS)
			engine_job_arrive(e, &jobs[i]);
	}
	for (int i = 0; i < 4; i++) {
		engine_job_wait(e, ch, &jobs[i]);
		engine_job_check(&jobs[i]);
		engine_job_free(&jobs[i]);
	}
	engine_case_close(e, ch);
}

UNIT_TEST(engine_that_is_autonomous_goes_on_alone_and_ends_copies_in_polls_only)
{
	engine_case_each(no_end_without_poll, 0);
}

static void caps_are_sound(struct engine_case *e)
{
	const struct engine_caps *c = &e->caps;

	CHECK(c->depth > 0 && c->max_copy_bytes > 0 && c->align_bytes > 0);
	CHECK(c->piece_bytes <= c->max_copy_bytes);
	CHECK_EQ(c->piece_bytes % c->align_bytes, 0);
	/* whoever goes on alone ends where nobody is */
	CHECK(!(c->flags & ENGINE_AUTONOMOUS) || c->flags & ENGINE_POLLED);
}

UNIT_TEST(engine_has_sound_caps) { engine_case_each(caps_are_sound, 0); }

static struct {
	struct engine_chan *ch;
	struct engine_job *job;
	int rc;
} in_signal;

static void post_in_handler(int sig)
{
	(void)sig;
	in_signal.rc = engine_post(in_signal.ch, &in_signal.job->c);
	engine_flush(in_signal.ch);
}

static void from_signal_handler(struct engine_case *e)
{
	static struct engine_job jobs[50];
	struct sigaction sa = { .sa_handler = post_in_handler }, old;

	sigfillset(&sa.sa_mask);
	in_signal.ch = engine_case_open(e, 0);
	CHECK(!sigaction(SIGUSR1, &sa, &old));
	for (int i = 0; i < 50; i++) {
		engine_job_make(&jobs[i], 0, 0, 40 * KIB);
		in_signal.job = &jobs[i];
		do {
			raise(SIGUSR1);
			engine_case_poll(e, in_signal.ch);
		} while (in_signal.rc == -EAGAIN);
		CHECK_EQ(in_signal.rc, 0);
	}
	sigaction(SIGUSR1, &old, NULL);
	for (int i = 0; i < 50; i++) {
		engine_job_wait(e, in_signal.ch, &jobs[i]);
		engine_job_check(&jobs[i]);
		engine_job_free(&jobs[i]);
	}
	engine_case_close(e, in_signal.ch);
}

UNIT_TEST(engine_is_posted_to_from_a_signal_handler) { engine_case_each(from_signal_handler, 0); }

/* ---- cancelling -------------------------------------------------------------------------- */

static int end_cancelled(struct engine_case *e, struct engine_chan *ch, struct engine_job *j)
{
	engine_job_wait(e, ch, j);
	CHECK_EQ(atomic_load(&j->ends), 1);
	if (j->result)
		CHECK_EQ(j->result, -ECANCELED);
	else
		engine_job_check(j);
	return j->result != 0;
}

static void cancel_gives_back(struct engine_case *e)
{
	enum { COPIES = 24 };
	static struct engine_job jobs[COPIES], others[2];
	struct engine_chan *ch = engine_case_open(e, 0);
	int back = 0;

	for (int round = 0; round < 12; round++) {
		uint32_t n = (uint32_t)base_min_u64(COPIES, e->caps.depth - 2), posted = 0;

		for (int i = 0; i < 2; i++) {
			engine_job_make(&others[i], 0, 0, 20 * KIB);
			engine_job_post(e, ch, &others[i]);
		}
		for (; posted < n; posted++) {
			engine_job_make(&jobs[posted], 0, 0, 200 * KIB);
			CHECK_EQ(engine_post(ch, &jobs[posted].c), 0);
		}
		if (round % 3)
			engine_flush(ch);
		if (round % 3 == 2)
			usleep(100);
		engine_cancel(ch, jobs, sizeof(jobs));
		engine_flush(ch);
		for (uint32_t i = 0; i < posted; i++)
			back += end_cancelled(e, ch, &jobs[i]);
		for (int i = 0; i < 2; i++) {
			CHECK_EQ(end_cancelled(e, ch, &others[i]), 0);
			engine_job_free(&others[i]);
		}
		for (uint32_t i = 0; i < posted; i++)
			engine_job_free(&jobs[i]);
	}
	engine_case_close(e, ch);
	CHECK(!e->ops->cancel == !back);
}

UNIT_TEST(engine_gives_back_what_is_cancelled_and_has_not_begun)
{
	engine_case_each(cancel_gives_back, 0);
}

/* ---- retiring ---------------------------------------------------------------------------- */

static void retire_gives_back(struct engine_case *e)
{
	enum { COPIES = 8 };
	static struct engine_job jobs[COPIES];
	static struct engine_job late;
	static uint8_t ours[400 << 10];

	memset(ours, 0xee, sizeof ours);
	for (int round = 0; round < 8; round++) {
		struct engine_chan *ch = engine_case_open(e, 0);
		bool posted[COPIES];

		for (int i = 0; i < COPIES; i++) {
			engine_job_make(&jobs[i], 0, 0, sizeof ours);
			posted[i] = !engine_post(ch, &jobs[i].c);
			engine_flush(ch);
		}
		usleep((unsigned)(round * 150));
		e->ops->retire(ch);
		for (int i = 0; i < COPIES; i++) {
			CHECK_EQ(atomic_load(&jobs[i].ends), posted[i]);
			if (!posted[i])
				continue;
			if (!jobs[i].result)
				engine_job_check(&jobs[i]);
			else if (jobs[i].result != -EIO)
				CHECK_EQ(jobs[i].result, -ECANCELED);
			/* from here on the memory is the caller's: a late write would show */
			memcpy(jobs[i].dst, ours, sizeof ours);
		}
		engine_job_make(&late, 0, 0, 64);
		CHECK_EQ(engine_post(ch, &late.c), -ESHUTDOWN);
		engine_flush(ch);
		e->ops->retire(ch);
		usleep(2000);
		for (int i = 0; i < COPIES; i++)
			CHECK(!posted[i] || !memcmp(jobs[i].dst, ours, sizeof ours));
		CHECK_EQ(late.ends, 0);
		engine_case_close(e, ch);
		for (int i = 0; i < COPIES; i++)
			engine_job_free(&jobs[i]);
		engine_job_free(&late);
	}
}

UNIT_TEST(engine_gives_everything_back_when_retired)
{
	engine_case_each(retire_gives_back, ENGINE_CASE_BAD);
}

static _Atomic bool in_done;

static void linger(struct engine_job *j)
{
	(void)j;
	atomic_store(&in_done, true);
	usleep(10000);
}

/* After retire or close the caller may free what done() uses. */
static void waits_for_done(struct engine_case *e)
{
	static struct engine_job j;

	if (e->caps.flags & ENGINE_POLLED)
		return;
	for (int round = 0; round < 4; round++) {
		struct engine_chan *ch = engine_case_open(e, 0);

		atomic_store(&in_done, false);
		engine_job_make(&j, 0, 0, 64);
		j.then = linger;
		engine_job_post(e, ch, &j);
		while (!atomic_load(&in_done))
			usleep(50);
		if (round % 2) {
			e->ops->retire(ch);
			CHECK_EQ(atomic_load(&j.ends), 1);
		}
		engine_case_close(e, ch);
		CHECK_EQ(atomic_load(&j.ends), 1);
		engine_job_free(&j);
	}
}

UNIT_TEST(engine_waits_for_done_when_it_is_retired_or_closed)
{
	engine_case_each(waits_for_done, 0);
}

static void retire_in_done(struct engine_job *j)
{
	struct engine_chan *ch = j->arg;

	ch->ops->retire(ch);
}

static void retired_from_done(struct engine_case *e)
{
	static struct engine_job jobs[4];
	struct engine_chan *ch;

	for (int round = 0; round < 30; round++) {
		ch = engine_case_open(e, 0);
		for (int i = 0; i < 4; i++) {
			engine_job_make(&jobs[i], 0, 0, 30 * KIB);
			jobs[i].then = retire_in_done; /* every copy, perhaps two at a time */
			jobs[i].arg = ch;
			if (engine_post(ch, &jobs[i].c))
				CHECK(i > 0);
		}
		engine_flush(ch);
		engine_job_wait(e, ch, &jobs[0]);
		engine_case_close(e, ch);
		for (int i = 0; i < 4; i++)
			engine_job_free(&jobs[i]);
	}
}

UNIT_TEST(engine_is_retired_from_done) { engine_case_each(retired_from_done, 0); }

/* Posters race with retire: accepted copies end, refused ones are never touched. */
struct racer {
	struct engine_chan *ch;
	struct engine_job jobs[2000];
	int accepted[2000];
	_Atomic int posted;
};

static void *race(void *arg)
{
	struct racer *r = arg;

	for (int i = 0; i < 2000; i++) {
		r->accepted[i] = engine_post(r->ch, &r->jobs[i].c);
		engine_flush(r->ch);
		atomic_fetch_add(&r->posted, 1);
		if (r->accepted[i] == -ESHUTDOWN)
			break;
	}
	return NULL;
}

static void retire_races_with_posts(struct engine_case *e)
{
	static struct racer r;
	pthread_t thread;

	for (int round = 0; round < 20; round++) {
		memset(&r, 0, sizeof r);
		for (int i = 0; i < 2000; i++)
			engine_job_make(&r.jobs[i], 0, 0, 64);
		r.ch = engine_case_open(e, 0);
		CHECK(!pthread_create(&thread, NULL, race, &r));
		while (atomic_load(&r.posted) < 20 * round)
			engine_case_poll(e, r.ch);
		e->ops->retire(r.ch);
		pthread_join(thread, NULL);
		for (int i = 0; i < 2000 && r.accepted[i] != -ESHUTDOWN; i++)
			CHECK_EQ(r.jobs[i].ends, i < r.posted && !r.accepted[i]);
		engine_case_close(e, r.ch);
		for (int i = 0; i < 2000; i++)
			engine_job_free(&r.jobs[i]);
	}
}

UNIT_TEST(engine_retires_while_others_post) { engine_case_each(retire_races_with_posts, 0); }
