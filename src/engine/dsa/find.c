/* SPDX-License-Identifier: BSD-3-Clause */
/* Work queues in sysfs: the kernel's Documentation/ABI/stable/sysfs-driver-dma-idxd. */
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>

#include "engine/dsa/dsa.h"

#define DEVICES "/sys/bus/dsa/devices"
#define MAX_BYTES ((uint64_t)1 << 31)

/* Reads a file DEVICES/device/name. Returns: false when there is none. */
static bool attribute(const char *device, const char *name, char *out, size_t cap)
{
	char path[512];

	snprintf(path, sizeof(path), "%s" DEVICES "/%s/%s", base_opt.dsa_root, device, name);
	if (os_procfile_read(path, out, cap) < 0)
		return false;
	out[strcspn(out, "\n")] = 0;
	return true;
}

static bool attribute_is(const char *device, const char *name, const char *value)
{
	char text[64];

	return attribute(device, name, text, sizeof(text)) && !strcmp(text, value);
}

static uint64_t attribute_number(const char *device, const char *name, uint64_t otherwise)
{
	char text[64];

	return attribute(device, name, text, sizeof(text)) ? strtoull(text, NULL, 10) : otherwise;
}

/* How far the search has come; the furthest step gives the reason. */
enum step { NO_DRIVER, NO_DEVICE, NO_USER_QUEUE, NOT_ENABLED, NO_SVA, FOUND };

static void explain(enum step step, char *reason, size_t cap)
{
	static const char *const why[] = {
		[NO_DRIVER] = "the kernel has no driver idxd, or this machine no DSA",
		[NO_DEVICE] = "the driver idxd has found no device",
		[NO_USER_QUEUE] = "no work queue has the type user (accel-config makes one)",
		[NOT_ENABLED] = "no work queue of type user is enabled (accel-config enable-wq)",
		[NO_SVA] = "the kernel runs without shared virtual memory (intel_iommu=on,sm_on)",
		[FOUND] = "",
	};

	snprintf(reason, cap, "%s", why[step]);
}

/* wq: "wq0.1", the queue 1 of dsa0. */
static enum step inspect(const char *wq, struct dsa_queue *out)
{
	char device[DSA_NAME_MAX], node[32] = "-1";

	if (!attribute_is(wq, "type", "user"))
		return NO_USER_QUEUE;
	if (!attribute_is(wq, "state", "enabled"))
		return NOT_ENABLED;
	snprintf(device, sizeof(device), "dsa%lu", strtoul(wq + 2, NULL, 10));
	if (!attribute_is(device, "pasid_enabled", "1"))
		return NO_SVA;
	attribute(device, "numa_node", node, sizeof(node));
	*out = (struct dsa_queue){
		.node = atoi(node),
		.size = (uint32_t)attribute_number(wq, "size", 1),
		.max_bytes = base_min_u64(attribute_number(wq, "max_transfer_size", 2u << 20),
					  MAX_BYTES),
	};
	snprintf(out->name, sizeof(out->name), "%s", wq);
	return out->size && out->max_bytes ? FOUND : NOT_ENABLED;
}

int dsa_find(struct dsa_queue *out, int max, char *reason, size_t cap)
{
	enum step best = NO_DRIVER;
	struct dirent *d;
	char path[512];
	int n = 0;
	DIR *all;

	snprintf(path, sizeof(path), "%s" DEVICES, base_opt.dsa_root);
	all = opendir(path);
	if (all)
		best = NO_DEVICE;
	while (all && n < max && (d = readdir(all))) {
		bool is_wq = !strncmp(d->d_name, "wq", 2) && strlen(d->d_name) < DSA_NAME_MAX;
		enum step step = is_wq				    ? inspect(d->d_name, &out[n])
				 : !strncmp(d->d_name, "dsa", 3) ? NO_USER_QUEUE
								    : NO_DEVICE;

		best = step > best ? step : best;
		n += step == FOUND;
	}
	if (all)
		closedir(all);
	explain(n ? FOUND : best, reason, cap);
	return n;
}

int dsa_open(const struct dsa_queue *q, char *reason, size_t cap)
{
	char path[512];
	int fd;

	snprintf(path, sizeof(path), "%s/dev/dsa/%s", base_opt.dsa_root, q->name);
	fd = open(path, O_RDWR | O_NONBLOCK | O_CLOEXEC);
	if (fd >= 0)
		return fd;
	fd = -errno;
	snprintf(reason, cap, "%s cannot be opened: %s%s", path, strerror(-fd),
		 fd == -EACCES ? " (a udev rule gives access)"
		 : fd == -EBUSY ? " (a dedicated queue admits one process, a shared one all)"
				: "");
	return fd;
}
