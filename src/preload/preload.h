/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * preload: every function of the C library that libsluice.so interposes, and which programs inherit
 * the library in LD_PRELOAD.
 *
 *   program --call--> preload/ --NEXT(name)--> next definition (other tools, the C library)
 *                        |
 *                        +--> region/ guard/ sud/   what the call changes is completed or noted
 *                        first
 *
 *   memory.c     malloc, mmap, mprotect, brk ...       -> region/
 *   advice.c     madvise, process_madvise              -> region/
 *   signals.c    sigaction, masks, threads, longjmp    -> sud/
 *   process.c    exit, system, popen, wordexp, vfork   -> guard/
 *   process_vm.c process_vm_readv                      -> message/
 *   exec.c       exec and spawn: guard/, and LD_PRELOAD without us for programs without MPI
 *   yield.c      sched_yield                       -> wait/
 *   self.c       readlink, realpath                of /proc/self/exe
 *   next.h       NEXT(): the function behind an interposed one
 *   exec_target.c elf_view.c   the kind of an executable file; linked into bin/sluice too
 *
 * Interposed functions are compiled into libsluice.so and into unit tests only. Each costs two
 * loads and a compare while no memory of the program is adopted or closed. Calls that the C library
 * makes inside itself are not interposed. Any thread may call them; those that signal handlers may
 * call resolve their next function before main(), as dlsym() takes locks.
 *
 * This header: the kind of an executable file, from the file alone. libsluice.so belongs into MPI
 * programs and into programs that may load an MPI or start another program (shells, Python, env,
 * timeout); not into launchers, ls or grep. exec.c asks before each exec, and `sluice run` for its
 * program.
 *
 * Context: every function may be called between vfork() and exec: no allocation, no locks, no
 * global state, system calls by syscall(), as libc's wrappers may be interposed.
 */
#ifndef SLUICE_PRELOAD_H
#define SLUICE_PRELOAD_H

#include <stdbool.h>
#include <stddef.h>

#define PRELOAD_NAME "libsluice.so" /* marks our entry in LD_PRELOAD, whatever its folder */

enum preload_target {
	PRELOAD_TARGET_UNKNOWN,  /* unreadable or unknown; inherits the preload, to be safe */
	PRELOAD_TARGET_MPI,      /* links an MPI library */
	PRELOAD_TARGET_MAY,      /* may load an MPI library or start another program */
	PRELOAD_TARGET_PLAIN,    /* a dynamic program that can do neither: ls, sleep */
	PRELOAD_TARGET_LAUNCHER, /* starts MPI programs: mpiexec, srun */
	PRELOAD_TARGET_STATIC,   /* statically linked: LD_PRELOAD does nothing in it */
	PRELOAD_TARGET_FOREIGN,  /* another architecture or libc: ld.so would complain */
};

/* The kind of the file at `path`, without a search in PATH; a script has its interpreter's kind. */
enum preload_target preload_target_of(const char *path);
/* The kind of an open file with this name. */
enum preload_target preload_target_of_fd(int fd, const char *name);

static inline bool preload_is_inherited(enum preload_target kind)
{
	return kind == PRELOAD_TARGET_UNKNOWN || kind == PRELOAD_TARGET_MPI ||
	       kind == PRELOAD_TARGET_MAY;
}

/* Is the last component of `path` the name of a launcher: mpiexec.hydra, prterun, srun? */
bool preload_is_launcher_name(const char *path);

/*
 * The path that execvp would take for `file`: from the first directory of `path_var` (NULL: the
 * system's default) with an executable of that name; `file` itself when it contains a slash.
 * Returns: 0 with the path in out; -ENOENT; -EACCES when only files were found that may not be
 * executed; -ENAMETOOLONG.
 */
int preload_find_program(const char *file, const char *path_var, char *out, size_t cap);

/*
 * Writes the value of LD_PRELOAD without our entries to out, which is at least as long as value.
 * ld.so separates entries by colons and blanks; out has colons. Returns: how many entries were
 * ours.
 */
int preload_without_sluice(const char *value, char *out);

/* Is the entry of LD_PRELOAD, or the soname, the runtime of a sanitizer (libasan.so.8), which must
 * be loaded before any other library? */
bool preload_is_sanitizer(const char *entry, size_t len);

/* Writes the soname of the sanitizer's runtime that the program at `path` links.
 * Returns: whether it links one. */
bool preload_find_sanitizer(const char *path, char *out, size_t cap);

/* Writes the loader (program interpreter) that the program at `path` names.
 * Returns: whether it names one. */
bool preload_find_loader(const char *path, char *out, size_t cap);

/* Does the shared library at `path` define the dynamic symbol `name`?
 * Returns: 1, 0, or -errno (-ENOEXEC: not a shared library for this machine). */
int preload_defines_symbol(const char *path, const char *name);

#endif
