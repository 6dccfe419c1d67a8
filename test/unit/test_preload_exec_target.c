/* SPDX-License-Identifier: BSD-3-Clause */
/* The kind of an executable file, also of damaged files. */
#include <errno.h>
#include <fcntl.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include "preload/elf_view.h"
#include "preload/preload.h"
#include "unit.h"

static enum preload_target kind_of_bytes(const void *bytes, size_t n, const char *name)
{
	int fd = memfd_create("exec-target", MFD_CLOEXEC);
	enum preload_target kind;

	CHECK(fd >= 0 && write(fd, bytes, n) == (ssize_t)n);
	kind = preload_target_of_fd(fd, name);
	close(fd);
	return kind;
}

UNIT_TEST(system_programs_are_told_apart)
{
	CHECK_EQ(preload_target_of("/bin/sh"), PRELOAD_TARGET_MAY);
	CHECK_EQ(preload_target_of("/usr/bin/env"), PRELOAD_TARGET_MAY);
	CHECK_EQ(preload_target_of("/bin/cat"), PRELOAD_TARGET_PLAIN);
	CHECK_EQ(preload_target_of("/bin/sleep"), PRELOAD_TARGET_PLAIN);
}

UNIT_TEST(what_cannot_be_read_keeps_the_preload)
{
	CHECK_EQ(preload_target_of("/no/such/file"), PRELOAD_TARGET_UNKNOWN);
	CHECK_EQ(preload_target_of("/tmp"), PRELOAD_TARGET_UNKNOWN);
	CHECK_EQ(preload_target_of("/dev/null"), PRELOAD_TARGET_UNKNOWN);
	CHECK_EQ(kind_of_bytes("", 0, "app"), PRELOAD_TARGET_UNKNOWN);
	CHECK_EQ(kind_of_bytes("echo hello\n", 11, "app"), PRELOAD_TARGET_UNKNOWN);
	CHECK(preload_is_inherited(PRELOAD_TARGET_UNKNOWN));
}

UNIT_TEST(a_script_has_its_interpreters_kind)
{
	CHECK_EQ(kind_of_bytes("#!/bin/sh\n", 10, "app"), PRELOAD_TARGET_MAY);
	CHECK_EQ(kind_of_bytes("#! \t/bin/cat -n\n", 16, "app"), PRELOAD_TARGET_PLAIN);
	/* no end of line */
	CHECK_EQ(kind_of_bytes("#!/bin/cat", 10, "app"), PRELOAD_TARGET_UNKNOWN);
	CHECK_EQ(kind_of_bytes("#!\n", 3, "app"), PRELOAD_TARGET_UNKNOWN);
	CHECK_EQ(kind_of_bytes("#!/no/such\n", 11, "app"), PRELOAD_TARGET_UNKNOWN);
	CHECK_EQ(kind_of_bytes("#!/bin/sh\n", 10, "/usr/bin/mpirun"), PRELOAD_TARGET_LAUNCHER);
}

UNIT_TEST(launchers_are_known_by_name)
{
	static const char *const launchers[] = { "mpiexec", "/usr/bin/mpiexec.hydra",
						 "prterun", "mpirun-openmpi-gcc",
						 "srun",    "a/flux" };
	static const char *const others[] = {
		"mpiexecutor", "srunner", "app", "mpi", "", "mpirun/"
	};

	for (size_t i = 0; i < sizeof(launchers) / sizeof(launchers[0]); i++)
		CHECK(preload_is_launcher_name(launchers[i]));
	for (size_t i = 0; i < sizeof(others) / sizeof(others[0]); i++)
		CHECK(!preload_is_launcher_name(others[i]));
}

/* A copy of /bin/cat in memory, small and dynamic. */
static unsigned char *load_cat(size_t *size)
{
	int fd = open("/bin/cat", O_RDONLY | O_CLOEXEC);
	struct stat st;
	unsigned char *bytes;

	CHECK(fd >= 0 && !fstat(fd, &st));
	*size = (size_t)st.st_size;
	bytes = malloc(*size);
	CHECK(bytes && read(fd, bytes, *size) == st.st_size);
	close(fd);
	return bytes;
}

/* Reads everything that a view names; a wrong offset is a fault. */
static void walk(const void *base, size_t size)
{
	struct elf_view v;

	if (elf_view_open(base, size, &v))
		return;
	for (size_t i = 0; i < v.dyn_count && v.dyn[i].d_tag != DT_NULL; i++)
		CHECK(strlen(elf_view_string(&v, v.dyn[i].d_un.d_val)) < size);
	for (size_t i = 0; i < v.sym_count; i++)
		CHECK(strlen(elf_view_string(&v, v.sym[i].st_name)) < size);
	if (v.interp)
		CHECK(strlen(v.interp) < size);
}

/* The file ends where an inaccessible page begins, so that a byte too many is a fault. */
struct fenced {
	char *map;
	size_t map_bytes;
};

static void *fence(struct fenced *f, const void *bytes, size_t n)
{
	size_t whole = (n + 4095) / 4096 * 4096;
	char *start;

	f->map_bytes = whole + 4096;
	f->map = mmap(NULL, f->map_bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1,
		      0);
	CHECK(f->map != MAP_FAILED && !mprotect(f->map + whole, 4096, PROT_NONE));
	start = f->map + whole - n / 8 * 8; /* files are mapped at pages: keep 8-byte alignment */
	memcpy(start, bytes, n / 8 * 8);
	return start;
}

UNIT_TEST(a_file_cut_anywhere_is_never_read_beyond_its_end)
{
	size_t size;
	unsigned char *bytes = load_cat(&size);

	for (size_t n = 8; n < size; n += n < 2048 ? 8 : 1000) {
		struct fenced f;
		void *base = fence(&f, bytes, n);

		walk(base, n / 8 * 8);
		munmap(f.map, f.map_bytes);
	}
	free(bytes);
}

UNIT_TEST(a_file_with_damaged_headers_is_never_read_outside)
{
	static const unsigned char values[] = { 0x00, 0x01, 0x7f, 0x80, 0xff };
	size_t size;
	unsigned char *bytes = load_cat(&size);
	struct fenced f;
	unsigned char *base = fence(&f, bytes, size);
	struct elf_view v;

	size = size / 8 * 8;
	CHECK_EQ(elf_view_open(base, size, &v), 0);
	CHECK(v.sym_count > 10 && v.dyn_count > 10 && v.interp);
	for (size_t at = 0; at < 1024; at++)
		for (size_t i = 0; i < sizeof(values); i++) {
			base[at] = values[i];
			walk(base, size);
			base[at] = bytes[at];
		}
	for (size_t at = 0; at < v.dyn_count * sizeof(*v.dyn); at++) {
		unsigned char *byte = (unsigned char *)v.dyn + at, was = *byte;

		*byte = 0xff;
		walk(base, size);
		*byte = was;
	}
	munmap(f.map, f.map_bytes);
	free(bytes);
}

UNIT_TEST(another_machines_program_is_foreign_and_one_without_interpreter_static)
{
	size_t size;
	unsigned char *bytes = load_cat(&size);
	Elf64_Ehdr *e = (Elf64_Ehdr *)bytes;
	Elf64_Phdr *p = (Elf64_Phdr *)(bytes + e->e_phoff);

	CHECK_EQ(kind_of_bytes(bytes, size, "app"), PRELOAD_TARGET_PLAIN);
	for (int i = 0; i < e->e_phnum; i++)
		if (p[i].p_type == PT_INTERP)
			p[i].p_type = PT_NULL;
	CHECK_EQ(kind_of_bytes(bytes, size, "app"), PRELOAD_TARGET_STATIC);
	CHECK_EQ(kind_of_bytes(bytes, size, "/lib64/ld-linux-x86-64.so.2"), PRELOAD_TARGET_MAY);
	e->e_machine ^= 1;
	CHECK_EQ(kind_of_bytes(bytes, size, "app"), PRELOAD_TARGET_FOREIGN);
	e->e_machine ^= 1;
	e->e_ident[EI_CLASS] = ELFCLASS32;
	CHECK_EQ(kind_of_bytes(bytes, size, "app"), PRELOAD_TARGET_FOREIGN);
	free(bytes);
}

UNIT_TEST(symbols_without_section_headers_are_found_all_the_same)
{
	size_t size;
	unsigned char *bytes = load_cat(&size);

	((Elf64_Ehdr *)bytes)->e_shoff = 0;
	((Elf64_Ehdr *)bytes)->e_shnum = 0;
	CHECK_EQ(kind_of_bytes(bytes, size, "app"), PRELOAD_TARGET_PLAIN);
	free(bytes);
}

UNIT_TEST(a_file_is_searched_as_execvp_does)
{
	int here = open(".", O_RDONLY | O_DIRECTORY | O_CLOEXEC);
	char path[64];

	CHECK_EQ(preload_find_program("sh", "/no/such:/bin", path, sizeof(path)), 0);
	CHECK_STR(path, "/bin/sh");
	CHECK_EQ(preload_find_program("sh", "/no/such", path, sizeof(path)), -ENOENT);
	CHECK_EQ(preload_find_program("passwd", "/etc", path, sizeof(path)), -EACCES);
	CHECK_EQ(preload_find_program("./sh", "/bin", path, sizeof(path)), -ENOENT);
	CHECK_EQ(preload_find_program("/bin/sh", "", path, sizeof(path)), 0);
	CHECK_EQ(preload_find_program("", "/bin", path, sizeof(path)), -ENOENT);
	CHECK_EQ(preload_find_program("sh", NULL, path, sizeof(path)), 0);
	CHECK_EQ(preload_find_program("/bin/sh", "", path, 4), -ENAMETOOLONG);
	CHECK_EQ(chdir("/bin"), 0);
	CHECK_EQ(preload_find_program("sh", "/no/such:", path, sizeof(path)), 0);
	CHECK_STR(path, "sh");
	CHECK_EQ(fchdir(here), 0);
	close(here);
}

static void check_without(const char *value, const char *want, int ours)
{
	char out[128];

	CHECK_EQ(preload_without_sluice(value, out), ours);
	CHECK_STR(out, want);
}

UNIT_TEST(our_entries_leave_ld_preload_and_others_stay)
{
	check_without("", "", 0);
	check_without("libsluice.so", "", 1);
	check_without("/a/libsluice.so", "", 1);
	check_without("/a/libsluice.so:/b.so", "/b.so", 1);
	check_without("/b.so /a/libsluice.so /c.so", "/b.so:/c.so", 1);
	check_without("/b.so::/c.so", "/b.so:/c.so", 0);
	check_without("/x/libsluice.so:/y/libsluice.so", "", 2);
	check_without("/a/notlibsluice.so:/a/libsluice.so.1",
		      "/a/notlibsluice.so:/a/libsluice.so.1", 0);
}

UNIT_TEST(a_librarys_own_symbols_are_told_from_those_it_uses)
{
	CHECK_EQ(preload_defines_symbol("/no/such", "x"), -ENOENT);
	CHECK_EQ(preload_defines_symbol("/etc/passwd", "x"), -ENOEXEC);
	CHECK_EQ(preload_defines_symbol("/bin/cat", "write"), 0);
}
