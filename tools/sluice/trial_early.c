/* SPDX-License-Identifier: BSD-3-Clause */
/* The requirements of early return, each kind in a child process. */
#include <errno.h>
#include <stdio.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#include "base/base.h"
#include "engine/engine.h"
#include "guard/guard.h"
#include "os/os.h"
#include "trial.h"
#include "worker/worker.h"

static void ignore_hold(void *arg) {}
static void ignore_touch(void *arg, uintptr_t addr, size_t bytes, bool write) {}
static void ignore_all(void) {}

/* Calls fn(out, what) in a child. Returns: false when the child ended without a result. */
static bool ask_child(void (*fn)(void *out, int what), int what, void *out, size_t bytes)
{
	size_t used = 0;
	int fds[2];
	ssize_t n = 0;
	pid_t pid;

	if (pipe(fds))
		return false;
	fflush(NULL);
	pid = fork();
	if (!pid) {
		close(fds[0]);
		base_opt.log_level = BASE_LOG_NONE; /* the result says it */
		fn(out, what);
		for (; used < bytes && (n = write(fds[1], (char *)out + used, bytes - used)) > 0;
		     used += (size_t)n)
			;
		_exit(used < bytes);
	}
	close(fds[1]);
	for (; pid > 0 && used < bytes && (n = read(fds[0], (char *)out + used, bytes - used)) > 0;
	     used += (size_t)n)
		;
	close(fds[0]);
	if (pid > 0)
		waitpid(pid, NULL, 0);
	return used == bytes;
}

/* ---- guards ------------------------------------------------------------------------------ */

struct guard_answer {
	bool works;
	char name[24], reason[200];
};

static void find_guard(void *out, int kind)
{
	static const struct guard_ops ops = { ignore_hold, ignore_touch, ignore_all, NULL };
	struct guard_answer *a = out;

	if (kind != BASE_GUARD_AUTO)
		base_opt.guard_kind = kind;
	a->works = !guard_init(&ops);
	snprintf(a->name, sizeof(a->name), "%s", guard_kind_name());
	snprintf(a->reason, sizeof(a->reason), "%.190s", guard_reason());
}

static const char *uffd_remedy(const char *reason)
{
	if (strstr(reason, strerror(EPERM)) || strstr(reason, strerror(EACCES)))
		return "sysctl vm.unprivileged_userfaultfd=1, or let the user open "
		       "/dev/userfaultfd, or grant CAP_SYS_PTRACE; a container's seccomp filter "
		       "must allow userfaultfd too";
	if (strstr(reason, strerror(ENOSYS)))
		return "needs a kernel with CONFIG_USERFAULTFD, and a container that allows it";
	return NULL;
}

static const char *dispatch_remedy(const char *reason)
{
	if (strstr(reason, "has no"))
		return "Linux 5.11 or newer";
	if (strstr(reason, "is refused"))
		return "let the container's seccomp filter allow "
		       "prctl(PR_SET_SYSCALL_USER_DISPATCH)";
	return NULL;
}

/* Strips the name from "mremap: why". */
static const char *bare(const char *reason, const char *name)
{
	size_t len = strlen(name);

	return !strncmp(reason, name, len) && !strncmp(reason + len, ": ", 2) ? reason + len + 2
									      : reason;
}

static struct trial_way *add_way(struct trial_way *ways, size_t *count, const char *name,
				 const char *what)
{
	struct trial_way *w = &ways[(*count)++];

	snprintf(w->name, sizeof(w->name), "%s", name);
	snprintf(w->what, sizeof(w->what), "%s", what);
	return w;
}

static void set_way(struct trial_way *w, bool works, const char *reason,
		    const char *(*remedy)(const char *))
{
	w->works = works;
	snprintf(w->reason, sizeof(w->reason), "%.190s", works ? "" : reason);
	w->remedy = works ? NULL : remedy(w->reason);
}

static bool run_guards(struct trial_early *out)
{
	static const struct {
		int kind;
		const char *name, *what;
	} kinds[] = {
		{ BASE_GUARD_UFFD, "uffd",
		  "page tables moved away; faults wait in the kernel (userfaultfd)" },
		{ BASE_GUARD_MREMAP, "mremap",
		  "page tables moved away; faults wait in a signal handler" },
		{ BASE_GUARD_MPROTECT, "mprotect",
		  "access removed page by page; faults wait in a signal handler" },
	};
	bool is_complete = true;
	struct guard_answer a;

	for (size_t i = 0; i < BASE_ARRAY_LEN(kinds); i++) {
		struct trial_way *w =
			add_way(out->guards, &out->guard_count, kinds[i].name, kinds[i].what);

		a = (struct guard_answer){ .reason = "the trial ended without a result" };
		is_complete &= ask_child(find_guard, kinds[i].kind, &a, sizeof(a));
		set_way(w, a.works, bare(a.reason, kinds[i].name),
			kinds[i].kind == BASE_GUARD_UFFD ? uffd_remedy : dispatch_remedy);
	}
	a = (struct guard_answer){ .name = "none" };
	is_complete &= ask_child(find_guard, BASE_GUARD_AUTO, &a, sizeof(a));
	snprintf(out->guard, sizeof(out->guard), "%s", a.name);
	return is_complete;
}

/* The ways to keep system calls from guarded memory, derived from the kinds of guards that need
 * them. */
static void derive_calls(struct trial_early *out)
{
	static const char *const texts[][2] = {
		{ "userfaultfd", "a system call on guarded memory waits in the kernel" },
		{ "dispatch", "Syscall User Dispatch checks each system call" },
	};
	/* mprotect needs only the dispatch */
	const struct trial_way *from[] = { &out->guards[0], &out->guards[2] };

	for (size_t i = 0; i < BASE_ARRAY_LEN(texts); i++) {
		struct trial_way *w =
			add_way(out->calls, &out->call_count, texts[i][0], texts[i][1]);

		w->works = from[i]->works;
		memcpy(w->reason, from[i]->reason, sizeof(w->reason));
		w->remedy = from[i]->remedy;
	}
}

/* ---- engines ----------------------------------------------------------------------------- */

struct engine_answer {
	bool works;
	char name[24], reason[200];
	int channels[TRIAL_NODES], unused_cpus;
};

static void find_engine(void *out, int index)
{
	const struct engine_ops *e = engine_registry[index];
	struct engine_answer *a = out;
	int nodes = os_numa_node_count();

	a->works = !e->probe(a->reason, sizeof(a->reason)) && e->chan_count(-1) > 0;
	for (int i = 0; a->works && i < nodes && i < TRIAL_NODES; i++)
		a->channels[i] = e->chan_count(nodes == 1 ? -1 : i);
	if (!a->works && !a->reason[0])
		snprintf(a->reason, sizeof(a->reason), "it has no channel");
}

static void pick_engine(void *out, int unused)
{
	struct engine_answer *a = out;
	const struct engine_ops *e = engine_pick(a->reason, sizeof(a->reason));
	struct os_cpumask self, cpus;

	snprintf(a->name, sizeof(a->name), "%s", e ? e->name : "none");
	os_cpumask_self(&self);
	a->unused_cpus = engine_unused_cpus(&self, 1, &cpus);
}

static const char *engine_remedy(const char *reason)
{
	if (strstr(reason, "no unused CPU"))
		return "start fewer ranks than CPUs, or name CPUs for workers: "
		       "SLUICE_WORKERS";
	if (strstr(reason, "/dev/sluice"))
		return "doc/install.md says how the module is built and who may use it";
	if (strstr(reason, "type user") || strstr(reason, "(a udev rule"))
		return "PREFIX/share/sluice/dsa has a profile for accel-config and a udev rule";
	return NULL;
}

/* Says why a device that works is not used. */
static void note_by_name(struct trial_early *out)
{
	for (size_t i = 0; i < out->engine_count; i++) {
		struct trial_way *w = &out->engines[i];

		if (!w->works || !strcmp(w->name, out->engine))
			continue;
		if (!strcmp(w->name, "dsa"))
			w->remedy = "used where SLUICE_ENGINE names it, or sluice tune has found "
				    "it faster";
		else if (!strcmp(w->name, "kmod"))
			w->remedy = "used where SLUICE_ENGINE names it";
	}
}

static bool run_engines(struct trial_early *out)
{
	bool is_complete = true;
	struct engine_answer a;

	for (size_t i = 0; engine_registry[i] && i < TRIAL_WAYS; i++) {
		const struct engine_ops *e = engine_registry[i];
		struct trial_way *w = add_way(out->engines, &out->engine_count, e->name, e->help);

		a = (struct engine_answer){ .reason = "the trial ended without a result" };
		is_complete &= ask_child(find_engine, (int)i, &a, sizeof(a));
		set_way(w, a.works, a.reason, engine_remedy);
		memcpy(w->channels, a.channels, sizeof(w->channels));
	}
	a = (struct engine_answer){ .name = "none" };
	is_complete &= ask_child(pick_engine, 0, &a, sizeof(a));
	snprintf(out->engine, sizeof(out->engine), "%s", a.name);
	note_by_name(out);
	out->unused_cpus = a.unused_cpus;
	out->nodes = (int)base_min_u64((uint64_t)os_numa_node_count(), TRIAL_NODES);
	return is_complete;
}

/* ---- workers ----------------------------------------------------------------------------- */

/* Starts a worker, attaches to it, ends it. */
static void find_worker(void *out, int unused)
{
	struct worker_setup setup = { .threads = 1 };
	struct engine_answer *a = out;
	struct worker_ticket ticket;
	int ret;

	a->reason[0] = '\0';
	os_cpumask_self(&setup.cpus);
	sud_allow_push();
	ret = worker_start(&setup, &ticket, a->reason, sizeof(a->reason));
	if (!ret) {
		ret = worker_attach(&ticket);
		if (ret)
			snprintf(a->reason, sizeof(a->reason), "the worker does not answer: %s",
				 strerror(-ret));
		worker_detach();
	}
	sud_allow_pop();
	a->works = !ret;
}

static const char *worker_remedy(const char *reason)
{
	return strstr(reason, "sluice-worker") ? "reinstall: the worker belongs in libexec/sluice"
					       : NULL;
}

static bool run_workers(struct trial_early *out)
{
	struct trial_way *process =
		add_way(out->workers, &out->worker_count, "process", "one process of the job");
	struct trial_way *thread =
		add_way(out->workers, &out->worker_count, "thread", "threads of each rank");
	struct engine_answer a = { .reason = "the trial ended without a result" };
	bool is_complete = ask_child(find_worker, 0, &a, sizeof(a));

	set_way(process, a.works, a.reason, worker_remedy);
	set_way(thread, true, "", worker_remedy);
	for (size_t i = 0; i < out->engine_count; i++)
		if (!strcmp(out->engines[i].name, "sw"))
			set_way(thread, out->engines[i].works, out->engines[i].reason,
				engine_remedy);
	return is_complete;
}

void trial_early_run(struct trial_early *out)
{
	*out = (struct trial_early){ 0 };
	out->is_complete = run_guards(out);
	derive_calls(out);
	out->is_complete &= run_engines(out);
	out->is_complete &= run_workers(out);
}
