/* SPDX-License-Identifier: BSD-3-Clause */
#include <stdio.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#include "base/base.h"
#include "engine/engine.h"
#include "guard/guard.h"
#include "host/host.h"
#include "trial.h"
#include "worker/worker.h"

/* What the child says. */
struct answer {
	bool has_guard, has_engine, has_worker;
	char guard[32], guard_reason[200];
	char engine[32], engine_reason[200];
	char worker_reason[200];
	int spare_cpus;
};

static void ignore_hold(void *arg) {}
static void ignore_touch(void *arg, uintptr_t addr, size_t bytes, bool write) {}
static void ignore_all(void) {}

/* Starts one, gives it an arena, ends it. */
static bool try_worker(char *reason, size_t cap)
{
	struct worker_setup setup = { .threads = 1 };
	struct worker_ticket ticket;
	int ret;

	if (base_opt.worker_kind == BASE_WORKER_THREAD) {
		snprintf(reason, cap, "SLUICE_WORKER_KIND=thread");
		return false;
	}
	host_cpumask_self(&setup.cpus);
	guard_trust_begin();
	ret = worker_start(&setup, &ticket, reason, cap);
	if (!ret) {
		ret = worker_attach(&ticket);
		if (ret)
			snprintf(reason, cap, "it does not answer: %s", strerror(-ret));
		worker_detach();
	}
	guard_trust_end();
	return !ret;
}

static void find_out(struct answer *a)
{
	static const struct guard_ops ops = { ignore_hold, ignore_touch, ignore_all, NULL };
	const struct engine_ops *engine = engine_pick(a->engine_reason, sizeof(a->engine_reason));
	struct host_cpumask self, spare;

	base_opt.log_level = BASE_LOG_NONE; /* the answer says it */
	a->has_guard = !guard_init(&ops);
	snprintf(a->guard, sizeof(a->guard), "%s", guard_kind_name());
	snprintf(a->guard_reason, sizeof(a->guard_reason), "%s", guard_reason());
	a->has_engine = engine;
	snprintf(a->engine, sizeof(a->engine), "%s", engine ? engine->name : "none");
	a->has_worker = try_worker(a->worker_reason, sizeof(a->worker_reason));
	host_cpumask_self(&self);
	a->spare_cpus = engine_spare_cpus(&self, 1, &spare);
}

/* False: the child ended without an answer. */
static bool ask_child(struct answer *a)
{
	int fds[2];
	ssize_t n;
	pid_t pid;

	if (pipe(fds))
		return false;
	fflush(NULL);
	pid = fork();
	if (!pid) {
		find_out(a);
		_exit(write(fds[1], a, sizeof(*a)) != sizeof(*a));
	}
	close(fds[1]);
	n = pid > 0 ? read(fds[0], a, sizeof(*a)) : -1;
	close(fds[0]);
	if (pid > 0)
		waitpid(pid, NULL, 0);
	return n == sizeof(*a);
}

void trial_early(struct trial *guard, struct trial *engine)
{
	struct answer a = { 0 };

	if (!ask_child(&a)) {
		snprintf(guard->reason, sizeof(guard->reason), "the trial did not end well");
		snprintf(engine->reason, sizeof(engine->reason), "the trial did not end well");
		return;
	}
	guard->works = a.has_guard;
	snprintf(guard->reason, sizeof(guard->reason), "%.190s", a.has_guard ? "" : a.guard_reason);
	guard->remedy = a.has_guard ? NULL : "without it calls complete before they return: allow userfaultfd "
					     "(sysctl vm.unprivileged_userfaultfd=1) or Syscall User Dispatch";
	snprintf(guard->note, sizeof(guard->note), "%s%s%s", a.guard, a.guard_reason[0] ? "; " : "", a.guard_reason);
	engine->works = a.has_engine;
	snprintf(engine->reason, sizeof(engine->reason), "%.190s", a.has_engine ? "" : a.engine_reason);
	snprintf(engine->note, sizeof(engine->note), "%s, %s%.120s; a program of one rank leaves %d CPUs to it%s%.60s",
		 a.engine, a.has_worker ? "in a process of the job" : "as threads of each rank: ", a.worker_reason,
		 a.spare_cpus, a.engine_reason[0] ? "; not " : "", a.engine_reason);
}
