/* SPDX-License-Identifier: BSD-3-Clause */
/* The parts of `client` for devices with a habit, and for several NUMA nodes. */
#define _GNU_SOURCE
#include <linux/mempolicy.h>
#include <signal.h>
#include <sys/syscall.h>
#include <sys/wait.h>

#include "client.h"

/* ---- a slow device, and one that hangs ---------------------------------------------------- */

int client_cancel(void)
{
	enum { SLOTS = 32, OURS = 20 }; /* the slots from OURS on stay */
	struct client c = attach();
	/* no two copies write one place: DMA_API_DEBUG complains of it */
	char *a = memory((1 + SLOTS) * MIB, -1);
	int ended = 0, cancelled = 0;

	/* all is pinned then: submitting takes less time than copying */
	for (unsigned slot = 0; slot < SLOTS; slot++)
		CHECK(!copy(&c, a + (1 + slot) * MIB, a, MIB));
	for (unsigned slot = 0; slot < SLOTS; slot++)
		CHECK(!submit(&c, slot, a + (1 + slot) * MIB, a, MIB));
	CHECK(submit(&c, SLOTS - 1, a, a, 1) == -EBUSY);
	CHECK(ioctl(c.fd, SLUICE_IOC_CANCEL, NULL) && errno == EFAULT);
	cancel_slots(&c, 0, OURS);
	for (unsigned slot = 0; slot < SLOTS; slot++) {
		int rc = wait_for(&c, slot);

		CHECK(!rc || (rc == -ECANCELED && slot < OURS));
		ended += !rc;
		cancelled += rc == -ECANCELED;
	}
	CHECK(cancelled > 0);
	CHECK(!copy(&c, a + MIB, a, MIB)); /* and it goes on */
	printf("CLIENT cancel: %d ended, %d cancelled\n", ended, cancelled);
	end(&c);
	return 0;
}

int client_hang(void)
{
	struct client c = attach();
	char *a = memory(17 * MIB, -1);
	int bad = 0;

	for (unsigned slot = 0; slot < 16; slot++)
		CHECK(!submit(&c, slot, a + (1 + slot) * MIB, a, MIB));
	usleep(100000);
	CHECK(!ioctl(c.fd, SLUICE_IOC_RETIRE));
	for (unsigned slot = 0; slot < 16; slot++) {
		CHECK(c.records[slot].state == SLUICE_RECORD_ENDED);
		bad += c.records[slot].result != 0;
	}
	CHECK(bad > 0);
	printf("CLIENT hang: %d of 16 copies failed\n", bad);
	end(&c);
	return 0;
}

static void write_habit(const char *name, const char *value)
{
	char path[128];
	int fd;

	snprintf(path, sizeof path, "/sys/module/softdma/parameters/%s", name);
	fd = open(path, O_WRONLY);
	CHECK(fd >= 0 && write(fd, value, strlen(value)) > 0);
	close(fd);
}

/* The device ends its copies when the process that asked for them is gone. */
int client_stuck(void)
{
	enum { COPIES = 16 };
	struct sluice_stat before = stat_now(), s;
	pid_t pid = fork();
	int status;

	if (!pid) {
		struct client c = attach();
		char *a = memory((1 + COPIES) * MIB, -1);

		for (unsigned slot = 0; slot < COPIES; slot++)
			CHECK(!submit(&c, slot, a + (1 + slot) * MIB, a, MIB));
		ioctl(c.fd, SLUICE_IOC_RETIRE);
		CHECK(!"the device could be stopped");
	}
	sleep(3); /* longer than the module waits before it stops a device */
	CHECK(!waitpid(pid, &status, WNOHANG)); /* it is still being retired */
	CHECK(!kill(pid, SIGKILL) && waitpid(pid, &status, 0) == pid && WIFSIGNALED(status));
	sleep(1);
	s = stat_now();
	CHECK(s.contexts == 2 && s.pins - before.pins > s.unpins - before.unpins); /* 1: ours */
	write_habit("hang_every", "0");
	for (int i = 0; i < 200 && (s.contexts > 1 || s.pins != s.unpins); i++) {
		usleep(50000);
		s = stat_now();
	}
	CHECK(s.contexts == 1 && s.pins == s.unpins && s.descriptors == s.callbacks);
	printf("CLIENT stuck: ended after its process, %llu pages given back\n",
	       (unsigned long long)(s.unpins - before.unpins));
	return 0;
}

/* ---- nodes -------------------------------------------------------------------------------- */

static void bind_to(char *p, size_t bytes, unsigned node)
{
	unsigned long mask = 1ul << node;

	CHECK(!syscall(SYS_mbind, p, bytes, MPOL_BIND, &mask, 8 * sizeof mask, 0));
}

int client_nodes(void)
{
	struct client first = attach();
	struct sluice_info info;

	CHECK(!ioctl(first.fd, SLUICE_IOC_INFO, &info));
	printf("CLIENT nodes:");
	for (unsigned i = 0; i < info.channels; i++)
		printf(" %d", info.node[i]);
	printf("\n");
	for (unsigned i = 0; i < info.channels; i++) {
		struct client c = { .fd = open_device(), .attach = { .channel = i } };

		CHECK(!ioctl(c.fd, SLUICE_IOC_ATTACH, &c.attach) && c.attach.node == info.node[i]);
		c.records = map_records(c.fd);
		for (unsigned k = 0; k < 4; k++) {
			char *a = memory(2 * MIB, -1), *b = memory(2 * MIB, -1);

			bind_to(a, 2 * MIB, k / 2);
			bind_to(b, 2 * MIB, k % 2);
			fill(a, 2 * MIB, k);
			CHECK(!copy(&c, b, a, 2 * MIB) && !memcmp(a, b, 2 * MIB));
			munmap(a, 2 * MIB);
			munmap(b, 2 * MIB);
		}
		end(&c);
	}
	end(&first);
	return 0;
}
