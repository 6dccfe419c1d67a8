/* SPDX-License-Identifier: BSD-3-Clause */
/* A process that has /dev/sluice open, of the parts of `client`. */
#ifndef KMOD_CLIENT_H
#define KMOD_CLIENT_H

#include "device.h"

#define COOKIE 1000ull /* of slot 0 */

struct client {
	int fd;
	struct sluice_attach attach;
	volatile struct sluice_record *records;
};

static inline struct client attach(void)
{
	struct client c = { .fd = open_device() };
	struct sluice_info info;

	CHECK(!ioctl(c.fd, SLUICE_IOC_INFO, &info));
	CHECK(info.abi == SLUICE_ABI && info.slots == SLUICE_SLOTS && info.channels > 0);
	CHECK(!ioctl(c.fd, SLUICE_IOC_ATTACH, &c.attach));
	c.records = map_records(c.fd);
	return c;
}

static inline int submit(struct client *c, unsigned slot, void *dst, const void *src, size_t bytes)
{
	struct sluice_entry e = { .slot = slot,
				  .op = SLUICE_OP_COPY,
				  .src = (uintptr_t)src,
				  .dst = (uintptr_t)dst,
				  .bytes = bytes,
				  .cookie = COOKIE + slot };
	struct sluice_enter enter = { .entries = (uintptr_t)&e, .count = 1 };

	c->records[slot].state = 0;
	return ioctl(c->fd, SLUICE_IOC_ENTER, &enter) ? -errno : 0;
}

static inline int wait_for(struct client *c, unsigned slot)
{
	return wait_record(c->records, slot);
}

static inline int copy(struct client *c, void *dst, const void *src, size_t bytes)
{
	int rc = submit(c, 0, dst, src, bytes);

	return rc ? rc : wait_for(c, 0);
}

static inline void end(struct client *c)
{
	munmap((void *)c->records, SLUICE_RECORDS_BYTES);
	close(c->fd);
}

static inline void fill(char *p, size_t bytes, unsigned seed)
{
	for (size_t i = 0; i < bytes; i++)
		p[i] = (char)(i * 7 + (i >> 8) + seed);
}

static inline void cancel_slots(struct client *c, unsigned from, uint64_t count)
{
	CHECK(!ioctl(c->fd, SLUICE_IOC_CANCEL, &(struct sluice_cancel){ COOKIE + from, count }));
}

/* client_habits.c: what the head of client.c says of them. Return: the exit status. */
int client_cancel(void);
int client_hang(void);
int client_stuck(void);
int client_nodes(void);

#endif
