/* SPDX-License-Identifier: BSD-3-Clause */
#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include "goal/file/goalfile.h"

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
