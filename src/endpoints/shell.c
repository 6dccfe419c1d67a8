/* SPDX-License-Identifier: BSD-3-Clause */
#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/signalfd.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include "endpoints/private.h"
#include "os/os.h"
#include "preload/preload.h"

enum {
	CONNECT_TRIES = 2000,
	START_TRIES = 3,
	ANCESTORS_MAX = 32,
	JOB_NAME_MAX = 50, /* bytes */
	FD_FIRST_FREE = 3, /* above those that the log and the program use */
	FROM_KERNEL = 0x80,
};

/* ---- the name of the group ----------------------------------------------------------------- */

/* Reads name and parent of a process. Returns: the parent, or 0. */
static int read_parent(int pid, char name[32])
{
	char path[64], text[512], *open_paren, *close_paren;
	int parent = 0;

	name[0] = '\0';
	snprintf(path, sizeof path, "/proc/%d/stat", pid);
	if (os_procfile_read(path, text, sizeof text) <= 0)
		return 0;
	open_paren = strchr(text, '(');
	close_paren = strrchr(text, ')');
	if (!open_paren || !close_paren)
		return 0;
	snprintf(name, 32, "%.*s", (int)(close_paren - open_paren - 1), open_paren + 1);
	return sscanf(close_paren + 1, " %*c %d", &parent) == 1 ? parent : 0;
}

int endpoints_launcher(void)
{
	char name[32];
	int pid = getppid(), parent;

	for (int i = 0; i < ANCESTORS_MAX && pid > 1; i++, pid = parent) {
		parent = read_parent(pid, name);
		if (preload_is_launcher_name(name) || !strncmp(name, "slurmstepd", 10))
			return pid;
	}
	return getppid();
}

/* Ranks in containers of their own do not meet: process IDs and paths mean something else there.
 * Returns: a hash of what the ranks of a group share. */
static uint32_t surroundings(void)
{
	static const char *const paths[] = { "/", "/proc/self/ns/mnt", "/proc/self/ns/pid",
					     "/proc/self/ns/user", "/proc/self/ns/ipc",
					     "/proc/self/ns/uts" };
	uint64_t hash = getegid();
	struct stat st;

	for (size_t i = 0; i < BASE_ARRAY_LEN(paths); i++) {
		if (stat(paths[i], &st))
			st.st_dev = st.st_ino = 0;
		hash = (hash ^ st.st_dev) * 0x9e3779b97f4a7c15ull;
		hash = ((hash ^ hash >> 32) ^ st.st_ino) * 0x9e3779b97f4a7c15ull;
	}
	return (uint32_t)(hash >> 32);
}

static socklen_t group_address(const struct endpoints_program *p, struct sockaddr_un *out)
{
	const char *job = p->job ? p->job : "";

	/* the end of a name tells jobs of one launcher apart */
	return os_socket_name(out, "sluice-carrier-%u-%d-%d-%x-%s", (unsigned)geteuid(),
			      p->launcher, p->node_rank / p->ranks, surroundings(),
			      job + (strlen(job) > JOB_NAME_MAX ? strlen(job) - JOB_NAME_MAX : 0));
}

/* ---- finding or starting the carrier ------------------------------------------------------- */

/* A descriptor that closed standard streams do not have: the log would be written to it, and the
 * carrier would keep a second one. */
static int above_streams(int fd)
{
	int high;

	if (fd < 0 || fd >= FD_FIRST_FREE)
		return fd;
	high = fcntl(fd, F_DUPFD_CLOEXEC, FD_FIRST_FREE);
	close(fd);
	return high;
}

static int new_socket(void)
{
	return above_streams(socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0));
}

/* Returns: 0 when a carrier was started, or -errno; -EADDRINUSE: the group has one. */
static int start_carrier(const struct endpoints_program *p, const struct sockaddr_un *sa,
			 socklen_t len)
{
	int listener = new_socket(), rc = 0, pid;

	if (listener < 0)
		return -errno;
	if (bind(listener, (const void *)sa, len) || listen(listener, ENDPOINT_RANKS_MAX)) {
		rc = -errno;
	} else {
		pid = fork();
		if (!pid)
			carrier_main(listener, p);
		rc = pid < 0 ? -errno : 0;
	}
	close(listener);
	return rc;
}

/* Returns: a socket to the carrier of the group, or -errno. */
static int connect_carrier(const struct endpoints_program *p)
{
	struct timespec pause = { .tv_nsec = 1000 * 1000 };
	struct sockaddr_un sa;
	socklen_t len = group_address(p, &sa);
	int fd = new_socket(), rc = 0;

	if (fd < 0)
		return -errno;
	for (int i = 0; i < CONNECT_TRIES; i++) {
		if (!connect(fd, (const void *)&sa, len)) {
			rc = os_socket_peer(fd);
			if (rc >= 0)
				return fd;
			break;
		}
		rc = -errno;
		if (rc == -ECONNREFUSED)
			rc = start_carrier(p, &sa, len);
		/* in use: another shell has bound the name and does not listen yet */
		if (rc && rc != -EADDRINUSE && rc != -EAGAIN && rc != -EINTR)
			break;
		if (rc)
			nanosleep(&pause, NULL);
	}
	close(fd);
	return rc ? rc : -ETIMEDOUT;
}

/* ---- the life of a shell ------------------------------------------------------------------- */

static _Noreturn void die_by(int sig)
{
	struct rlimit none = { 0, 0 };
	sigset_t one;

	/* the image has written the core dump */
	setrlimit(RLIMIT_CORE, &none);
	prctl(PR_SET_DUMPABLE, 0);
	signal(sig, SIG_DFL);
	raise(sig);
	sigemptyset(&one);
	sigaddset(&one, sig);
	sigprocmask(SIG_UNBLOCK, &one, NULL);
	_exit(128 + sig);
}

static _Noreturn void end_like(int status)
{
	if (WIFSIGNALED(status))
		die_by(WTERMSIG(status));
	_exit(WEXITSTATUS(status));
}

/* The kernel sends these to a process group. Others are of a timer that execve() keeps: alarm(). */
static bool is_of_terminal(const struct signalfd_siginfo *info)
{
	const uint64_t set = 1ull << SIGINT | 1ull << SIGQUIT | 1ull << SIGTSTP | 1ull << SIGHUP |
			     1ull << SIGCONT | 1ull << SIGWINCH;

	return info->ssi_code == FROM_KERNEL && info->ssi_signo < 64 && set >> info->ssi_signo & 1;
}

/* A signal of the terminal has reached the image already if both are in one process group.
 * Launchers send theirs to the process group of the one that they have started: children, too. */
static void forward(int signals, int image, int launcher)
{
	struct signalfd_siginfo info;
	int group;

	while (read(signals, &info, sizeof info) == (ssize_t)sizeof info) {
		if (info.ssi_signo == SIGCHLD || info.ssi_signo == SIGPIPE)
			continue;
		group = getpgid(image);
		if (is_of_terminal(&info) && group == getpgrp())
			continue;
		if ((int)info.ssi_pid != launcher || group <= 0 || group == getpgrp() ||
		    kill(-group, (int)info.ssi_signo))
			kill(image, (int)info.ssi_signo);
	}
}

/* Forwards signals until the image ends. */
static _Noreturn void be_shell(int socket, int signals, int image, int launcher)
{
	struct pollfd fds[2] = { { .fd = socket, .events = POLLIN },
				 { .fd = signals, .events = POLLIN } };
	struct endpoints_reply reply;

	for (;;) {
		if (poll(fds, 2, -1) < 0)
			continue;
		if (fds[1].revents)
			forward(signals, image, launcher);
		if (!fds[0].revents)
			continue;
		if (message_receive(socket, &reply, sizeof reply))
			die_by(SIGKILL); /* the carrier was killed, and with it the image */
		end_like(reply.value);
	}
}

/* The program sees the end of a pipe only when this process has closed it, too. */
static void close_inherited(int *socket, int *signals)
{
	int high[2] = { fcntl(*socket, F_DUPFD_CLOEXEC, 3), fcntl(*signals, F_DUPFD_CLOEXEC, 3) };

	if (high[0] < 0 || high[1] < 0)
		return;
	dup2(high[0], 0);
	dup2(high[1], 1);
	*socket = 0;
	*signals = 1;
	endpoints_close_range(2, UINT_MAX);
}

/* Returns: 0 when the carrier ended before it read the message: another try may reach a new one;
 * else -errno with a reason. */
static int start_rank(const struct endpoints_program *p, const struct image_file *file,
		     const struct endpoints_state *state, char *reason, size_t cap)
{
	struct endpoints_reply reply;
	sigset_t all, old;
	int socket = connect_carrier(p), signals, rc;

	if (socket < 0) {
		snprintf(reason, cap, "no carrier: %s", strerror(-socket));
		return socket;
	}
	sigfillset(&all);
	sigprocmask(SIG_SETMASK, &all, &old);
	signals = above_streams(signalfd(-1, &all, SFD_CLOEXEC | SFD_NONBLOCK));
	rc = signals < 0 ? -errno : message_send_start(socket, p, file, state);
	/* no time limit: only the end of the carrier, or its reply, tells that no image runs */
	if (!rc || rc == -EPIPE || rc == -ECONNRESET)
		rc = message_receive(socket, &reply, sizeof reply);
	if (!rc && reply.kind == REPLY_STARTED) {
		if (reply.reason[0])
			base_log(p->rank ? BASE_LOG_INFO : BASE_LOG_ERROR, "endpoints", "%s",
				 reply.reason);
		close_inherited(&socket, &signals);
		be_shell(socket, signals, reply.value, p->launcher);
	}
	close(signals);
	close(socket);
	sigprocmask(SIG_SETMASK, &old, NULL);
	if (rc == -EPIPE || rc == -ECONNRESET)
		return 0;
	snprintf(reason, cap, "%s", rc ? strerror(-rc) : reply.reason);
	return rc ? rc : -ECANCELED;
}

bool endpoints_check(const char *path, char *reason, size_t cap)
{
	struct endpoints_state *state = malloc(sizeof *state);
	struct image_file *file = malloc(sizeof *file);
	bool can;

	snprintf(reason, cap, "out of memory");
	can = state && file && !image_check(path, file, reason, cap) &&
	      !state_collect(state, reason, cap);
	free(state);
	free(file);
	return can;
}

bool endpoints_check_switch(char *reason, size_t cap)
{
	struct endpoints_state *state = calloc(1, sizeof *state);
	char why[ENDPOINTS_REASON_BYTES] = "";
	int fd[2], pid = -1;
	ssize_t n = 0;

	snprintf(reason, cap, "it could not be tried");
	if (state && !pipe2(fd, O_CLOEXEC)) {
		pid = fork();
		if (!pid) {
			state_collect(state, why, sizeof why);
			switch_start(state->cpus, state->cpu_bytes, 1, why, sizeof why);
			n = write(fd[1], why, sizeof why);
			_exit(n < 0); /* its workers end with it */
		}
		close(fd[1]);
		n = read(fd[0], why, sizeof why);
		close(fd[0]);
	}
	free(state);
	if (pid > 0)
		waitpid(pid, NULL, 0);
	if (n != sizeof why)
		return false;
	snprintf(reason, cap, "%s", why);
	return !*why;
}

void endpoints_join(const struct endpoints_program *program, char *reason, size_t cap)
{
	struct endpoints_state *state = malloc(sizeof *state);
	struct image_file *file = malloc(sizeof *file);

	snprintf(reason, cap, "out of memory");
	if (state && file && !image_check(program->path, file, reason, cap) &&
	    !state_collect(state, reason, cap)) {
		/* fewer CPUs than ranks: some kernels yield within a session only (node/yield.c) */
		if (!program->switches && program->cpus >= program->ranks)
			state->session = getsid(0);
		snprintf(reason, cap, "the carrier ended");
		for (int i = 0; i < START_TRIES; i++)
			if (start_rank(program, file, state, reason, cap))
				break;
	}
	free(state);
	free(file);
}
