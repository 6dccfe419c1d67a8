/* SPDX-License-Identifier: BSD-3-Clause */
/* The calls of sluice.ko. */
#include <errno.h>
#include <fcntl.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "engine/kmod/kmod.h"

#define PATH "/dev/sluice"

static int open_device(void)
{
	int fd = open(PATH, O_RDWR | O_CLOEXEC);

	return fd < 0 ? -errno : fd;
}

static int call_device(int fd, unsigned long request, void *arg)
{
	return syscall(SYS_ioctl, fd, request, arg) < 0 ? -errno : 0;
}

struct kmod_system kmod_system = { open_device, call_device };

int kmod_open(struct sluice_info *info, char *reason, size_t cap)
{
	int fd = kmod_system.open(), rc;

	if (fd == -ENOENT) {
		snprintf(reason, cap, "there is no " PATH ": %s",
			 access("/sys/class/misc/sluice", F_OK)
				 ? "the module sluice is not loaded"
				 : "the module sluice is loaded, but a container needs the device, "
				   "too");
		return fd;
	}
	if (fd < 0) {
		snprintf(reason, cap, PATH " cannot be opened: %s%s", strerror(-fd),
			 fd == -EACCES ? " (a udev rule gives access)" : "");
		return fd;
	}
	rc = kmod_system.call(fd, SLUICE_IOC_INFO, info);
	if (rc)
		snprintf(reason, cap, PATH " does not answer: %s", strerror(-rc));
	else if (info->abi != SLUICE_ABI || info->slots < SW_DEPTH) {
		snprintf(reason, cap,
			 "the module sluice has version %u of its interface, Sluice "
			 "needs %u",
			 info->abi, SLUICE_ABI);
		rc = -EPROTO;
	} else if (!info->channels) {
		snprintf(reason, cap, "the kernel has no free DMA channel that copies memory");
		rc = -ENODEV;
	}
	if (!rc)
		return fd;
	close(fd);
	return rc;
}

int kmod_attach(struct kmod_device *d, int fd, int index, char *reason, size_t cap)
{
	struct sluice_attach a = { .channel = (uint32_t)index };
	void *p;
	int rc;

	memset(d, 0, sizeof(*d));
	atomic_store_explicit(&d->fd, fd, memory_order_relaxed);
	os_file_of(fd, &d->file);
	rc = kmod_system.call(fd, SLUICE_IOC_ATTACH, &a);
	if (rc) {
		snprintf(reason, cap, "channel %d is refused: %s", index, strerror(-rc));
		return rc;
	}
	d->max_bytes = a.max_bytes;
	d->flags = a.flags;
	p = mmap(NULL, SLUICE_RECORDS_BYTES, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
	if (p == MAP_FAILED) {
		rc = -errno;
		snprintf(reason, cap, "no memory for records: %s", strerror(-rc));
		return rc;
	}
	madvise(p, SLUICE_RECORDS_BYTES, MADV_DONTFORK);
	d->records = p;
	return 0;
}

int kmod_submit(struct kmod_device *d, uint64_t slots, uint64_t *out_accepted)
{
	int fd = atomic_load_explicit(&d->fd, memory_order_relaxed);
	struct sluice_entry batch[16];

	*out_accepted = 0;
	if (!os_file_is_at(&d->file, fd))
		return -EBADF;
	while (slots) {
		struct sluice_enter enter = { .entries = (uintptr_t)batch };
		uint64_t bits = 0;
		int rc;

		for (; slots && enter.count < BASE_ARRAY_LEN(batch); slots &= slots - 1) {
			batch[enter.count++] = d->entries[__builtin_ctzll(slots)];
			bits |= slots & -slots;
		}
		rc = kmod_system.call(fd, SLUICE_IOC_ENTER, &enter);
		for (uint32_t i = 0; i < enter.accepted; i++, bits &= bits - 1)
			*out_accepted |= bits & -bits;
		if (rc)
			return rc;
	}
	return 0;
}

void kmod_cancel_range(struct kmod_device *d, uint64_t from, uint64_t bytes)
{
	struct sluice_cancel cancel = { .from = from, .bytes = bytes };
	int fd = atomic_load_explicit(&d->fd, memory_order_relaxed);

	if (os_file_is_at(&d->file, fd))
		kmod_system.call(fd, SLUICE_IOC_CANCEL, &cancel);
}

bool kmod_close(struct kmod_device *d)
{
	int fd = atomic_exchange_explicit(&d->fd, -1, memory_order_acq_rel);
	int rc;

	if (!os_file_is_at(&d->file, fd))
		return false; /* the module ends the copies of a closed descriptor by itself */
	rc = kmod_system.call(fd, SLUICE_IOC_RETIRE, NULL);
	close(fd);
	return !rc;
}

void kmod_fini(struct kmod_device *d)
{
	int fd = atomic_exchange_explicit(&d->fd, -1, memory_order_acq_rel);

	if (os_file_is_at(&d->file, fd))
		close(fd);
	if (d->records)
		munmap(d->records, SLUICE_RECORDS_BYTES);
	d->records = NULL;
}
