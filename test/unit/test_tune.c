/* SPDX-License-Identifier: BSD-3-Clause */
/* The file of what was measured: found by names, refused as a whole, below the environment. */
#include <errno.h>
#include <sys/stat.h>
#include <sys/utsname.h>
#include <unistd.h>

#include "base/base.h"
#include "sluice/sluice.h"
#include "tune/tune.h"
#include "unit.h"

#define MPI "MPICH 5.0.2"

static char folder[64], text[4096], problems[512];
static struct tune_result result;

/* A home of its own for each test; the processes' variables are read when a file is looked for. */
static void make_home(void)
{
	strcpy(folder, "/tmp/sluice-tune-XXXXXX");
	CHECK(mkdtemp(folder));
	CHECK_EQ(setenv("XDG_CONFIG_HOME", folder, 1), 0);
	snprintf(text, sizeof(text), "%s/sluice", folder);
	CHECK_EQ(mkdir(text, 0700), 0);
}

static void remove_home(void)
{
	char command[128];

	snprintf(command, sizeof(command), "rm -r %s", folder);
	CHECK_EQ(system(command), 0);
	CHECK_EQ(unsetenv("XDG_CONFIG_HOME"), 0);
	CHECK_EQ(base_options_load((char *[]){ NULL }, problems, sizeof(problems)), 0);
}

static void write_file(const char *name, const char *content)
{
	char path[512];
	FILE *f;

	snprintf(path, sizeof(path), "%s/sluice/%s", folder, name);
	f = fopen(path, "w");
	CHECK(f);
	CHECK(fputs(content, f) >= 0);
	CHECK_EQ(fclose(f), 0);
}

/* The head of a file of this machine, with one line in place of another (NULL: none). */
static const char *head(const char *instead_of, const char *line)
{
	static const char *const names[] = { "sluice-tune", "version", "host", "machine", "mpi" };
	struct utsname u;
	char machine[512];
	const char *values[] = { "1", SLUICE_VERSION, u.nodename, machine, MPI };
	size_t used = 0;

	uname(&u);
	os_machine_text(machine, sizeof(machine));
	for (size_t i = 0; i < BASE_ARRAY_LEN(names); i++) {
		if (instead_of && !strcmp(names[i], instead_of))
			used += (size_t)snprintf(text + used, sizeof(text) - used, "%s\n", line);
		else
			used += (size_t)snprintf(text + used, sizeof(text) - used, "%s %s\n",
						 names[i], values[i]);
	}
	return text;
}

static const char *with(const char *values)
{
	head(NULL, NULL);
	strcat(text, values);
	return text;
}

static void load(const char *entry)
{
	char *env[] = { (char *)entry, NULL };

	CHECK_EQ(base_options_load(env, problems, sizeof(problems)), 0);
	tune_load(MPI, &result);
}

static void load_own(const char *content, const char *entry)
{
	char name[256];

	tune_file_name(MPI, false, name, sizeof(name));
	write_file(name, content);
	load(entry);
}

UNIT_TEST(values_of_the_file_count_more_than_defaults_and_less_than_the_environment)
{
	make_home();
	load_own(with("# figures\nxfer_fragment=128K # so\n  "
		      "SLUICE_COLL_THRESHOLD=32K\r\n\n"),
		 "SLUICE_COLL_THRESHOLD=16K");
	CHECK_EQ(result.state, TUNE_IN_FORCE);
	CHECK_EQ(result.values, 2);
	CHECK_EQ(base_opt.xfer_fragment_bytes, 128 << 10);
	CHECK_EQ(base_opt.coll_threshold_bytes, 16 << 10);
	for (size_t i = 0; i < base_option_count; i++) {
		const struct base_option *o = &base_option_table[i];

		CHECK_EQ(o->source == BASE_SRC_TUNED, o->value == &base_opt.xfer_fragment_bytes);
		CHECK_EQ(o->source == BASE_SRC_ENV, o->value == &base_opt.coll_threshold_bytes);
	}
	remove_home();
}

UNIT_TEST(names_of_earlier_versions_are_read)
{
	make_home();
	load_own(with("SLUICE_" "XFER_FRAGMENT=128K\nSLUICE_" "ENGINE_WORKERS=3\n"), NULL);
	CHECK_EQ(result.state, TUNE_IN_FORCE);
	CHECK_EQ(base_opt.xfer_fragment_bytes, 128 << 10);
	CHECK_EQ(base_opt.engine_workers, 3);
	remove_home();
}

UNIT_TEST(what_ranks_must_agree_on_can_be_given_up_alone)
{
	make_home();
	load_own(with("xfer_fragment = 128K\nSLUICE_EARLY_MIN = 2M\n"), NULL);
	base_options_untune(true);
	CHECK_EQ(base_opt.xfer_fragment_bytes, 0);
	CHECK_EQ(base_opt.early_min_bytes, 2 << 20);
	base_options_untune(false);
	CHECK_EQ(base_opt.early_min_bytes, 512 << 10);
	remove_home();
}

UNIT_TEST(a_file_of_something_else_is_refused_with_what_and_sets_nothing)
{
	static const struct {
		const char *head, *line, *says;
	} cases[] = {
		{ "host", "host elsewhere", "machine elsewhere; this is" },
		{ "version", "version 0.0.1", "Sluice 0.0.1 wrote it; this is " SLUICE_VERSION },
		{ "sluice-tune", "sluice-tune 2", "format is 2" },
		{ "sluice-tune", "", "it is not a tune file" },
		{ "machine", "machine AuthenticAMD 26", "measured on AuthenticAMD 26; this is" },
		{ "mpi", "mpi Open MPI v5.0.11", "with Open MPI v5.0.11; this is MPICH 5.0.2" },
		{ "mpi", "", "before the lines" },
	};

	make_home();
	for (size_t i = 0; i < BASE_ARRAY_LEN(cases); i++) {
		head(cases[i].head, cases[i].line);
		strcat(text, "xfer_fragment = 128K\n");
		load_own(text, NULL);
		CHECK_EQ(result.state, TUNE_REFUSED);
		CHECK_HAS(result.reason, cases[i].says);
		CHECK_EQ(base_opt.xfer_fragment_bytes, 0);
		CHECK_EQ(result.values, 0);
	}
	remove_home();
}

UNIT_TEST(a_mistake_takes_back_what_stood_before_it)
{
	static const struct {
		const char *line, *says;
	} cases[] = {
		{ "SLUICE_NOTHING=1", "line 7: SLUICE_NOTHING is not an option" },
		{ "fault=cma:all", "line 7: fault cannot be set there" },
		{ "xfer_copy = fast", "line 7: xfer_copy does not take 'fast'" },
		{ "SLUICE_WORKERS=49", "does not take '49'" },
		{ "bcast = on", "line 7: bcast cannot be set there" },
		{ "SLUICE_TEST=node_spin=1", "line 7: SLUICE_TEST cannot be set there" },
		{ "hello", "line 7 is neither" },
	};
	char lines[128];

	make_home();
	for (size_t i = 0; i < BASE_ARRAY_LEN(cases); i++) {
		snprintf(lines, sizeof(lines), "xfer_fragment = 128K\n%s\n", cases[i].line);
		load_own(with(lines), NULL);
		CHECK_EQ(result.state, TUNE_REFUSED);
		CHECK_HAS(result.reason, cases[i].says);
		CHECK_EQ(base_opt.xfer_fragment_bytes, 0);
	}
	remove_home();
}

UNIT_TEST(a_file_that_cannot_be_read_is_refused)
{
	static char big[40 << 10];
	char name[256], path[512];

	make_home();
	tune_file_name(MPI, false, name, sizeof(name));
	snprintf(path, sizeof(path), "%s/sluice/%s", folder, name);
	CHECK_EQ(mkdir(path, 0700), 0);
	load(NULL);
	CHECK_EQ(result.state, TUNE_REFUSED);
	CHECK_HAS(result.reason, "Is a directory");
	CHECK_STR(result.path, path);
	CHECK_EQ(rmdir(path), 0);
	memset(big, '#', sizeof(big) - 1);
	load_own(big, NULL);
	CHECK_HAS(result.reason, "File too large");
	remove_home();
}

UNIT_TEST(this_machines_file_comes_before_that_of_its_kind)
{
	char name[256];

	make_home();
	load(NULL);
	CHECK_EQ(result.state, TUNE_ABSENT);
	head("host", "host *");
	strcat(text, "xfer_fragment=64K\n");
	tune_file_name(MPI, true, name, sizeof(name));
	CHECK_HAS(name, "like-");
	write_file(name, text);
	load(NULL);
	CHECK_EQ(result.state, TUNE_IN_FORCE);
	CHECK_EQ(base_opt.xfer_fragment_bytes, 64 << 10);
	load_own(with("xfer_fragment = 128K\n"), NULL);
	CHECK_EQ(base_opt.xfer_fragment_bytes, 128 << 10);
	tune_load("MPICH 5.0.3", &result); /* another MPI has another file */
	CHECK_EQ(result.state, TUNE_ABSENT);
	CHECK_EQ(base_opt.xfer_fragment_bytes, 0);
	remove_home();
}

UNIT_TEST(a_file_can_be_named_or_forbidden)
{
	char entry[600];

	make_home();
	load_own(with("xfer_fragment = 128K\n"), "SLUICE_TUNE=none");
	CHECK_EQ(result.state, TUNE_OFF);
	CHECK_EQ(base_opt.xfer_fragment_bytes, 0);
	write_file("mine", with("xfer_fragment=256K\n"));
	snprintf(entry, sizeof(entry), "SLUICE_TUNE=%s/sluice/mine", folder);
	load(entry);
	CHECK_EQ(result.state, TUNE_IN_FORCE);
	CHECK_EQ(base_opt.xfer_fragment_bytes, 256 << 10);
	strcat(entry, "s");
	load(entry);
	CHECK_EQ(result.state, TUNE_REFUSED);
	CHECK_HAS(result.reason, "does not exist");
	remove_home();
}

UNIT_TEST(without_a_home_nothing_is_found)
{
	char path[64], home[256];

	snprintf(home, sizeof(home), "%s", getenv("HOME") ? getenv("HOME") : "");
	unsetenv("XDG_CONFIG_HOME");
	unsetenv("HOME");
	CHECK_EQ(tune_folder(0, path, sizeof(path)), -ENOENT);
	setenv("XDG_CONFIG_HOME", "not/absolute", 1);
	CHECK_EQ(tune_folder(0, path, sizeof(path)), -ENOENT);
	setenv("HOME", "/home/me", 1);
	CHECK_EQ(tune_folder(0, path, sizeof(path)), 0);
	CHECK_STR(path, "/home/me/.config/sluice");
	unsetenv("XDG_CONFIG_HOME");
	if (home[0])
		setenv("HOME", home, 1);
}

UNIT_TEST(names_of_mpis_are_short_and_make_file_names)
{
	static const struct {
		const char *text, *name, *file;
	} cases[] = {
		{ "MPICH Version:      5.0.2\nMPICH Release date: x\n", "MPICH 5.0.2",
		  ".mpich-5.0.2.tune" },
		{ "Open MPI v5.0.11, package: Open MPI root", "Open MPI v5.0.11",
		  ".open-mpi-v5.0.11.tune" },
		{ "Intel(R) MPI Library 2021.18.1 for Linux* OS\n",
		  "Intel(R) MPI Library 2021.18.1 for Linux* OS",
		  ".intel-r-mpi-library-2021.18.1-for-linux-os.tune" },
		{ "../../etc/x", "../../etc/x", "etc-x.tune" },
		{ "", "", "..tune" },
	};
	char name[TUNE_MPI_BYTES], file[256];

	for (size_t i = 0; i < BASE_ARRAY_LEN(cases); i++) {
		tune_mpi_name(cases[i].text, name, sizeof(name));
		CHECK_STR(name, cases[i].name);
		tune_file_name(name, false, file, sizeof(file));
		CHECK(!strchr(file, '/'));
		CHECK_HAS(file, cases[i].file);
	}
}
