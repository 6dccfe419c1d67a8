/* SPDX-License-Identifier: BSD-3-Clause */
#include "preload/preload.h"

#include <errno.h>
#include <fcntl.h>
#include <stdint.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "base/base.h"
#include "preload/elf_view.h"

#define SCRIPT_DEPTH 5   /* the kernel follows four interpreters that are scripts themselves */
#define SCRIPT_LINE  256 /* BINPRM_BUF_SIZE: the kernel reads no further either */

/* Alone, or with a suffix after one of ". - _": mpiexec.hydra, mpirun-openmpi-gcc. */
/* clang-format off */
static const char *const launcher_names[] = {
	"mpiexec", "mpirun", "mpiexec_mpt", "mpdboot", "mpd",
	"hydra_pmi_proxy", "hydra_bstrap_proxy", "hydra_persist", "hydra_nameserver",
	"orterun", "orted", "oshrun", "prte", "prted", "prterun", "prun", "pterun",
	"srun", "sbatch", "salloc", "aprun", "palsd", "jsrun", "lrun", "flux", "bsub", "qsub",
	"ibrun", "yod", "ccc_mprun",
};
/* clang-format on */

/*
 * Libraries that load no MPI library and start no program on behalf of their caller. A program that
 * links any other library may do so through it, and inherits the preload.
 */
static const char *const closed_libraries[] = {
	"libc",       "libm",         "libpthread", "librt",      "libdl",     "libresolv",
	"libutil",    "libgcc_s",     "libstdc++",  "libselinux", "libpcre",   "libpcre2-8",
	"libacl",     "libattr",      "libcap",     "libcap-ng",  "libtinfo",  "libtinfow",
	"libncurses", "libncursesw",  "libz",       "libbz2",     "liblzma",   "libzstd",
	"liblz4",     "libcrypt",     "libgmp",     "libmpfr",    "libmount",  "libblkid",
	"libuuid",    "libsmartcols", "libproc2",   "libprocps",  "libcrypto", "libaudit",
};

bool preload_is_launcher_name(const char *path)
{
	const char *name = base_file_name(path);

	for (size_t i = 0; i < BASE_ARRAY_LEN(launcher_names); i++) {
		size_t len = strlen(launcher_names[i]);

		if (strncmp(name, launcher_names[i], len) == 0 &&
		    (!name[len] || strchr(".-_", name[len])))
			return true;
	}
	return false;
}

/* ---- ELF ---------------------------------------------------------------------------- */

static bool is_closed_library(const char *soname)
{
	if (strncmp(soname, "ld-linux", 8) == 0)
		return true;
	for (size_t i = 0; i < BASE_ARRAY_LEN(closed_libraries); i++) {
		size_t len = strlen(closed_libraries[i]);

		if (strncmp(soname, closed_libraries[i], len) == 0 &&
		    strncmp(soname + len, ".so", 3) == 0)
			return true;
	}
	return false;
}

/* Functions that load libraries or start programs. */
static bool is_opening_symbol(const char *name)
{
	switch (name[0]) {
	case 'd':
		return strcmp(name, "dlopen") == 0 || strcmp(name, "dlmopen") == 0;
	case 'e':
		return strncmp(name, "exec", 4) == 0;
	case 'f':
		return strcmp(name, "fexecve") == 0;
	case 'p':
		return strncmp(name, "posix_spawn", 11) == 0 ||
		       strncmp(name, "pidfd_spawn", 11) == 0 || strcmp(name, "popen") == 0;
	case 's':
		return strcmp(name, "system") == 0;
	case 'w':
		return strcmp(name, "wordexp") == 0;
	}
	return false;
}

static bool is_loader_name(const char *name)
{
	return strncmp(name, "ld-", 3) == 0 || strncmp(name, "ld.so", 5) == 0;
}

static enum preload_target kind_of_dynamic(const struct elf_view *v)
{
	enum preload_target kind = PRELOAD_TARGET_PLAIN;

	for (size_t i = 0; i < v->dyn_count && v->dyn[i].d_tag != DT_NULL; i++) {
		const char *soname;

		if (v->dyn[i].d_tag != DT_NEEDED)
			continue;
		soname = elf_view_string(v, v->dyn[i].d_un.d_val);
		if (strncmp(soname, "libmpi", 6) == 0)
			return PRELOAD_TARGET_MPI;
		if (!is_closed_library(soname))
			kind = PRELOAD_TARGET_MAY;
	}
	for (size_t i = 1; i < v->sym_count; i++) {
		const char *name = elf_view_string(v, v->sym[i].st_name);

		/* an MPI library with another name, or linked statically */
		if (strncmp(name, "PMPI_", 5) == 0 || strncmp(name, "MPI_Init", 8) == 0)
			return PRELOAD_TARGET_MPI;
		if (v->sym[i].st_shndx == SHN_UNDEF && is_opening_symbol(name))
			kind = PRELOAD_TARGET_MAY;
	}
	return kind;
}

static enum preload_target kind_of_elf(const void *base, size_t size_bytes, const char *name)
{
	struct elf_view v;
	int rc = elf_view_open(base, size_bytes, &v);

	if (rc)
		return rc == -ENOEXEC ? PRELOAD_TARGET_FOREIGN : PRELOAD_TARGET_UNKNOWN;
	if (!v.interp) /* `ld.so program` reads LD_PRELOAD though nothing interprets ld.so */
		return is_loader_name(base_file_name(name)) ? PRELOAD_TARGET_MAY
							    : PRELOAD_TARGET_STATIC;
	if (strncmp(base_file_name(v.interp), "ld-musl", 7) == 0) /* libsluice.so needs glibc */
		return PRELOAD_TARGET_FOREIGN;
	return v.dyn ? kind_of_dynamic(&v) : PRELOAD_TARGET_UNKNOWN;
}

/* ---- files -------------------------------------------------------------------------- */

struct mapped_file {
	const char *base;
	size_t size_bytes;
};

static int map_fd(int fd, struct mapped_file *out)
{
	struct stat st;
	long addr;

	if (fstat(fd, &st))
		return -errno;
	if (!S_ISREG(st.st_mode) || !st.st_size)
		return -EINVAL;
	/* not mmap(): its hook in memory.c takes locks */
	addr = syscall(SYS_mmap, NULL, (size_t)st.st_size, PROT_READ, MAP_PRIVATE, fd, 0L);
	if (addr == -1)
		return -errno;
	*out = (struct mapped_file){ .base = (const char *)addr, .size_bytes = (size_t)st.st_size };
	return 0;
}

static void unmap(const struct mapped_file *f) { syscall(SYS_munmap, f->base, f->size_bytes); }

static int open_to_read(const char *path)
{
	/* O_NONBLOCK: opening a FIFO must not wait */
	long fd = syscall(SYS_openat, AT_FDCWD, path, O_RDONLY | O_CLOEXEC | O_NONBLOCK, 0);

	return fd < 0 ? -errno : (int)fd;
}

/* The interpreter in "#! /bin/sh -x". Returns: false: none, or longer than the kernel reads. */
static bool script_interpreter(const struct mapped_file *f, char out[SCRIPT_LINE])
{
	size_t end, n = 0, limit = base_min_u64(f->size_bytes, SCRIPT_LINE);
	size_t i = 2;

	while (i < limit && (f->base[i] == ' ' || f->base[i] == '\t'))
		i++;
	for (end = i; end < limit && !strchr(" \t\n", f->base[end]); end++)
		out[n++] = f->base[end];
	out[n] = '\0';
	return n && end < limit;
}

static enum preload_target kind_of_content(const struct mapped_file *f, const char *name,
					 char interp[SCRIPT_LINE])
{
	interp[0] = '\0';
	if (elf_view_is_elf(f->base, f->size_bytes))
		return kind_of_elf(f->base, f->size_bytes, name);
	if (f->size_bytes > 2 && f->base[0] == '#' && f->base[1] == '!' &&
	    !script_interpreter(f, interp))
		interp[0] = '\0';
	return PRELOAD_TARGET_UNKNOWN; /* with no interpreter: execvp hands it to /bin/sh */
}

enum preload_target preload_target_of_fd(int fd, const char *name)
{
	char interp[SCRIPT_LINE] = "", previous[SCRIPT_LINE];
	enum preload_target kind = PRELOAD_TARGET_UNKNOWN;
	struct mapped_file f;
	int depth;

	if (map_fd(fd, &f) == 0) {
		kind = kind_of_content(&f, name, interp);
		unmap(&f);
	}
	for (depth = 1; depth < SCRIPT_DEPTH && interp[0]; depth++) {
		int rc, interp_fd = open_to_read(interp);

		kind = PRELOAD_TARGET_UNKNOWN;
		if (interp_fd < 0)
			break;
		rc = map_fd(interp_fd, &f);
		syscall(SYS_close, interp_fd);
		if (rc)
			break;
		memcpy(previous, interp, sizeof(previous));
		kind = kind_of_content(&f, previous, interp);
		unmap(&f);
	}
	/* by name last: a user's program may be called `flux`, but then it links an MPI */
	if (kind != PRELOAD_TARGET_MPI && preload_is_launcher_name(name))
		return PRELOAD_TARGET_LAUNCHER;
	return kind;
}

enum preload_target preload_target_of(const char *path)
{
	enum preload_target kind;
	int fd = open_to_read(path);

	if (fd < 0)
		return preload_is_launcher_name(path) ? PRELOAD_TARGET_LAUNCHER
						      : PRELOAD_TARGET_UNKNOWN;
	kind = preload_target_of_fd(fd, path);
	syscall(SYS_close, fd);
	return kind;
}

/* Maps a file with a dynamic section; unmap() ends it. Returns: 0 or -errno. */
static int map_dynamic(const char *path, struct mapped_file *f, struct elf_view *v)
{
	int rc, fd = open_to_read(path);

	if (fd < 0)
		return fd;
	rc = map_fd(fd, f);
	syscall(SYS_close, fd);
	if (rc)
		return rc;
	rc = elf_view_open(f->base, f->size_bytes, v);
	if (!rc && v->dyn)
		return 0;
	unmap(f);
	return -ENOEXEC;
}

bool preload_is_sanitizer(const char *entry, size_t len)
{
	static const char *const names[] = { "libasan.so",	    "libtsan.so",
					     "libhwasan.so",	    "liblsan.so",
					     "libclang_rt.asan",    "libclang_rt.tsan",
					     "libclang_rt.hwasan", "libclang_rt.lsan" };
	const char *name = entry;

	for (size_t i = 0; i < len; i++)
		name = entry[i] == '/' ? entry + i + 1 : name;
	len -= (size_t)(name - entry);
	for (size_t i = 0; i < BASE_ARRAY_LEN(names); i++)
		if (len >= strlen(names[i]) && !strncmp(name, names[i], strlen(names[i])))
			return true;
	return false;
}

bool preload_find_sanitizer(const char *path, char *out, size_t cap)
{
	struct mapped_file f;
	struct elf_view v;
	bool found = false;

	if (map_dynamic(path, &f, &v))
		return false;
	for (size_t i = 0; i < v.dyn_count && v.dyn[i].d_tag != DT_NULL && !found; i++) {
		const char *soname = v.dyn[i].d_tag == DT_NEEDED
					     ? elf_view_string(&v, v.dyn[i].d_un.d_val)
					     : "";
		size_t len = strlen(soname);

		found = preload_is_sanitizer(soname, len) && len < cap;
		if (found)
			memcpy(out, soname, len + 1);
	}
	unmap(&f);
	return found;
}

bool preload_find_loader(const char *path, char *out, size_t cap)
{
	struct mapped_file f;
	struct elf_view v;
	bool found;

	if (map_dynamic(path, &f, &v))
		return false;
	found = v.interp && strlen(v.interp) < cap;
	if (found)
		strcpy(out, v.interp);
	unmap(&f);
	return found;
}

int preload_defines_symbol(const char *path, const char *name)
{
	struct mapped_file f;
	struct elf_view v;
	int rc = map_dynamic(path, &f, &v);

	if (rc)
		return rc;
	for (size_t i = 1; i < v.sym_count && !rc; i++)
		rc = v.sym[i].st_shndx != SHN_UNDEF &&
		     strcmp(elf_view_string(&v, v.sym[i].st_name), name) == 0;
	unmap(&f);
	return rc;
}

static int check_executable(const char *path)
{
	struct stat st;

	if (stat(path, &st))
		return -errno;
	/* as execve does for directories and devices */
	if (!S_ISREG(st.st_mode) || access(path, X_OK))
		return -EACCES;
	return 0;
}

int preload_find_program(const char *file, const char *path_var, char *out, size_t cap)
{
	const char *dir, *end;
	size_t name_len = strlen(file);
	int rc, best = -ENOENT;

	if (!name_len)
		return -ENOENT;
	if (strchr(file, '/')) {
		if (name_len >= cap)
			return -ENAMETOOLONG;
		memcpy(out, file, name_len + 1);
		return check_executable(out);
	}
	for (dir = path_var ? path_var : "/bin:/usr/bin";; dir = end + 1) {
		size_t len;

		end = strchrnul(dir, ':');
		len = (size_t)(end - dir);
		if (len + name_len + 2 <= cap) {
			memcpy(out, dir, len);
			out[len] = '/';
			/* an empty entry is the current directory */
			memcpy(out + (len ? len + 1 : 0), file, name_len + 1);
			rc = check_executable(out);
			if (rc == 0 || rc == -EACCES)
				best = rc;
			if (rc == 0)
				return 0;
		}
		if (!*end)
			return best;
	}
}

/* ---- LD_PRELOAD --------------------------------------------------------------------- */

static bool is_our_entry(const char *entry, size_t len)
{
	size_t name_len = sizeof(PRELOAD_NAME) - 1;

	return len >= name_len && memcmp(entry + len - name_len, PRELOAD_NAME, name_len) == 0 &&
	       (len == name_len || entry[len - name_len - 1] == '/');
}

int preload_without_sluice(const char *value, char *out)
{
	int dropped = 0;
	char *o = out;

	while (*value) {
		size_t len = strcspn(value, ": ");

		if (len && is_our_entry(value, len)) {
			dropped++;
		} else if (len) {
			if (o != out)
				*o++ = ':';
			memcpy(o, value, len);
			o += len;
		}
		value += len;
		if (*value)
			value++;
	}
	*o = '\0';
	return dropped;
}
