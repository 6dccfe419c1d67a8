/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * The link /proc/self/exe of an image (endpoints/) leads to the carrier: programs that look for
 * their files beside themselves read the path of their own program. What the kernel opens by that
 * name stays the carrier.
 */
#include <limits.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "os/endpoint.h"
#include "preload/next.h"

/* of _FORTIFY_SOURCE; no header declares them */
ssize_t __readlink_chk(const char *path, char *out, size_t cap, size_t room);
ssize_t __readlinkat_chk(int dir, const char *path, char *out, size_t cap, size_t room);
char *__realpath_chk(const char *path, char *out, size_t room);

static struct {
	__typeof__(&readlink) readlink;
	__typeof__(&readlinkat) readlinkat;
	__typeof__(&realpath) realpath;
	__typeof__(&canonicalize_file_name) canonicalize_file_name;
	__typeof__(&__readlink_chk) __readlink_chk;
	__typeof__(&__readlinkat_chk) __readlinkat_chk;
	__typeof__(&__realpath_chk) __realpath_chk;
} next;

/* Signal handlers may call them. */
__attribute__((constructor)) static void resolve_early(void)
{
	(void)NEXT(readlink);
	(void)NEXT(readlinkat);
	(void)NEXT(__readlink_chk);
	(void)NEXT(__readlinkat_chk);
}

/* Returns: the program of this image, if the path is the link to it; else NULL. */
static const char *program_of(const char *path)
{
	static const char *const names[] = { "self", "thread-self" };
	size_t len;

	if (base_likely(!endpoint_image) || !path || strncmp(path, "/proc/", 6))
		return NULL;
	path += 6;
	for (size_t i = 0; i < BASE_ARRAY_LEN(names); i++) {
		len = strlen(names[i]);
		if (!strncmp(path, names[i], len) && !strcmp(path + len, "/exe"))
			return endpoint_program;
	}
	len = strspn(path, "0123456789");
	return len && !strcmp(path + len, "/exe") && atoi(path) == getpid() ? endpoint_program
									     : NULL;
}

static ssize_t copy_link(const char *program, char *out, size_t cap)
{
	size_t len = base_min_u64(strlen(program), cap);

	memcpy(out, program, len);
	return (ssize_t)len;
}

EXPORT ssize_t readlink(const char *path, char *out, size_t cap)
{
	const char *program = cap ? program_of(path) : NULL;

	return program ? copy_link(program, out, cap) : NEXT(readlink)(path, out, cap);
}

EXPORT ssize_t readlinkat(int dir, const char *path, char *out, size_t cap)
{
	const char *program = cap ? program_of(path) : NULL;

	return program ? copy_link(program, out, cap) : NEXT(readlinkat)(dir, path, out, cap);
}

EXPORT ssize_t __readlink_chk(const char *path, char *out, size_t cap, size_t room)
{
	const char *program = cap && cap <= room ? program_of(path) : NULL;

	return program ? copy_link(program, out, cap)
		       : NEXT(__readlink_chk)(path, out, cap, room);
}

EXPORT ssize_t __readlinkat_chk(int dir, const char *path, char *out, size_t cap, size_t room)
{
	const char *program = cap && cap <= room ? program_of(path) : NULL;

	return program ? copy_link(program, out, cap)
		       : NEXT(__readlinkat_chk)(dir, path, out, cap, room);
}

EXPORT char *realpath(const char *path, char *out)
{
	const char *program = program_of(path);

	if (!program)
		return NEXT(realpath)(path, out);
	return out ? strcpy(out, program) : strdup(program);
}

EXPORT char *__realpath_chk(const char *path, char *out, size_t room)
{
	const char *program = room >= PATH_MAX ? program_of(path) : NULL;

	return program ? strcpy(out, program) : NEXT(__realpath_chk)(path, out, room);
}

EXPORT char *canonicalize_file_name(const char *path)
{
	const char *program = program_of(path);

	return program ? strdup(program) : NEXT(canonicalize_file_name)(path);
}
