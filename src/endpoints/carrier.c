/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * The carrier: one thread that accepts shells, starts an image for each and reports how it ends. It
 * ends with the last image. An image ends by SIGKILL when its shell or the carrier is killed.
 */
#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/signalfd.h>
#include <sys/socket.h>
#include <sys/time.h>
#include <sys/wait.h>
#include <unistd.h>

#include "endpoints/private.h"
#include "os/os.h"

enum { FIRST_WAIT_MS = 10000, REFUSED_WAIT_MS = 100, RECEIVE_S = 30, PMI_LINGER_MS = 10 };

struct carrier {
	int listener; /* -1: as many ranks as asked for have come */
	int signals;  /* signalfd of SIGCHLD */
	int ranks, joined;
	int first_wait_ms; /* for the first rank */
	bool switches;                  /* asked for */
	int cpus;                       /* for those that switch */
	struct switch_group *scheduler; /* NULL: none */
	char no_switch[ENDPOINTS_REASON_BYTES];
	int socket[ENDPOINT_RANKS_MAX]; /* to the shell of each rank; -1: closed */
	int pmi[ENDPOINT_RANKS_MAX]; /* connection of the rank and its launcher; -1: closed */
	uint64_t pmi_until_ns[ENDPOINT_RANKS_MAX]; /* 0: the shell has not ended */
};

struct endpoint_space endpoints_space; /* its ranks are those that have joined */

/* 0: it has ended. */
static int pid_of(int i) { return atomic_load(&endpoints_space.rank[i].pid); }

static void reply(int socket, enum reply_kind kind, int value, const char *reason)
{
	struct endpoints_reply r = { .kind = kind, .value = value };

	if (reason)
		snprintf(r.reason, sizeof r.reason, "%s", reason);
	message_send(socket, &r, sizeof r);
}

/* ---- starting ------------------------------------------------------------------------------ */

/* Returns: NULL where the rank does not switch, with the reason in c->no_switch. */
static struct switch_rank *add_to_scheduler(struct carrier *c, const struct endpoints_state *state)
{
	c->no_switch[0] = '\0';
	if (!c->switches)
		return NULL;
	if (!c->scheduler)
		c->scheduler = switch_start(state->cpus, state->cpu_bytes, c->cpus,
					    c->no_switch, sizeof c->no_switch);
	if (c->scheduler && switch_has_cpus(c->scheduler, state->cpus, state->cpu_bytes))
		return switch_add(c->scheduler);
	if (c->scheduler)
		snprintf(c->no_switch, sizeof c->no_switch,
			 "this rank does not switch: its CPUs are not those of its group");
	return NULL;
}

/* The next rank's data for its image. scheduled: NULL: it does not switch. */
static struct endpoint *prepare(const struct carrier *c, struct switch_rank *scheduled, int rank)
{
	static struct endpoint others[ENDPOINT_RANKS_MAX];
	struct endpoint *e = scheduled ? switch_endpoint(scheduled) : &others[c->joined];
	struct endpoint_rank *entry = &endpoints_space.rank[c->joined];

	*entry = (struct endpoint_rank){ .rank = rank };
	atomic_store(&endpoints_space.count, c->joined + 1);
	if (!scheduled)
		*e = (struct endpoint){ .magic = ENDPOINT_MAGIC };
	e->space = &endpoints_space;
	e->entry = entry;
	return e;
}

/* Returns: a copy of the descriptor that the rank finds by PMI_FD, or -1. */
static int copy_pmi(const struct image_start *start)
{
	static const char name[] = "PMI_FD=";

	for (uint32_t i = 0; i < start->envc; i++)
		for (uint32_t k = 0; k < start->state.fd_count; k++)
			if (!strncmp(start->envp[i], name, sizeof name - 1) &&
			    atoi(start->envp[i] + sizeof name - 1) == start->state.fds[k])
				return fcntl(start->received[k], F_DUPFD_CLOEXEC, 0);
	return -1;
}

/* Returns: the image's process ID, or -errno with a reason. */
static int start_image(struct carrier *c, int socket, char *reason, size_t cap)
{
	struct timeval limit = { .tv_sec = RECEIVE_S };
	struct image_start *start;
	struct switch_rank *rank;
	struct child_job *job;
	int pid;

	setsockopt(socket, SOL_SOCKET, SO_RCVTIMEO, &limit, sizeof limit);
	pid = message_receive_start(socket, &start);
	if (pid) {
		snprintf(reason, cap, "the carrier did not receive it: %s", strerror(-pid));
		return pid;
	}
	rank = add_to_scheduler(c, &start->state);
	start->endpoint = prepare(c, rank, start->rank);
	pid = image_create(start, &job, reason, cap);
	if (pid > 0) {
		struct endpoints_reply r = { .kind = REPLY_STARTED, .value = pid };
		int rc;

		snprintf(r.reason, sizeof r.reason, "%s", c->no_switch);
		rc = message_send(socket, &r, sizeof r);

		/* a shell without this reply runs the program itself */
		if (rc) {
			kill(pid, SIGKILL);
			waitpid(pid, NULL, 0);
			pid = rc;
		} else {
			if (rank)
				switch_set_pid(rank, pid);
			c->pmi[c->joined] = copy_pmi(start);
			atomic_store(&start->endpoint->entry->pid, pid);
			image_release(job);
		}
	}
	if (pid < 0 && rank)
		switch_drop(c->scheduler, rank);
	message_free_start(start);
	return pid;
}

static void accept_shell(struct carrier *c)
{
	char reason[ENDPOINTS_REASON_BYTES] = "";
	int socket = accept4(c->listener, NULL, NULL, SOCK_CLOEXEC), pid;

	if (socket < 0)
		return;
	if (os_socket_peer(socket) < 0) {
		close(socket);
		return;
	}
	pid = start_image(c, socket, reason, sizeof reason);
	if (pid < 0) {
		reply(socket, REPLY_REFUSED, 0, reason);
		close(socket);
		c->first_wait_ms = REFUSED_WAIT_MS; /* perhaps it refuses all, and the job ends */
	} else {
		c->socket[c->joined++] = socket;
	}
	if (c->joined == c->ranks) {
		close(c->listener);
		c->listener = -1;
	}
}

/* ---- ending -------------------------------------------------------------------------------- */

/* Hydra kills a process that closes its connection before it ends, and all others that have not
 * ended then, unless MPI_Finalize() has made it close its side: so a rank's connection outlives its
 * shell, and those that end at about the same time have ended. */
static void close_pmi(struct carrier *c, int i)
{
	struct pollfd launcher = { .fd = c->pmi[i], .events = POLLRDHUP };

	if (c->pmi[i] >= 0 && !poll(&launcher, 1, 0) && os_now_ns() < c->pmi_until_ns[i])
		return;
	close(c->pmi[i]);
	c->pmi[i] = -1;
}

/* The ranks on a worker that was killed cannot go on, nor those that wait for them. */
static void end_all(struct carrier *c)
{
	for (int i = 0; i < c->joined; i++)
		if (pid_of(i))
			kill(pid_of(i), SIGKILL);
}

static void reap(struct carrier *c)
{
	int status, pid;

	while ((pid = waitpid(-1, &status, WNOHANG)) > 0) {
		if (c->scheduler)
			switch_remove(c->scheduler, pid);
		for (int i = 0; i < c->joined; i++)
			if (pid_of(i) == pid) {
				atomic_store(&endpoints_space.rank[i].pid, 0);
				if (c->socket[i] >= 0)
					reply(c->socket[i], REPLY_ENDED, status, NULL);
			}
		if (c->scheduler && switch_lost_worker(c->scheduler, pid))
			end_all(c);
	}
}

/* A shell sends nothing after its start: input is the end of its process. */
static void end_rank(struct carrier *c, int i)
{
	close(c->socket[i]);
	c->socket[i] = -1;
	c->pmi_until_ns[i] = os_now_ns() + PMI_LINGER_MS * 1000000ull;
	if (!pid_of(i))
		return;
	/* a launcher kills the process group of the one that it has started: children, too */
	kill(-pid_of(i), SIGKILL);
	kill(pid_of(i), SIGKILL);
}

/* Returns: ranks that have not ended, or whose shells have not. */
static int live_ranks(const struct carrier *c)
{
	int count = 0;

	for (int i = 0; i < c->joined; i++)
		count += pid_of(i) || c->socket[i] >= 0 || c->pmi[i] >= 0;
	return count;
}

/* Returns: how long to wait for the next event, ms. */
static int wait_ms(struct carrier *c, bool runs)
{
	int ms = runs ? SWITCH_SLICE_MS : c->joined ? -1 : c->first_wait_ms;

	for (int i = 0; i < c->joined; i++) {
		if (c->pmi[i] < 0 || !c->pmi_until_ns[i])
			continue;
		close_pmi(c, i);
		ms = 1; /* also where it was the last one */
	}
	return ms;
}

/* Returns: false when nothing happens for too long before the first rank has come. */
static bool serve_once(struct carrier *c)
{
	struct pollfd poll_fds[ENDPOINT_RANKS_MAX + 3] = {
		{ .fd = c->signals, .events = POLLIN }, { .fd = c->listener, .events = POLLIN },
		{ .fd = c->scheduler ? switch_wakes_fd(c->scheduler) : -1, .events = POLLIN } };
	bool runs = c->scheduler && !switch_is_idle(c->scheduler);
	uint64_t wakes;
	struct signalfd_siginfo info;
	int n;

	for (int i = 0; i < c->joined; i++)
		poll_fds[i + 3] = (struct pollfd){ .fd = c->socket[i], .events = POLLIN };
	n = poll(poll_fds, (nfds_t)c->joined + 3, wait_ms(c, runs));
	if (poll_fds[2].revents)
		(void)!read(poll_fds[2].fd, &wakes, sizeof wakes); /* another poll tells the same */
	if (runs)
		switch_monitor(c->scheduler);
	if (n <= 0)
		return n < 0 || c->joined;
	for (int i = 0, joined = c->joined; i < joined; i++)
		if (poll_fds[i + 3].revents && c->socket[i] >= 0)
			end_rank(c, i);
	if (poll_fds[1].revents)
		accept_shell(c);
	if (poll_fds[0].revents && read(c->signals, &info, sizeof info) > 0)
		reap(c);
	return true;
}

/* ---- the process --------------------------------------------------------------------------- */

/* Keeps the listener only: a launcher waits until every copy of its pipes is closed. */
static int set_up(struct carrier *c)
{
	struct rlimit limit;
	int null = open("/dev/null", O_RDWR);
	sigset_t all, child;

	if (null < 0)
		return -errno;
	for (int fd = 0; fd <= 2; fd++)
		if (c->listener != fd)
			dup2(null, fd);
	c->listener = dup2(c->listener, 3);
	endpoints_close_range(4, UINT_MAX);
	fcntl(c->listener, F_SETFD, FD_CLOEXEC);
	sigfillset(&all);
	sigprocmask(SIG_SETMASK, &all, NULL);
	sigemptyset(&child);
	sigaddset(&child, SIGCHLD);
	signal(SIGCHLD, SIG_DFL); /* ignored, it would lose the status of images */
	c->signals = signalfd(-1, &child, SFD_CLOEXEC | SFD_NONBLOCK);
	if (!getrlimit(RLIMIT_NOFILE, &limit)) {
		limit.rlim_cur = limit.rlim_max;
		setrlimit(RLIMIT_NOFILE, &limit);
	}
	prctl(PR_SET_NAME, "sluice-carrier");
	setpgid(0, 0); /* a launcher kills the process group of a rank that has ended */
	if (c->listener < 0 || c->signals < 0 || chdir("/"))
		return -errno;
	return image_fence_break();
}

void carrier_main(int listener, const struct endpoints_program *program)
{
	static struct carrier c;

	c = (struct carrier){ .listener = listener,
			      .first_wait_ms = FIRST_WAIT_MS,
			      .ranks = (int)base_min_u64((uint64_t)program->ranks,
							 ENDPOINT_RANKS_MAX),
			      .switches = program->switches,
			      .cpus = program->cpus };
	if (set_up(&c))
		_exit(1);
	while ((!c.joined || live_ranks(&c)) && serve_once(&c))
		;
	_exit(0);
}
