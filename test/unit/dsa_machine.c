/* SPDX-License-Identifier: BSD-3-Clause */
#include "dsa_machine.h"

#include <errno.h>
#include <ftw.h>
#include <sys/stat.h>
#include <unistd.h>

#include "unit.h"

#define DEVICES "sys/bus/dsa/devices/"

static const char *const files[][2] = {
	{ DEVICES "dsa0/pasid_enabled", "1\n" }, { DEVICES "dsa0/numa_node", "0\n" },
	{ DEVICES "dsa0/state", "enabled\n" },   { DEVICES "wq0.0/type", "user\n" },
	{ DEVICES "wq0.0/state", "enabled\n" },  { DEVICES "wq0.0/mode", "shared\n" },
	{ DEVICES "wq0.0/size", "64\n" },	 { DEVICES "wq0.0/max_transfer_size", "2097152\n" },
	{ DEVICES "wq0.1/type", "kernel\n" },    { DEVICES "wq0.1/state", "enabled\n" },
};
static char root[64];
static pid_t owner;

static void make_folders(char *path)
{
	for (char *slash = path + 1; (slash = strchr(slash, '/')); slash++) {
		*slash = 0;
		mkdir(path, 0700);
		*slash = '/';
	}
}

void dsa_machine_set(const char *name, const char *text)
{
	char path[256];
	FILE *f;

	snprintf(path, sizeof path, "%s/%s", dsa_machine(), name);
	make_folders(path);
	if (!text) {
		unlink(path);
		return;
	}
	f = fopen(path, "we");
	if (!f || fputs(text, f) < 0 || fclose(f))
		unit_fail(__FILE__, __LINE__, "%s: %s", path, strerror(errno));
}

void dsa_machine_reset(void)
{
	char path[256];

	dsa_model_set("");
	for (size_t i = 0; i < sizeof files / sizeof files[0]; i++)
		dsa_machine_set(files[i][0], files[i][1]);
	dsa_machine_set("dev/dsa/wq0.0", NULL);
	snprintf(path, sizeof path, "%s/dev/dsa/wq0.0", root);
	if (symlink("/proc/self/fd/900", path))
		unit_fail(__FILE__, __LINE__, "%s: %s", path, strerror(errno));
}

static int remove_one(const char *path, const struct stat *st, int kind, struct FTW *f)
{
	return remove(path);
}

static void clean(void)
{
	if (getpid() == owner)
		nftw(root, remove_one, 8, FTW_DEPTH | FTW_PHYS);
}

const char *dsa_machine(void)
{
	if (root[0])
		return root;
	strcpy(root, "/tmp/sluice-dsa-XXXXXX");
	if (!mkdtemp(root))
		unit_fail(__FILE__, __LINE__, "no folder: %s", strerror(errno));
	owner = getpid();
	atexit(clean);
	dsa_machine_reset();
	return root;
}

/* Before the first test, so that the harness counts its thread and descriptors among those that
 * were there. */
__attribute__((constructor)) static void start(void) { dsa_model_start(1); }
