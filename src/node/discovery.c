/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Finds out which ranks of the job run Sluice on this machine with equal options. Making a node
 * group is collective: if one rank ran without Sluice (mpiexec -n 2 sluice run ./a : -n 2 ./b), the
 * others would wait for it for ever. So each process announces itself before MPI_Init, which
 * returns nowhere before all processes have called it, by a listening abstract socket that vanishes
 * with its process. Afterwards each process looks for the sockets of all, its own included, so all
 * reach the same result without a message.
 *
 * The name of the socket contains what must agree: job, machine, version, options. Where the
 * launcher does not identify the job, no process announces itself and every rank counts as present.
 */
#include <errno.h>
#include <pthread.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <sys/vfs.h>
#include <unistd.h>

#include "node/private.h"

#ifndef SO_PEERPIDFD
#define SO_PEERPIDFD 77 /* newer headers have it */
#endif
#ifndef PID_FS_MAGIC
#define PID_FS_MAGIC 0x50494446
#endif
#define KNOWN_RANKS 4096 /* of the job; later ones are looked for each time */

static struct {
	pthread_mutex_t lock;
	int fd;
	int first_fd;   /* -1: another process of the job was the first on this machine */
	int reserve;    /* kept so that one descriptor can be freed when the process has used all */
	uint64_t job; /* 0: not announced */
	/* when it was announced: what others see of this process, whatever user it becomes */
	uid_t user;
	/* ranks that have been present: they leave in MPI_Finalize only */
	uint64_t known[KNOWN_RANKS / 64];
} discovery = { .lock = PTHREAD_MUTEX_INITIALIZER, .fd = -1, .first_fd = -1, .reserve = -1 };

static uint64_t mix(uint64_t h, uint64_t v)
{
	h = (h ^ v) * 0x9e3779b97f4a7c15ull;
	return h ^ h >> 29;
}

static uint64_t mix_text(uint64_t h, const char *s)
{
	while (*s)
		h = mix(h, (unsigned char)*s++);
	return h;
}

/* The proxy is outside this PID namespace: another kind of number tells ranks inside which job is
 * theirs. Those outside do not find them, and the other way round. */
__attribute__((cold)) static uint64_t unnumbered_job(int pmi)
{
	uint64_t job = os_random_u64(); /* before Linux 6.9 no rank finds this one */
	struct statfs fs;
	struct stat st;
	int proxy;
	socklen_t len = sizeof proxy;

	if (getsockopt(pmi, SOL_SOCKET, SO_PEERPIDFD, &proxy, &len))
		return job;
	if (!fstatfs(proxy, &fs) && fs.f_type == PID_FS_MAGIC && !fstat(proxy, &st))
		job = st.st_ino;
	close(proxy);
	return mix(3, job);
}

/* Hydra connects each process to the proxy that started it, one proxy per node. */
__attribute__((cold)) static uint64_t hydra_job(int pmi)
{
	struct ucred c;
	socklen_t len = sizeof c;

	if (getsockopt(pmi, SOL_SOCKET, SO_PEERCRED, &c, &len) || c.uid == (uid_t)-1)
		return 0;
	return c.pid ? mix(mix(1, (uint64_t)c.pid), os_process_start(c.pid)) : unnumbered_job(pmi);
}

static bool is_number(const char *s)
{
	while (*s >= '0' && *s <= '9')
		s++;
	return !*s;
}

/* A short number may be a descriptor; a name may be long or contain letters. In both cases equal
 * texts of one job give equal ids. */
__attribute__((cold)) static uint64_t job_id(const char *text)
{
	uint64_t id = 0;

	if (strlen(text) < 6 && is_number(text))
		id = hydra_job(atoi(text));
	if (!id && strlen(text) < 6)
		return 0; /* descriptor numbers are the same in every job */
	if (!id)
		id = mix_text(2, text);
	id = mix(mix(id, os_node_id()), base_options_hash());
	return mix(id, NODE_VERSION) | 1;
}

#define FIRST (-1) /* in place of a rank: the process that announces itself first */

__attribute__((cold)) static socklen_t discovery_name(struct sockaddr_un *a, uint64_t job, int rank)
{
	return os_socket_name(a, "sluice-here-%016llx-%d", (unsigned long long)job, rank);
}

/* Nobody accepts: a full queue proves that a rank is present, but not its pid. Returns: a
 * descriptor, or a negative number: another process has the name, or a call has failed. */
__attribute__((cold)) static int listen_as(uint64_t job, int rank)
{
	struct sockaddr_un a;
	socklen_t bytes = discovery_name(&a, job, rank);

	return os_socket_listen(SOCK_SEQPACKET | SOCK_NONBLOCK, &a, bytes);
}

static int open_reserve(void) { return socket(AF_UNIX, SOCK_DGRAM | SOCK_CLOEXEC, 0); }

__attribute__((cold)) void node_announce(bool prefer_pmix)
{
	int rank, fd, first = -1;
	const char *text = base_job_identity(prefer_pmix, &rank);
	uint64_t job = text ? job_id(text) : 0;

	if (!job)
		return;
	/* After a failure no process finds this one, not even itself. */
	fd = listen_as(job, rank);
	if (fd >= 0 && directory_publish(rank))
		first = listen_as(job, FIRST);
	if (first >= 0)
		directory_open_wake_words();
	pthread_mutex_lock(&discovery.lock);
	discovery.fd = fd;
	discovery.first_fd = first;
	discovery.reserve = open_reserve();
	discovery.job = job;
	discovery.user = geteuid();
	memset(discovery.known, 0, sizeof discovery.known);
	pthread_mutex_unlock(&discovery.lock);
}

/* *out_pid: 0 when it is unknown, as the queue of the socket is full. */
__attribute__((cold)) static bool is_present(uint64_t job, int rank, int *out_pid)
{
	struct ucred c = { 0 };
	socklen_t len = sizeof c;
	struct sockaddr_un a;
	int fd = socket(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
	bool present;

	if (fd < 0)
		return false;
	present = !connect(fd, (struct sockaddr *)&a, discovery_name(&a, job, rank));
	if (present)
		present = !getsockopt(fd, SOL_SOCKET, SO_PEERCRED, &c, &len) &&
			  c.uid == discovery.user;
	else
		present = errno == EAGAIN;
	*out_pid = present ? c.pid : 0;
	close(fd);
	return present;
}

static bool is_or_was_present(int rank)
{
	uint64_t *word = &discovery.known[rank % KNOWN_RANKS / 64], bit = 1ull << rank % 64;
	int pid;

	if (rank < KNOWN_RANKS && *word & bit)
		return true;
	if (!is_present(discovery.job, rank, &pid))
		return false;
	if (rank < KNOWN_RANKS)
		*word |= bit;
	return true;
}

__attribute__((cold)) int node_first_absent(const int *job_ranks, int n)
{
	int absent = -1;

	pthread_mutex_lock(&discovery.lock);
	/* a rank without free descriptors must reach the same result as the others */
	if (discovery.reserve >= 0)
		close(discovery.reserve);
	for (int i = 0; discovery.job && absent < 0 && i < n; i++)
		if (!is_or_was_present(job_ranks[i]))
			absent = i;
	discovery.reserve = open_reserve();
	pthread_mutex_unlock(&discovery.lock);
	return absent;
}

__attribute__((cold)) int node_job_process(int job_rank)
{
	int pid = 0;

	pthread_mutex_lock(&discovery.lock);
	if (discovery.job && is_present(discovery.job, job_rank, &pid) && pid < 0)
		pid = 0;
	pthread_mutex_unlock(&discovery.lock);
	return pid;
}

__attribute__((cold)) struct node_wake_word *node_wake_words(void)
{
	struct node_header *h = node_header_self();
	int pid = node_job_process(FIRST);
	uint64_t off;

	if (h && pid != h->pid)
		h = node_header_of(pid, true);
	/* acquire, partner: directory_open_wake_words */
	off = h ? atomic_load_explicit(&h->wake_words_off, memory_order_acquire) : 0;
	return off ? (struct node_wake_word *)((char *)h + off) : NULL;
}

__attribute__((cold)) void node_withdraw(void)
{
	pthread_mutex_lock(&discovery.lock);
	if (discovery.fd >= 0)
		close(discovery.fd);
	if (discovery.first_fd >= 0)
		close(discovery.first_fd);
	if (discovery.reserve >= 0)
		close(discovery.reserve);
	discovery.fd = discovery.first_fd = discovery.reserve = -1;
	pthread_mutex_unlock(&discovery.lock);
}
