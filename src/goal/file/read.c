/* SPDX-License-Identifier: BSD-3-Clause */
#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include "goal/file/goalfile.h"
#include "goal/file/pack.h"

static int map(const char *path, struct goalfile *out)
{
	struct stat st;
	void *p;
	int fd = open(path, O_RDONLY | O_CLOEXEC), ret = 0;

	if (fd < 0)
		return -errno;
	if (fstat(fd, &st)) {
		ret = -errno;
	} else if (!S_ISREG(st.st_mode) || st.st_size < (off_t)sizeof(struct goal_program)) {
		ret = S_ISDIR(st.st_mode) ? -EISDIR : -EINVAL;
	} else {
		p = mmap(NULL, (size_t)st.st_size, PROT_READ, MAP_PRIVATE, fd, 0);
		ret = p == MAP_FAILED ? -errno : 0;
		*out = (struct goalfile){ p, (size_t)st.st_size };
	}
	close(fd);
	return ret;
}

uint64_t goalfile_packed_bytes(const void *data, uint64_t bytes)
{
	const struct goal_program *p = data;

	if (bytes < sizeof *p || p->magic != GOAL_PROGRAM_MAGIC ||
	    p->version != GOAL_PROGRAM_PACKED)
		return 0;
	/* a line takes two bytes at least */
	return p->bytes > sizeof *p && p->bytes / (PACK_LINE / 2) <= bytes ? p->bytes : UINT64_MAX;
}

int goalfile_unpack(const void *data, uint64_t bytes, void *out)
{
	const struct goal_program *p = data;
	struct goal_program *to = out;

	*to = *p;
	to->version = GOAL_PROGRAM_VERSION;
	return pack_open(p + 1, bytes - sizeof *p, to + 1, p->bytes - sizeof *p);
}

/* Replaces the mapping of a packed file by a program in memory. */
static int unpack(struct goalfile *f)
{
	uint64_t bytes = goalfile_packed_bytes(f->program, f->bytes);
	void *p;
	int ret;

	if (!bytes)
		return 0;
	if (bytes == UINT64_MAX)
		return -EINVAL;
	p = mmap(NULL, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
	if (p == MAP_FAILED)
		return -errno;
	ret = goalfile_unpack(f->program, f->bytes, p);
	goalfile_close(f);
	*f = (struct goalfile){ p, bytes };
	return ret;
}

static int verify(const struct goalfile *f, uint32_t *out_block)
{
	int ret = goal_program_verify_header(f->program, f->bytes);
	uint32_t *work;

	if (ret)
		return ret;
	work = malloc((size_t)f->program->most_ops * sizeof *work + 1);
	if (!work)
		return -ENOMEM;
	ret = goal_program_verify(f->program, f->bytes, work, out_block);
	free(work);
	return ret;
}

int goalfile_open(const char *path, struct goalfile *out, uint32_t *out_block)
{
	uint32_t block = GOAL_NONE;
	struct goalfile f;
	int ret = map(path, &f);

	if (!ret) {
		ret = unpack(&f);
		if (!ret)
			ret = verify(&f, &block);
		if (ret)
			goalfile_close(&f);
		else
			*out = f;
	}
	if (out_block)
		*out_block = block;
	return ret;
}

void goalfile_close(struct goalfile *f)
{
	munmap((void *)(uintptr_t)f->program, f->bytes);
}
