/* SPDX-License-Identifier: BSD-3-Clause */
#include "mpi_find.h"

#include <dirent.h>
#include <dlfcn.h>
#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include "base/base.h"
#include "preload/preload.h"
#include "tune/tune.h"
#include "sluice_paths.h"
#include "tool.h"

#define VERSION_SECONDS    2
#define VERSION_TEXT_BYTES 8192 /* larger than any MPI_MAX_LIBRARY_VERSION_STRING */

/* Folders of libmpi in an installation, relative to its prefix. */
static const char *const lib_folders[] = {
	"lib",
	"lib64",
	"lib/" SLUICE_MULTIARCH,
	"lib/release",
	"lib64/openmpi/lib",
	"lib64/mpich/lib",
	"lib/" SLUICE_MULTIARCH "/openmpi/lib",
};

const char *mpi_find_abi_name(enum mpi_find_abi abi)
{
	static const char *const names[] = { "MPICH", "Open MPI", "standard" };

	return names[abi];
}

/* ---- one file ----------------------------------------------------------------------- */

/* Returns: the length of "libmpich" in "libmpich.so.12", or 0 for other names. */
static size_t stem_length(const char *name)
{
	const char *so = strstr(name, ".so");

	if (strncmp(name, "libmpi", 6) || !so || (so[3] && so[3] != '.'))
		return 0;
	return (size_t)(so - name);
}

/* Matches the name that programs record: "libmpi.so.12", not "libmpi.so" or "libmpi.so.12.1.0". */
static bool has_soname_form(const char *name)
{
	const char *version = name + stem_length(name) + strlen(".so");

	return *version == '.' && version[1] && !strchr(version + 1, '.');
}

static bool is_elf(const char *path)
{
	char magic[4] = "";
	int fd = open(path, O_RDONLY | O_CLOEXEC);
	bool is = fd >= 0 && read(fd, magic, 4) == 4 && memcmp(magic, "\177ELF", 4) == 0;

	if (fd >= 0)
		close(fd);
	return is;
}

/* Open MPI 6 defines its handles in another library. */
static bool is_openmpi(const char *path)
{
	return preload_defines_symbol(path, "ompi_mpi_comm_world") == 1 ||
	       preload_defines_symbol(path, "OMPI_Affinity_str") == 1;
}

/* Fills *m except `how` and version. Returns: true for an MPI library, also one that Sluice cannot
 * serve. */
static bool examine(const char *folder, const char *name, struct mpi_found *m)
{
	char real[PATH_MAX];
	struct stat st;
	int rc;

	if (snprintf(m->path, sizeof(m->path), "%s/%s", folder, name) >= (int)sizeof(m->path) ||
	    stat(m->path, &st) || !realpath(m->path, real))
		return false;
	m->dev = st.st_dev;
	m->ino = st.st_ino;
	m->version[0] = '\0';
	m->refusal = NULL;
	m->abi = MPI_FIND_MPICH;
	rc = preload_defines_symbol(m->path, "PMPI_Bcast");
	if (rc == -ENOEXEC && is_elf(m->path)) {
		m->refusal = "another architecture than Sluice's";
		return strncmp(name, "libmpi.so", 9) == 0 || strncmp(name, "libmpich.so", 11) == 0;
	}
	if (rc != 1)
		return false;
	if (is_openmpi(m->path))
		m->abi = MPI_FIND_OPENMPI;
	else if (strncmp(name, "libmpi_abi", 10) == 0)
		m->abi = MPI_FIND_STANDARD;
	else if (!strstr(real, ".so.12") &&
		 preload_defines_symbol(m->path, "MPIR_Err_return_comm") != 1)
		m->refusal = "unknown MPI ABI";
	return true;
}

bool mpi_find_examine(const char *path, struct mpi_found *out)
{
	char folder[PATH_MAX];
	const char *name = strrchr(path, '/');

	if (!name || !stem_length(name + 1))
		return false;
	snprintf(folder, sizeof folder, "%.*s", (int)(name - path), path);
	return examine(folder, name + 1, out);
}

/* ---- lists -------------------------------------------------------------------------- */

static bool is_sibling(const struct mpi_found *a, const struct mpi_found *b)
{
	const char *a_name = strrchr(a->path, '/') + 1, *b_name = strrchr(b->path, '/') + 1;
	size_t a_len = (size_t)(a_name - a->path) + stem_length(a_name);
	size_t b_len = (size_t)(b_name - b->path) + stem_length(b_name);

	return a_len == b_len && memcmp(a->path, b->path, a_len) == 0;
}

/* Adds a library unless the list has the same file, or another version name of it in the same
 * folder. */
static void add_found(struct mpi_list *list, const struct mpi_found *m)
{
	for (size_t i = 0; i < list->count; i++) {
		struct mpi_found *have = &list->found[i];

		if ((have->dev != m->dev || have->ino != m->ino) && !is_sibling(have, m))
			continue;
		if (is_sibling(have, m) && !has_soname_form(strrchr(have->path, '/') + 1) &&
		    has_soname_form(strrchr(m->path, '/') + 1))
			*have = *m;
		return;
	}
	if (list->count < MPI_FIND_MAX)
		list->found[list->count++] = *m;
}

static void scan_folder(struct mpi_list *list, const char *folder, const char *how)
{
	static struct mpi_found m; /* 8 KiB: too large for the stack */
	char real[PATH_MAX];       /* lib64 may be a link to lib */
	DIR *d = realpath(folder, real) ? opendir(real) : NULL;
	struct dirent *e;

	if (!d)
		return;
	snprintf(m.how, sizeof(m.how), "%s", how);
	while ((e = readdir(d)))
		if (stem_length(e->d_name) && examine(real, e->d_name, &m))
			add_found(list, &m);
	closedir(d);
}

static void scan_prefix(struct mpi_list *list, const char *prefix, const char *how)
{
	char folder[PATH_MAX + 64];

	for (size_t i = 0; i < BASE_ARRAY_LEN(lib_folders); i++) {
		snprintf(folder, sizeof(folder), "%s/%s", prefix, lib_folders[i]);
		scan_folder(list, folder, how);
	}
}

/* Removes n components: /opt/mpi/bin/mpicc becomes /opt/mpi with n = 2. */
static void strip_components(char *path, int n)
{
	char *slash;

	while (n-- && (slash = strrchr(path, '/')))
		*slash = '\0';
}

/* Scans the installation of a program in PATH, by its name there and by the target of its link. */
static void scan_around(struct mpi_list *list, const char *folder, const char *program)
{
	char path[PATH_MAX], real[PATH_MAX], how[64];

	if (snprintf(path, sizeof(path), "%s/%s", folder, program) >= (int)sizeof(path) ||
	    access(path, X_OK))
		return;
	snprintf(how, sizeof(how), "%s in PATH", program);
	if (realpath(path, real)) {
		strip_components(path, 2);
		scan_prefix(list, path, how);
		strip_components(real, 2);
		if (strcmp(path, real))
			scan_prefix(list, real, how);
	}
}

/* Calls `visit` for each part of a colon-separated variable. */
static void for_each_folder(struct mpi_list *list, const char *variable,
			    void (*visit)(struct mpi_list *list, const char *folder))
{
	char *copy = variable ? strdup(variable) : NULL, *rest = copy, *folder;

	while ((folder = strsep(&rest, ":")))
		if (*folder)
			visit(list, folder);
	free(copy);
}

static void visit_path(struct mpi_list *list, const char *folder)
{
	static const char *const programs[] = { "mpiexec", "mpirun", "mpicc", "python3" };

	for (size_t i = 0; i < BASE_ARRAY_LEN(programs); i++)
		scan_around(list, folder, programs[i]);
}

static void visit_library_path(struct mpi_list *list, const char *folder)
{
	scan_folder(list, folder, "LD_LIBRARY_PATH");
}

/* Parses lines of `ldconfig -p`: "\tlibmpi.so.40 (libc6,x86-64) => /lib/.../libmpi.so.40". */
static void scan_linker_cache(struct mpi_list *list)
{
	FILE *f = popen("PATH=/sbin:/usr/sbin:$PATH ldconfig -p 2>/dev/null", "re");
	char line[PATH_MAX + 256];

	while (f && fgets(line, sizeof(line), f)) {
		char *path = strstr(line, " => ");
		char *name = line + strspn(line, " \t");

		if (!path || !stem_length(name))
			continue;
		path += 4;
		path[strcspn(path, "\n")] = '\0';
		strip_components(path, 1);
		scan_folder(list, path, "linker cache");
	}
	if (f)
		pclose(f);
}

int mpi_find_all(struct mpi_list *out)
{
	char user[PATH_MAX];

	out->count = 0;
	out->found = calloc(MPI_FIND_MAX, sizeof(*out->found));
	if (!out->found)
		return -ENOMEM;
	for_each_folder(out, getenv("PATH"), visit_path);
	for_each_folder(out, getenv("LD_LIBRARY_PATH"), visit_library_path);
	if (getenv("HOME")) {
		snprintf(user, sizeof(user), "%s/.local/lib", getenv("HOME"));
		scan_folder(out, user, "Python packages of the user");
	}
	scan_linker_cache(out);
	return 0;
}

int mpi_find_folder(const char *path, char *out, size_t cap)
{
	struct mpi_list list = { .found = calloc(MPI_FIND_MAX, sizeof(*list.found)) };
	char real[PATH_MAX];
	struct stat st;
	int rc = -EINVAL;

	if (!list.found)
		return -ENOMEM;
	errno = 0;
	if (!realpath(path, real) || stat(real, &st) || strlen(real) >= cap) {
		rc = errno ? -errno : -ENAMETOOLONG;
		goto free_list;
	}
	if (S_ISDIR(st.st_mode)) {
		scan_folder(&list, real, "");
		scan_prefix(&list, real, "");
	} else {
		strip_components(real, 1);
		if (is_elf(path)) {
			rc = preload_defines_symbol(path, "PMPI_Bcast");
			if (rc == 1)
				strcpy(out, real);
			rc = rc == 1 ? 0 : rc ? rc : -EINVAL;
			goto free_list;
		}
		/* `libmpi.so` may be a linker script beside the library */
		if (stem_length(base_file_name(path)))
			scan_folder(&list, real, "");
	}
	for (size_t i = 0; i < list.count; i++) {
		if (list.found[i].refusal || strlen(list.found[i].path) >= cap)
			continue;
		strcpy(out, list.found[i].path);
		strip_components(out, 1);
		rc = 0;
		break;
	}
free_list:
	free(list.found);
	return rc;
}

/* ---- versions ----------------------------------------------------------------------- */

/* In a child: loads the library, which runs its constructors, and asks for its version, which is
 * legal before MPI_Init. */
__attribute__((noreturn)) static void tell_version(const char *path, int out_fd)
{
	static const struct rlimit no_core;
	int null_fd = open("/dev/null", O_RDWR), length = 0;
	static char text[VERSION_TEXT_BYTES];
	int (*get_version)(char *, int *);
	void *library;

	dup2(null_fd, STDIN_FILENO);
	dup2(null_fd, STDOUT_FILENO);
	dup2(null_fd, STDERR_FILENO);
	setrlimit(RLIMIT_CORE, &no_core);
	alarm(VERSION_SECONDS);
	library = dlopen(path, RTLD_LAZY | RTLD_LOCAL);
	get_version =
		library ? (int (*)(char *, int *))dlsym(library, "MPI_Get_library_version") : NULL;
	if (get_version && get_version(text, &length) == 0 && write(out_fd, text, strlen(text)) > 0)
		_exit(0);
	_exit(1);
}

void mpi_find_version(struct mpi_found *m)
{
	char text[VERSION_TEXT_BYTES];
	size_t used = 0;
	ssize_t n;
	int fds[2];
	pid_t pid;

	if (pipe2(fds, O_CLOEXEC))
		return;
	fflush(NULL);
	pid = fork();
	if (pid == 0)
		tell_version(m->path, fds[1]);
	close(fds[1]);
	while (pid > 0 && used < sizeof(text) - 1 &&
	       (n = read(fds[0], text + used, sizeof(text) - 1 - used)) > 0)
		used += (size_t)n;
	close(fds[0]);
	if (pid > 0)
		waitpid(pid, NULL, 0);
	text[used] = '\0';
	tune_mpi_name(text, m->version, sizeof(m->version));
}
