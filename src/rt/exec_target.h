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
#ifndef SLUICE_RT_EXEC_TARGET_H
#define SLUICE_RT_EXEC_TARGET_H

#include <stdbool.h>
#include <stddef.h>

#define RT_PRELOAD_NAME "libsluice.so" /* marks our entry in LD_PRELOAD, whatever its folder */

enum rt_exec_kind {
	RT_EXEC_UNKNOWN,  /* cannot be read or understood; keeps the preload, to be safe */
	RT_EXEC_MPI,      /* links an MPI library */
	RT_EXEC_MAY,      /* may load an MPI library or start another program */
	RT_EXEC_PLAIN,    /* a dynamic program that can do neither: ls, sleep */
	RT_EXEC_LAUNCHER, /* starts MPI programs: mpiexec, srun */
	RT_EXEC_STATIC,   /* statically linked: LD_PRELOAD does nothing in it */
	RT_EXEC_FOREIGN,  /* another architecture or another libc: LD_PRELOAD would only complain */
};

/* The kind of the file at `path` (not searched in PATH); a script has its interpreter's kind. */
enum rt_exec_kind rt_exec_kind_of(const char *path);
/* Likewise for an open file; `name` is what it is called. */
enum rt_exec_kind rt_exec_kind_of_fd(int fd, const char *name);

static inline bool rt_exec_keeps_preload(enum rt_exec_kind kind)
{
	return kind == RT_EXEC_UNKNOWN || kind == RT_EXEC_MPI || kind == RT_EXEC_MAY;
}

/* Is the last component of `path` the name of a launcher: mpiexec.hydra, prterun, srun? */
bool rt_exec_is_launcher_name(const char *path);

/*
 * Where execvp would find `file`: the first directory of `path_var` (NULL: the system's default)
 * that holds an executable of that name, or `file` itself when it contains a slash.
 * Returns 0 with the path in out; -ENOENT; -EACCES when only files were found that may not be
 * executed; -ENAMETOOLONG.
 */
int rt_exec_find(const char *file, const char *path_var, char *out, size_t cap);

/*
 * The value of LD_PRELOAD without our entries, in out (at least as long as value with its end).
 * ld.so separates entries by colons and by blanks; out has colons. Returns how many were ours.
 */
int rt_preload_without_us(const char *value, char *out);

/* Find `name` among the dynamic symbols that the shared library at `path` defines.
 * Returns 1 found, 0 not, -errno (-ENOEXEC: not a shared library for this machine). */
int rt_exec_defines(const char *path, const char *name);

#endif
