/* SPDX-License-Identifier: BSD-3-Clause */
#include "engine_case.h"

#include <dirent.h>
#include <errno.h>
#include <pthread.h>
#include <unistd.h>

#include "dsa_machine.h"
#include "engine_late.h"
#include "kmod_model.h"
#include "unit.h"

enum { PAD = 64, PATIENCE_S = 20 };

/* ---- engines ----------------------------------------------------------------------------- */

/* Settings of `fault` with which every copy succeeds, and with which some fail. */
static const char *const good[] = { "delay=300", "rate=3G", "delay=50,rate=8G", NULL };
static const char *const bad[] = {
	"error=3", "short=2", "hang=1", "hang=4,delay=100", "error=1,hang=2,rate=2G", NULL
};

void engine_case_options(const struct engine_case *e, const char *more)
{
	char fault[256], workers[64], problems[512];
	/* idle-priority workers would wait for the machine's other load */
	char *env[] = { fault, workers, "SLUICE_TEST=fault=engine_idle:all", (char *)more, NULL };

	snprintf(fault, sizeof fault, "SLUICE_TEST=dsa_root=%s,engine_fault=%s", dsa_machine(),
		 e->fault);
	snprintf(workers, sizeof workers, "SLUICE_WORKERS=%d", e->workers);
	if (base_options_load(env, problems, sizeof problems))
		unit_fail(__FILE__, __LINE__, "%s", problems);
}

/* UNIT_ENGINE_ONLY names one engine, also below `fault`. */
static bool is_wanted(const struct engine_ops *ops, const char *fault)
{
	const char *only = getenv("UNIT_ENGINE_ONLY");

	return !only || !strcmp(ops->name, only) || strstr(fault, only);
}

static void run_one(void (*f)(struct engine_case *), const struct engine_ops *ops,
		    const char *fault, int workers)
{
	struct engine_case e = { .ops = ops, .fault = fault, .workers = workers };
	char reason[256] = "";
	struct engine_chan *ch;

	if (!is_wanted(ops, fault))
		return;
	engine_case_options(&e, NULL);
	if (getenv("UNIT_ENGINE_SHOW"))
		printf("  %s, %s, %d workers\n", ops->name, fault, workers);
	if (ops->probe(reason, sizeof reason)) {
		printf("  not with %s: %s\n", ops->name, reason);
		return;
	}
	ch = engine_case_open(&e, 0);
	ops->caps(ch, &e.caps);
	engine_case_close(&e, ch);
	f(&e);
}

/* `fault` around an engine that is not sw. */
static void run_faults_over(void (*f)(struct engine_case *), const char *inner, unsigned what)
{
	static const char *const how[] = { "delay=50,rate=8G", "error=3", "hang=1",
					   "hang=4,short=2", NULL };
	char settings[64];

	for (int i = 0; how[i] && (!i || what & ENGINE_CASE_BAD); i++) {
		snprintf(settings, sizeof settings, "inner=%s,%s", inner, how[i]);
		run_one(f, engine_find("fault"), settings, 1);
	}
}

void engine_case_each(void (*f)(struct engine_case *), unsigned what)
{
	const struct engine_ops *fault = engine_find("fault");

	engine_late_add();
	dsa_machine_reset();
	kmod_model_reset();
#ifdef __SANITIZE_THREAD__
	if (what & ENGINE_CASE_FORKS)
		unit_skip("this sanitizer has no threads in a forked child");
#endif
	for (const struct engine_ops *const *e = engine_registry; *e; e++) {
		run_one(f, *e, "", 2);
		if (*e != fault && *e != engine_find("sw"))
			run_faults_over(f, (*e)->name, what);
	}
	run_one(f, engine_of_test, "", 2);
	run_faults_over(f, engine_of_test->name, what);
	run_one(f, engine_find("sw"), "", 1);
	run_one(f, engine_find("sw"), "", 3);
	for (const char *const *s = good; *s; s++)
		run_one(f, fault, *s, 1);
	for (const char *const *s = bad; what & ENGINE_CASE_BAD && *s; s++)
		run_one(f, fault, *s, 2);
}

struct engine_chan *engine_case_open(struct engine_case *e, int index)
{
	struct engine_chan *ch = NULL;
	int count = e->ops->chan_count(-1);
	int rc;

	CHECK(count > 0);
	rc = e->ops->chan_open(-1, index % count, &ch);
	CHECK_EQ(rc, 0);
	CHECK(ch && ch->ops == e->ops);
	return ch;
}

void engine_case_close(struct engine_case *e, struct engine_chan *ch) { e->ops->chan_close(ch); }

void engine_case_poll(struct engine_case *e, struct engine_chan *ch)
{
	if (e->caps.flags & ENGINE_POLLED)
		engine_poll(ch);
}

/* ---- threads ----------------------------------------------------------------------------- */

typedef void visitor(const char *value, uint64_t *arg);

/* Calls visit() with the value of `key` in the status of an engine thread. */
static void one_thread(FILE *status, const char *key, visitor *visit, uint64_t *arg)
{
	bool ours = false;
	char line[256];

	while (fgets(line, sizeof line, status)) {
		if (!strncmp(line, "Name:\tsluice-", 13))
			ours = true;
		if (ours && !strncmp(line, key, strlen(key)))
			visit(line + strlen(key), arg);
	}
}

static void each_thread(const char *key, visitor *visit, uint64_t *arg)
{
	DIR *tasks = opendir("/proc/self/task");
	struct dirent *d;

	while (tasks && (d = readdir(tasks))) {
		char path[300];
		FILE *status;

		snprintf(path, sizeof path, "/proc/self/task/%s/status", d->d_name);
		status = fopen(path, "re");
		if (!status)
			continue;
		one_thread(status, key, visit, arg);
		fclose(status);
	}
	if (tasks)
		closedir(tasks);
}

static void add(const char *value, uint64_t *sum) { *sum += strtoull(value, NULL, 10); }

static void count_awake(const char *value, uint64_t *n) { *n += !strchr(value, 'S'); }

uint64_t engine_case_switches(void)
{
	uint64_t sum = 0;

	each_thread("voluntary_ctxt_switches:", add, &sum);
	return sum;
}

void engine_case_settle(void)
{
	/* twice in a row, as a seeking thread may be off the CPU for a moment */
	for (int tries = 0, asleep = 0; tries < 20000 && asleep < 3; tries++) {
		uint64_t awake = 0;

		each_thread("State:", count_awake, &awake);
		asleep = awake ? 0 : asleep + 1;
		usleep(1000);
	}
}

/* ---- copies ------------------------------------------------------------------------------ */

static _Thread_local const struct engine_job *posting; /* the job that this thread is posting */

/* Contents differ by size and page. A sanitizer would need seconds here. */
UNIT_UNSANITIZED static void fill(uint8_t *p, size_t bytes)
{
	for (size_t i = 0; i < bytes; i++)
		p[i] = (uint8_t)(i * 7 + (i >> 8) + bytes);
}

static void job_done(struct engine_copy *c, int result)
{
	struct engine_job *j = (struct engine_job *)c;

	if (posting)
		atomic_fetch_add(&j->ends, 1000);
	j->result = result;
	if (j->then)
		j->then(j);
	atomic_fetch_add(&j->ends, 1);
}

void engine_job_make(struct engine_job *j, size_t to, size_t from, size_t bytes)
{
	size_t room = base_round_up(bytes + 4 * PAD + 64, 64);
	uint8_t *src;

	memset(j, 0, sizeof *j);
	j->memory = aligned_alloc(64, 2 * room);
	CHECK(j->memory);
	j->dst = j->memory + PAD + to;
	j->src = src = j->memory + room + PAD + from;
	j->c = (struct engine_copy){
		.dst = j->dst, .src = j->src, .bytes = bytes, .done = job_done
	};
	memset(j->memory, 0xaa, room);
	fill(src, bytes);
}

void engine_job_post(struct engine_case *e, struct engine_chan *ch, struct engine_job *j)
{
	uint64_t until = os_now_ns() + PATIENCE_S * 1000000000ull;
	int rc;

	do {
		posting = j;
		rc = engine_post(ch, &j->c);
		posting = NULL;
		if (rc == -EAGAIN) {
			engine_flush(ch);
			engine_case_poll(e, ch);
			usleep(10);
		}
	} while (rc == -EAGAIN && os_now_ns() < until);
	CHECK_EQ(rc, 0);
	engine_flush(ch);
}

void engine_job_wait_any(struct engine_case *e, struct engine_chan **chans, int n,
			 struct engine_job *j)
{
	uint64_t until = os_now_ns() + PATIENCE_S * 1000000000ull;

	for (unsigned k = 0; !atomic_load(&j->ends); k++) {
		for (int i = 0; i < n; i++)
			engine_case_poll(e, chans[i]);
		if (k > 100)
			usleep(20);
		if (os_now_ns() > until)
			unit_fail(__FILE__, __LINE__, "%s: a copy of %zu bytes does not end",
				  e->ops->name, j->c.bytes);
	}
	CHECK_EQ(atomic_load(&j->ends), 1);
}

void engine_job_wait(struct engine_case *e, struct engine_chan *ch, struct engine_job *j)
{
	engine_job_wait_any(e, &ch, 1, j);
}

__attribute__((no_sanitize("thread"))) void engine_job_arrive(struct engine_case *e,
							      const struct engine_job *j)
{
	uint64_t until = os_now_ns() + PATIENCE_S * 1000000000ull;
	const volatile uint8_t *dst = j->dst;

	for (size_t i = 0; i < j->c.bytes; i++)
		while (dst[i] != j->src[i])
			if (os_now_ns() > until)
				unit_fail(__FILE__, __LINE__, "%s does not go on alone",
					  e->ops->name);
}

void engine_job_check(const struct engine_job *j)
{
	CHECK(!memcmp(j->dst, j->src, j->c.bytes));
	for (const uint8_t *p = j->memory; p < j->dst; p++)
		CHECK(*p == 0xaa);
	for (size_t i = 0; i < PAD; i++)
		CHECK(j->dst[j->c.bytes + i] == 0xaa);
}

void engine_job_free(struct engine_job *j)
{
	free(j->memory);
	j->memory = NULL;
}
