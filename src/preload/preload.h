/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * exec_target: what kind of program an executable file is, told from the file alone.
 *
 * The preloaded library belongs into MPI programs and into whatever may load or start one (shells,
 * Python, env, timeout), and nowhere else: not into launchers, not into ls and grep. The exec hooks
 * (exec_filter.c) ask here before each exec, and `sluice run` does for the program it is given.
 *
 * Context: everything here may be called between vfork() and exec: no allocation, no locks, no
 * global state, and system calls made directly, past libc wrappers that others may have replaced.
 */
#ifndef SLUICE_PRELOAD_H
#define SLUICE_PRELOAD_H

#include <stdbool.h>
#include <stddef.h>

#define PRELOAD_NAME "libsluice.so" /* marks our entry in LD_PRELOAD, whatever its folder */

enum preload_target {
	PRELOAD_TARGET_UNKNOWN,  /* cannot be read or understood; keeps the preload, to be safe */
	PRELOAD_TARGET_MPI,      /* links an MPI library */
	PRELOAD_TARGET_MAY,      /* may load an MPI library or start another program */
	PRELOAD_TARGET_PLAIN,    /* a dynamic program that can do neither: ls, sleep */
	PRELOAD_TARGET_LAUNCHER, /* starts MPI programs: mpiexec, srun */
	PRELOAD_TARGET_STATIC,   /* statically linked: LD_PRELOAD does nothing in it */
	PRELOAD_TARGET_FOREIGN,  /* another architecture or another libc: LD_PRELOAD would only complain */
};

/* The kind of the file at `path` (not searched in PATH); a script has its interpreter's kind. */
enum preload_target preload_target_of(const char *path);
/* Likewise for an open file; `name` is what it is called. */
enum preload_target preload_target_of_fd(int fd, const char *name);

static inline bool preload_is_kept(enum preload_target kind)
{
	return kind == PRELOAD_TARGET_UNKNOWN || kind == PRELOAD_TARGET_MPI || kind == PRELOAD_TARGET_MAY;
}

/* Is the last component of `path` the name of a launcher: mpiexec.hydra, prterun, srun? */
bool preload_is_launcher_name(const char *path);

/*
 * Where execvp would find `file`: the first directory of `path_var` (NULL: the system's default)
 * that holds an executable of that name, or `file` itself when it contains a slash.
 * Returns 0 with the path in out; -ENOENT; -EACCES when only files were found that may not be
 * executed; -ENAMETOOLONG.
 */
int preload_find_program(const char *file, const char *path_var, char *out, size_t cap);

/*
 * The value of LD_PRELOAD without our entries, in out (at least as long as value with its end).
 * ld.so separates entries by colons and by blanks; out has colons. Returns how many were ours.
 */
int preload_without_sluice(const char *value, char *out);

/* Find `name` among the dynamic symbols that the shared library at `path` defines.
 * Returns 1 found, 0 not, -errno (-ENOEXEC: not a shared library for this machine). */
int preload_defines_symbol(const char *path, const char *name);

#endif
