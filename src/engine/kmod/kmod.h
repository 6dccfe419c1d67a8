/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * kmod: copies by the kernel's DMA channels, through the module sluice.ko (/dev/sluice).
 *
 *   device.c   an opened device: its calls, and the completion records that it shares
 *   kmod.c     channels: one opened device each
 *
 * kernel/include/uapi/sluice_kmod.h is the interface. flush submits by one call, which pins
 * pages at their first use. The end of a copy shows in its record without a call. The module feeds
 * the device by itself, so all copies of a channel go on while nobody polls. RETIRE cancels what
 * the device has not begun and waits for the rest. A forked child has no right to the device.
 */
#ifndef SLUICE_ENGINE_KMOD_H
#define SLUICE_ENGINE_KMOD_H

#include "engine/slots.h"
#include "uapi/sluice_kmod.h"

struct kmod_device {
	_Atomic int fd;         /* -1: closed */
	struct os_file file; /* of fd: the program may have closed it */
	struct sluice_record *records;
	struct sluice_entry entries[SW_DEPTH];
	uint64_t max_bytes;
	uint32_t flags; /* SLUICE_CHANNEL_* */
};

/* Opens the device. Returns: a descriptor, or -errno with the reason. Context: sleeps. */
int kmod_open(struct sluice_info *info, char *reason, size_t cap);
/* Takes channel `index`. Returns: 0 or -errno with the reason. Owner: *d has fd from then on. */
int kmod_attach(struct kmod_device *d, int fd, int index, char *reason, size_t cap);
/* Submits slots; as engine_device_ops.submit. */
int kmod_submit(struct kmod_device *d, uint64_t slots, uint64_t *out_accepted);
/* Ends copies whose cookies lie in [from, from + bytes), unless the device has begun them. Context:
 * async-signal-safe. */
void kmod_cancel_range(struct kmod_device *d, uint64_t from, uint64_t bytes);
/* Ends all copies and closes the device. Returns: whether this call did. Context:
 * async-signal-safe; sleeps until the device has ended what it has begun. */
bool kmod_close(struct kmod_device *d);
/* Closes the device of a parent, or of no copies. */
void kmod_fini(struct kmod_device *d);

/* The system calls; a test puts a model in their place. Returns of call: 0 or -errno. */
struct kmod_system {
	int (*open)(void);
	int (*call)(int fd, unsigned long request, void *arg);
};
extern struct kmod_system kmod_system;

#endif
