/* SPDX-License-Identifier: BSD-3-Clause */
/* Helpers of the programs that run in the guest. */
#ifndef KMOD_DEVICE_H
#define KMOD_DEVICE_H

#include <errno.h>
#include <fcntl.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/mman.h>
#include <unistd.h>

#include "../../kernel/include/uapi/sluice_kmod.h"

#define MIB  ((size_t)1 << 20)
#define PAGE ((size_t)4096)
#define CHECK(x)                                                                                   \
	do {                                                                                       \
		if (!(x)) {                                                                        \
			printf("BROKEN line %d: %s (errno %d)\n", __LINE__, #x, errno);            \
			fflush(stdout);                                                            \
			_exit(1);                                                                  \
		}                                                                                  \
	} while (0)

static inline int open_device(void)
{
	int fd = open("/dev/sluice", O_RDWR | O_CLOEXEC);

	CHECK(fd >= 0);
	return fd;
}

static inline volatile struct sluice_record *map_records(int fd)
{
	void *p = mmap(NULL, SLUICE_RECORDS_BYTES, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);

	CHECK(p != MAP_FAILED);
	return p;
}

static inline int has_ended(volatile struct sluice_record *records, unsigned slot)
{
	return __atomic_load_n(&records[slot].state, __ATOMIC_ACQUIRE) != 0;
}

static inline int wait_record(volatile struct sluice_record *records, unsigned slot)
{
	for (int i = 0; i < 400000; i++) {
		if (has_ended(records, slot))
			return records[slot].result;
		usleep(50);
	}
	return -ETIME;
}

static inline char *memory(size_t bytes, int fd)
{
	char *p = mmap(NULL, bytes, PROT_READ | PROT_WRITE,
		       fd < 0 ? MAP_PRIVATE | MAP_ANONYMOUS : MAP_SHARED, fd, 0);

	CHECK(p != MAP_FAILED);
	return p;
}

static inline struct sluice_stat stat_now(void)
{
	int fd = open_device();
	struct sluice_stat s;

	CHECK(!ioctl(fd, SLUICE_IOC_STAT, &s));
	close(fd);
	return s;
}

#endif
