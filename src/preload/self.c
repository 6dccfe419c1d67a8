/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * The link /proc/self/exe of an image (endpoints/) leads to the carrier: programs that look for
 * their files beside themselves read the path of their own program, and those that execute it by
 * that name execute themselves. What the kernel opens by that name stays the carrier.
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
__attribute__((constructor, cold)) static void resolve_early(void)
{
	(void)NEXT(readlink);
	(void)NEXT(readlinkat);
	(void)NEXT(__readlink_chk);
	(void)NEXT(__readlinkat_chk);
}

static ssize_t copy_link(const char *program, char *out, size_t cap)
{
	size_t len = base_min_u64(strlen(program), cap);

	memcpy(out, program, len);
	return (ssize_t)len;
}

EXPORT ssize_t readlink(const char *path, char *out, size_t cap)
{
	const char *program = cap ? endpoint_program_at(path) : NULL;

	return program ? copy_link(program, out, cap) : NEXT(readlink)(path, out, cap);
}

EXPORT ssize_t readlinkat(int dir, const char *path, char *out, size_t cap)
{
	const char *program = cap ? endpoint_program_at(path) : NULL;

	return program ? copy_link(program, out, cap) : NEXT(readlinkat)(dir, path, out, cap);
}

EXPORT ssize_t __readlink_chk(const char *path, char *out, size_t cap, size_t room)
{
	const char *program = cap && cap <= room ? endpoint_program_at(path) : NULL;

	return program ? copy_link(program, out, cap)
		       : NEXT(__readlink_chk)(path, out, cap, room);
}

EXPORT ssize_t __readlinkat_chk(int dir, const char *path, char *out, size_t cap, size_t room)
{
	const char *program = cap && cap <= room ? endpoint_program_at(path) : NULL;

	return program ? copy_link(program, out, cap)
		       : NEXT(__readlinkat_chk)(dir, path, out, cap, room);
}

EXPORT char *realpath(const char *path, char *out)
{
	const char *program = endpoint_program_at(path);

	if (!program)
		return NEXT(realpath)(path, out);
	return out ? strcpy(out, program) : strdup(program);
}

EXPORT char *__realpath_chk(const char *path, char *out, size_t room)
{
	const char *program = room >= PATH_MAX ? endpoint_program_at(path) : NULL;

	return program ? strcpy(out, program) : NEXT(__realpath_chk)(path, out, room);
}

EXPORT char *canonicalize_file_name(const char *path)
{
	const char *program = endpoint_program_at(path);

	return program ? strdup(program) : NEXT(canonicalize_file_name)(path);
}
