/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * An image: ld.so, mapped once more, run as a command ("ld.so --argv0 NAME PROGRAM ARGUMENT...") on
 * a stack of its own. ld.so then maps the program and its libraries as it does in any process, and
 * finds $ORIGIN by the path of the program.
 */
#include <elf.h>
#include <errno.h>
#include <fcntl.h>
#include <sched.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/random.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include "endpoints/private.h"
#include "os/os.h"
#include "preload/elf_view.h"
#include "sud/sud.h"

#define PAGE 4096ull
#define GIB (1ull << 30)

enum {
	PHDRS_MAX = 32,
	AUXV_MAX = 64,
	SEED_BYTES = 16,
	ENDPOINT_TEXT_BYTES = 64,     /* the variable of a rank */
	CHILD_STACK_BYTES = 64 << 10, /* below the job, until ld.so starts */
	WAIT_NS = 100 * 1000 * 1000,
	/* unused, below the fence: UCX tests sbrk(-4096) and would cut off what the carrier uses */
	BREAK_SLACK = 16 << 20,
	/* below a stack, as the kernel keeps free: a frame of some pages would pass one page */
	GUARD_BYTES = 1 << 20,
};

static const uint64_t STACK_UNLIMITED = 64 * GIB, STACK_LEAST = 8ull << 20;

static uint64_t page_down(uint64_t x) { return base_round_down(x, PAGE); }
static uint64_t page_up(uint64_t x) { return base_round_up(x, PAGE); }

static int fail(int error, char *reason, size_t cap, const char *what, const char *path)
{
	snprintf(reason, cap, "%s%s%s: %s", what, path ? " " : "", path ? path : "",
		 strerror(-error));
	return error;
}

/* ---- program files ------------------------------------------------------------------------- */

/* Returns: the mapped file, or NULL with errno. */
static void *map_file(const char *path, size_t *out_bytes)
{
	int fd = open(path, O_RDONLY | O_CLOEXEC);
	struct stat st;
	void *at;

	if (fd < 0)
		return NULL;
	if (fstat(fd, &st) || !S_ISREG(st.st_mode) || !st.st_size) {
		close(fd);
		errno = ENOEXEC;
		return NULL;
	}
	at = mmap(NULL, (size_t)st.st_size, PROT_READ, MAP_PRIVATE, fd, 0);
	close(fd);
	*out_bytes = (size_t)st.st_size;
	return at == MAP_FAILED ? NULL : at;
}

/* OpenSHMEM maps its heap at one address in each process. Open MPI's library, and that of Cray and
 * Sandia. */
static bool needs_shmem(const struct elf_view *v)
{
	for (size_t i = 0; i < v->dyn_count && v->dyn[i].d_tag != DT_NULL; i++) {
		const char *name = elf_view_string(v, v->dyn[i].d_un.d_val);

		if (v->dyn[i].d_tag == DT_NEEDED &&
		    (!strncmp(name, "liboshmem.so", 12) || !strncmp(name, "libsma.so", 9)))
			return true;
	}
	return false;
}

/* Returns: why the mapped program cannot be an image, or NULL. */
static const char *check_program(const void *at, size_t bytes, struct image_file *out)
{
	const Elf64_Ehdr *head = at;
	struct elf_view view;

	if (!elf_view_is_elf(at, bytes))
		return "is a script or no program";
	if (elf_view_open(at, bytes, &view))
		return "is for another machine";
	if (!view.interp)
		return "is statically linked";
	if (head->e_type != ET_DYN)
		return "is not position-independent (no PIE)";
	if (strlen(view.interp) >= sizeof out->interp || !strstr(view.interp, "ld-linux"))
		return "has another loader than glibc's";
	if (needs_shmem(&view))
		return "links OpenSHMEM, whose heap has one address in all processes";
	strcpy(out->interp, view.interp);
	return NULL;
}

int image_check(const char *path, struct image_file *out, char *reason, size_t cap)
{
	const char *refusal;
	size_t bytes;
	void *at;

	if (*path == '-') {
		snprintf(reason, cap, "ld.so takes the path %s for an option", path);
		return -EINVAL;
	}
	at = map_file(path, &bytes);
	if (!at)
		return fail(-errno, reason, cap, "cannot read", path);
	refusal = check_program(at, bytes, out);
	munmap(at, bytes);
	if (refusal) {
		snprintf(reason, cap, "%s %s", path, refusal);
		return -ENOEXEC;
	}
	at = map_file(out->interp, &bytes);
	if (!at)
		return fail(-errno, reason, cap, "cannot read", out->interp);
	out->has_argv0 = memmem(at, bytes, "--argv0", sizeof "--argv0");
	munmap(at, bytes);
	return 0;
}

/* ---- mapping ld.so ------------------------------------------------------------------------- */

struct loaded {
	uint64_t low, bytes; /* the whole mapping */
	uint64_t entry, phdr, phnum, phent;
};

static int map_segment(int fd, const Elf64_Phdr *ph, uint64_t base)
{
	int prot = (ph->p_flags & PF_R ? PROT_READ : 0) | (ph->p_flags & PF_W ? PROT_WRITE : 0) |
		   (ph->p_flags & PF_X ? PROT_EXEC : 0);
	uint64_t from = base + page_down(ph->p_vaddr);
	uint64_t file_end = base + ph->p_vaddr + ph->p_filesz;
	uint64_t end = page_up(base + ph->p_vaddr + ph->p_memsz);

	if (ph->p_filesz &&
	    mmap((void *)from, file_end - from, prot, MAP_PRIVATE | MAP_FIXED, fd,
		 (off_t)page_down(ph->p_offset)) == MAP_FAILED)
		return -errno;
	if (ph->p_memsz == ph->p_filesz)
		return 0;
	if (page_up(file_end) > file_end)
		memset((void *)file_end, 0, page_up(file_end) - file_end);
	if (end > page_up(file_end) &&
	    mmap((void *)page_up(file_end), end - page_up(file_end), prot,
		 MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED, -1, 0) == MAP_FAILED)
		return -errno;
	return 0;
}

static int map_segments(int fd, const Elf64_Ehdr *head, const Elf64_Phdr *ph, struct loaded *out)
{
	uint64_t low = UINT64_MAX, high = 0, align = PAGE, at;
	void *reserved;
	int rc = 0;

	for (int i = 0; i < head->e_phnum; i++) {
		if (ph[i].p_type != PT_LOAD)
			continue;
		low = base_min_u64(low, page_down(ph[i].p_vaddr));
		high = base_max_u64(high, page_up(ph[i].p_vaddr + ph[i].p_memsz));
		align = base_max_u64(align, ph[i].p_align);
	}
	if (low >= high)
		return -ENOEXEC;
	out->bytes = high - low + align;
	reserved = mmap(NULL, out->bytes, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE,
			-1, 0);
	if (reserved == MAP_FAILED)
		return -errno;
	out->low = (uint64_t)reserved;
	at = base_round_up(out->low, align) - low;
	for (int i = 0; i < head->e_phnum && !rc; i++)
		if (ph[i].p_type == PT_LOAD)
			rc = map_segment(fd, &ph[i], at);
	if (rc) {
		munmap(reserved, out->bytes);
		return rc;
	}
	out->entry = at + head->e_entry;
	out->phdr = at + head->e_phoff; /* in the first segment, which begins with the file */
	out->phnum = head->e_phnum;
	out->phent = head->e_phentsize;
	return 0;
}

static int map_loader(const char *path, struct loaded *out)
{
	int fd = open(path, O_RDONLY | O_CLOEXEC), rc = -ENOEXEC;
	Elf64_Phdr ph[PHDRS_MAX];
	Elf64_Ehdr head;

	if (fd < 0)
		return -errno;
	if (pread(fd, &head, sizeof head, 0) == (ssize_t)sizeof head && head.e_phnum <= PHDRS_MAX &&
	    pread(fd, ph, head.e_phnum * sizeof ph[0], (off_t)head.e_phoff) ==
		    (ssize_t)(head.e_phnum * sizeof ph[0]))
		rc = map_segments(fd, &head, ph, out);
	close(fd);
	return rc;
}

/* ---- the stack ----------------------------------------------------------------------------- */

struct stack {
	uint64_t low, bytes; /* the mapping, with a guard at its low end */
	uint64_t sp;
};

enum {
	STACK_PROT = PROT_READ | PROT_WRITE,
	/* ld.so makes a stack executable by PROT_GROWSDOWN, which the kernel permits for mappings
	 * that grow; this one has its full size from the start */
	STACK_FLAGS = MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE | MAP_STACK | MAP_GROWSDOWN |
		      MAP_FIXED,
};

/* Maps a stack at the end of what it may become, guard below. Returns: the begin, or NULL. */
static char *map_guarded(uint64_t size, uint64_t most)
{
	char *at = mmap(NULL, most + GUARD_BYTES, PROT_NONE,
			MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);

	if (at == MAP_FAILED)
		return NULL;
	madvise(at, most + GUARD_BYTES, MADV_DONTDUMP); /* gdb would write zeros for all of it */
	if (mmap(at + GUARD_BYTES + most - size, size, STACK_PROT, STACK_FLAGS, -1, 0) !=
	    MAP_FAILED)
		return at;
	munmap(at, most + GUARD_BYTES);
	return NULL;
}

/* Runs in the rank: see struct endpoint. */
NOT_WATCHED static void raise_stack(struct endpoint *e, uint64_t bytes)
{
	bool is_most = bytes >= e->stack_end - e->stack_floor;
	uint64_t begin = is_most ? e->stack_floor : page_down(e->stack_end - bytes);
	uint64_t added = e->stack_begin - begin;

	if (begin >= e->stack_begin ||
	    sud_syscall(SYS_mmap, begin, added, STACK_PROT, STACK_FLAGS, -1, 0) != (long)begin)
		return;
	sud_syscall(SYS_madvise, begin, added, MADV_NOHUGEPAGE);
	e->stack_begin = begin;
}

static uint64_t bytes_of_limit(rlim_t limit)
{
	return base_min_u64(limit, STACK_UNLIMITED - PAGE) == limit ? page_up(limit) :
								      STACK_UNLIMITED;
}

static int map_stack(const struct image_start *start, uint64_t least, struct stack *out)
{
	const struct rlimit *limit = &start->state.limits[RLIMIT_STACK];
	struct endpoint *e = start->endpoint;
	uint64_t size, most;
	void *at;

	least = base_max_u64(page_up(least), STACK_LEAST);
	size = base_max_u64(bytes_of_limit(limit->rlim_cur), least);
	most = base_max_u64(bytes_of_limit(limit->rlim_max), size);
	/* the kernel refuses the reservation where it counts every mapping as memory */
	while (!(at = map_guarded(size, most))) {
		if (most == least)
			return -ENOMEM;
		if (most == size)
			size = base_max_u64(size / 2, least);
		most = size;
	}
	out->low = (uint64_t)at;
	out->bytes = most + GUARD_BYTES;
	madvise(at, out->bytes, MADV_NOHUGEPAGE);
	e->stack_floor = out->low + GUARD_BYTES;
	e->stack_end = out->low + out->bytes;
	e->stack_begin = e->stack_end - size;
	e->raise_stack = raise_stack;
	return 0;
}

/* Words and strings of a stack under construction: words upwards in an array, strings downwards. */
struct writer {
	uint64_t *words;
	size_t count;
	char *text;
};

static uint64_t put_text(struct writer *w, const char *text)
{
	size_t bytes = strlen(text) + 1;

	w->text -= bytes;
	memcpy(w->text, text, bytes);
	return (uint64_t)w->text;
}

static void put_word(struct writer *w, uint64_t word) { w->words[w->count++] = word; }

static int put_auxv(struct writer *w, const struct loaded *so, uint64_t name,
		    struct endpoint *endpoint)
{
	Elf64_auxv_t auxv[AUXV_MAX] = { 0 };

	/* all but the last, which ends the list */
	if (os_procfile_read("/proc/self/auxv", (char *)auxv,
			     sizeof auxv - sizeof auxv[0] + 1) <= 0)
		return -ENOENT;
	w->text = (char *)base_round_down((uint64_t)(w->text - SEED_BYTES), 16);
	if (getrandom(w->text, SEED_BYTES, 0) != SEED_BYTES)
		return -errno;
	endpoint->random_at = (uint64_t)w->text;
	for (const Elf64_auxv_t *a = auxv;; a++) {
		uint64_t value = a->a_un.a_val;

		switch (a->a_type) {
		case AT_PHDR: value = so->phdr; break;
		case AT_PHENT: value = so->phent; break;
		case AT_PHNUM: value = so->phnum; break;
		case AT_ENTRY: value = so->entry; break; /* ld.so's own: it is the command */
		case AT_BASE: value = 0; break;
		case AT_RANDOM: value = (uint64_t)w->text; break;
		case AT_EXECFN: value = name; break;
		}
		put_word(w, a->a_type);
		put_word(w, value);
		if (a->a_type == AT_NULL)
			return 0;
	}
}

static int fill_stack(const struct image_start *start, const struct loaded *so, struct writer *w)
{
	const struct image_file *file = &start->file;
	uint64_t name = put_text(w, start->path);
	bool has_argv0 = file->has_argv0 && start->argc;
	char text[ENDPOINT_TEXT_BYTES];

	put_word(w, 2 + 2 * has_argv0 + (start->argc ? start->argc - 1 : 0));
	put_word(w, put_text(w, file->interp));
	if (has_argv0) {
		put_word(w, put_text(w, "--argv0"));
		put_word(w, put_text(w, start->argv[0]));
	}
	put_word(w, name);
	for (uint32_t i = 1; i < start->argc; i++)
		put_word(w, put_text(w, start->argv[i]));
	put_word(w, 0);
	for (uint32_t i = 0; i < start->envc; i++)
		put_word(w, put_text(w, start->envp[i]));
	snprintf(text, sizeof text, ENDPOINT_VARIABLE "=%llx",
		 (unsigned long long)(uintptr_t)start->endpoint);
	put_word(w, put_text(w, text));
	put_word(w, 0);
	return put_auxv(w, so, name, start->endpoint);
}

static int build_stack(const struct image_start *start, const struct loaded *so, struct stack *out)
{
	size_t words = start->argc + start->envc + 2 * AUXV_MAX + 16;
	uint64_t text = start->text_bytes + ENDPOINT_TEXT_BYTES + strlen(start->file.interp) +
			words * 8 + PAGE;
	struct writer w = { .words = calloc(words, sizeof(uint64_t)) };
	int rc;

	if (!w.words)
		return -ENOMEM;
	rc = map_stack(start, text + sizeof(struct child_job) + CHILD_STACK_BYTES, out);
	if (!rc) {
		w.text = (char *)(out->low + out->bytes - sizeof(uint64_t)); /* as execve() */
		rc = fill_stack(start, so, &w);
		if (rc)
			munmap((void *)out->low, out->bytes);
	}
	if (!rc) {
		out->sp = base_round_down((uint64_t)w.text - w.count * sizeof(uint64_t), 16);
		memcpy((void *)out->sp, w.words, w.count * sizeof(uint64_t));
	}
	free(w.words);
	return rc;
}

/* ---- the process --------------------------------------------------------------------------- */

/* Waits until the child has put its state into force. Returns: 0 or -errno. */
static int await_child(struct child_job *job, int pid, char *reason, size_t cap)
{
	bool has_ended = false;
	uint32_t phase;

	while (atomic_load_explicit(&job->phase, memory_order_acquire) == CHILD_STARTS &&
	       !has_ended) {
		os_futex_wait(&job->phase, CHILD_STARTS, WAIT_NS);
		has_ended = waitpid(pid, NULL, WNOHANG) == pid;
	}
	phase = atomic_load_explicit(&job->phase, memory_order_acquire);
	if (phase == CHILD_READY && !has_ended)
		return 0;
	if (phase != CHILD_FAILED) {
		snprintf(reason, cap, "its process was killed");
		return -ECHILD;
	}
	if (!has_ended)
		waitpid(pid, NULL, 0);
	return fail(-job->error, reason, cap, job->failed, NULL);
}

int image_create(const struct image_start *start, struct child_job **out_job, char *reason,
		 size_t cap)
{
	struct child_job *job;
	struct loaded so;
	struct stack stack = { 0 };
	int rc = map_loader(start->file.interp, &so), pid;

	if (rc)
		return fail(rc, reason, cap, "cannot map", start->file.interp);
	rc = build_stack(start, &so, &stack);
	if (rc) {
		fail(rc, reason, cap, "cannot build its stack", NULL);
		goto unmap_loader;
	}
	job = (struct child_job *)base_round_down(stack.sp - sizeof *job - PAGE, 64);
	*job = (struct child_job){ .start = start, .carrier = getpid(), .entry = so.entry,
				   .sp = stack.sp };
	pid = clone(child_main, job, CLONE_VM | SIGCHLD, job);
	rc = pid < 0 ? fail(-errno, reason, cap, "clone", NULL) :
		       await_child(job, pid, reason, cap);
	if (rc)
		goto unmap_stack;
	*out_job = job;
	return pid;
unmap_stack:
	munmap((void *)stack.low, stack.bytes);
unmap_loader:
	munmap((void *)so.low, so.bytes);
	return rc;
}

void image_release(struct child_job *job)
{
	atomic_store_explicit(&job->phase, CHILD_RELEASED, memory_order_release);
	os_futex_wake(&job->phase, 1);
}

int image_fence_break(void)
{
	/* a break in the middle of a page could still move to the end of that page */
	uint64_t end = page_up((uint64_t)sbrk(0)) + BREAK_SLACK;

	if (brk((void *)end))
		return -errno;
	if (mmap((void *)end, PAGE, PROT_NONE,
		 MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED_NOREPLACE, -1, 0) != (void *)end)
		return -errno;
	return 0;
}
