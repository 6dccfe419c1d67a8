/* SPDX-License-Identifier: BSD-3-Clause */
/* Identity of this machine and process, and random numbers. */
#include <dlfcn.h>
#include <errno.h>
#include <limits.h>
#include <link.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/auxv.h>
#include <sys/random.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/utsname.h>
#include <unistd.h>

#include "os/private.h"

/* Hashes a link like "pid:[4026531836]"; the inode number identifies the namespace. */
static uint64_t hash_link(uint64_t hash, const char *path)
{
	char text[128];
	ssize_t n = readlink(path, text, sizeof(text));

	return base_hash(hash, text, n > 0 ? (size_t)n : 0);
}

/* Reads the parts that stay as long as the process lives once. */
static uint64_t hash_fixed(uint64_t hash)
{
	static _Atomic uint64_t memo;
	static _Atomic pid_t owner; /* a child of fork() may have another pid namespace */
	struct utsname names;
	char boot[64];
	int n;

	if (atomic_load_explicit(&owner, memory_order_acquire) == getpid())
		return atomic_load_explicit(&memo, memory_order_relaxed);
	n = os_procfile_read("/proc/sys/kernel/random/boot_id", boot, sizeof(boot));
	hash = base_hash(hash, boot, n > 0 ? (size_t)n : 0);
	/* Virtual machines resumed from one snapshot share a boot_id, but rarely a name. */
	if (!uname(&names))
		hash = base_hash(hash, names.nodename, strlen(names.nodename));
	hash = hash_link(hash, "/proc/self/ns/pid");
	atomic_store_explicit(&memo, hash, memory_order_relaxed);
	atomic_store_explicit(&owner, getpid(), memory_order_release);
	return hash;
}

uint64_t os_node_id(void)
{
	uint64_t hash = BASE_HASH_START;

	if (base_opt.node_name[0])
		return base_hash(hash, base_opt.node_name, strlen(base_opt.node_name));
	return hash_link(hash_fixed(hash), "/proc/self/ns/net");
}

/* Are the numbers in /proc those that this process has for others? Not in a new pid namespace with
 * the old /proc. */
static bool is_own_procfs(void)
{
	char text[16];
	ssize_t n = readlink("/proc/self", text, sizeof text);
	int64_t pid = 0;

	for (ssize_t i = 0; i < n; i++)
		pid = pid * 10 + text[i] - '0';
	return pid == getpid();
}

uint64_t os_process_start(int pid)
{
	char path[32], text[1024];
	const char *field;

	snprintf(path, sizeof(path), "/proc/%d/stat", pid);
	if (!is_own_procfs() || os_procfile_read(path, text, sizeof(text)) <= 0)
		return 0;
	/* Field 2 is the name, which may contain blanks and parentheses; field 3 follows the last
	 * one. */
	field = strrchr(text, ')');
	if (!field || field[1] != ' ' || field[2] == 'Z' || field[2] == 'X')
		return 0;
	field += 2;
	for (int i = 3; i < 22; i++) {
		field = strchr(field, ' ');
		if (!field)
			return 0;
		field++;
	}
	return strtoull(field, NULL, 10);
}

int os_file_of(int fd, struct os_file *out)
{
	struct stat st;

	if (syscall(SYS_fstat, fd, &st))
		return -errno;
	*out = (struct os_file){ st.st_dev, st.st_ino };
	return 0;
}

bool os_file_is_at(const struct os_file *file, int fd)
{
	struct os_file now;

	return fd >= 0 && !os_file_of(fd, &now) && now.inode == file->inode &&
	       now.device == file->device;
}

uint64_t os_random_u64(void)
{
	uint64_t value;

	if (getrandom(&value, sizeof(value), 0) == sizeof(value))
		return value;
	/* seccomp refuses getrandom: still unique enough for names, and nothing here is a secret */
	value = os_now_ns() ^ ((uint64_t)getpid() << 40) ^ (uintptr_t)&value;
	return base_hash(BASE_HASH_START, &value, sizeof(value));
}

/* Finds the first line of /proc/cpuinfo with this key. Returns: true with its value, for example
 * "GenuineIntel". */
static int cpuinfo_value(const char *text, const char *key, char *out, size_t cap)
{
	size_t len = strlen(key), n;

	for (const char *line = text; *line; line += strcspn(line, "\n"), line += *line == '\n') {
		if (strncmp(line, key, len) || !strchr("\t :", line[len]))
			continue;
		line += strcspn(line, ":\n");
		line += strspn(line, ": \t");
		n = base_min_u64(strcspn(line, "\n"), cap - 1);
		memcpy(out, line, n);
		out[n] = '\0';
		return n > 0;
	}
	return 0;
}

int os_machine_text(char *out, size_t cap)
{
	/* without values that depend on frequency or microcode */
	static const char *const keys[] = { "vendor_id",       "cpu family",  "model",
					    "stepping",        "model name",  "cache size",
					    "CPU implementer", "CPU variant", "CPU part" };
	char text[4096], value[128];
	size_t used = 0;
	int n = os_procfile_read("/proc/cpuinfo", text, sizeof text);

	for (size_t i = 0; n > 0 && i < BASE_ARRAY_LEN(keys) && used + 1 < cap; i++)
		if (cpuinfo_value(text, keys[i], value, sizeof value))
			used += (size_t)snprintf(out + used, cap - used, "%s ", value);
	used = base_min_u64(used, cap - 1);
	n = snprintf(out + used, cap - used, "(%ld CPUs, %d NUMA nodes)",
		     sysconf(_SC_NPROCESSORS_ONLN), os_numa_node_count());
	return (int)used + n;
}

int os_own_folder(char *out, size_t cap)
{
	char real[PATH_MAX];
	struct link_map *map;
	Dl_info info;

	if (!dladdr1((void *)&os_own_folder, &info, (void **)&map, RTLD_DL_LINKMAP))
		return -ENOENT;
	/* l_name is empty for a program, whose dli_fname is argv[0], perhaps without a folder; the
	 * path of the program when the dynamic linker was called to start it, which then is exe */
	if (!realpath(map->l_name[0]         ? map->l_name
		      : getauxval(AT_BASE) ? "/proc/self/exe"
					     : info.dli_fname,
		      real))
		return -ENOENT;
	*strrchr(real, '/') = '\0';
	return snprintf(out, cap, "%s", real) < (int)cap ? 0 : -ENAMETOOLONG;
}
