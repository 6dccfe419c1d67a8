/* SPDX-License-Identifier: BSD-3-Clause */
/* The harness's main: see unit.h. */
#include <dirent.h>
#include <pthread.h>
#include <setjmp.h>
#include <stdarg.h>
#include <sys/wait.h>
#include <unistd.h>

#include "os/os.h"
#include "unit.h"

enum outcome { OUTCOME_PASS, OUTCOME_FAIL, OUTCOME_SKIP };
enum { SLOW_MS = 300 }; /* the time of such a test is printed */

static struct unit_test *tests;
static jmp_buf test_end;
static bool in_child; /* of unit_fork: there is no loop of tests to go back to */

/* Keeps the list by file, then line. */
void unit_register(struct unit_test *t)
{
	struct unit_test **at = &tests;

	while (*at) {
		int order = strcmp((*at)->file, t->file);

		if (order > 0 || (!order && (*at)->line > t->line))
			break;
		at = &(*at)->next;
	}
	t->next = *at;
	*at = t;
}

void unit_fail(const char *file, int line, const char *fmt, ...)
{
	va_list args;

	printf("  %s:%d: ", file, line);
	va_start(args, fmt);
	vprintf(fmt, args);
	va_end(args);
	putchar('\n');
	fflush(stdout);
	if (in_child)
		_exit(1);
	longjmp(test_end, OUTCOME_FAIL);
}

void unit_skip(const char *why)
{
	printf("  skipped: %s\n", why);
	fflush(stdout);
	if (in_child)
		_exit(0);
	longjmp(test_end, OUTCOME_SKIP);
}

int unit_count_mappings(void)
{
	FILE *maps = fopen("/proc/self/maps", "re");
	int lines = 0, c;

	while (maps && (c = getc(maps)) != EOF)
		lines += c == '\n';
	if (maps)
		fclose(maps);
	return lines;
}

int unit_spawn(void (*fn)(void *arg), void *arg)
{
	pid_t pid;

	fflush(stdout);
	pid = fork();
	if (!pid) {
		in_child = true;
		fn(arg);
		fflush(stdout);
		_exit(0);
	}
	return pid;
}

int unit_fork(void (*fn)(void *arg), void *arg)
{
	int status = 0;
	pid_t pid = unit_spawn(fn, arg);

	if (pid < 0 || waitpid(pid, &status, 0) != pid)
		return -1;
	return WIFEXITED(status) ? WEXITSTATUS(status) : 128 + WTERMSIG(status);
}

__attribute__((noinline)) /* its variables are none of setjmp's */
static int count_entries(const char *path)
{
	DIR *dir = opendir(path);
	int count = 0;

	while (dir && readdir(dir))
		count++;
	if (dir)
		closedir(dir);
	return count;
}

int unit_count_threads(void) { return count_entries("/proc/self/task") - 2; } /* ".", ".." */

/* A joined thread may stay in /proc for a moment. */
static bool threads_are_gone(int before)
{
	for (int tries = 0; tries < 5000; tries++) {
		if (unit_count_threads() <= before)
			return true;
		usleep(1000);
	}
	return false;
}

static void *do_nothing(void *arg)
{
	return arg;
}

/* Opens and starts resources that stay, before the leak checks of tests: the descriptor of os/, and
 * the thread that a sanitizer starts with the program's first thread. */
static void warm_up(void)
{
	pthread_t thread;

	os_vma_query_is_cheap();
	if (!pthread_create(&thread, NULL, do_nothing, NULL))
		pthread_join(thread, NULL);
}

static enum outcome run_one(struct unit_test *t)
{
	int fds = count_entries("/proc/self/fd");
	int threads = unit_count_threads();
	volatile enum outcome outcome = OUTCOME_PASS;
	int ended = setjmp(test_end);

	if (!ended)
		t->run();
	else
		outcome = ended;
	/* what a failed test left open is no news */
	if (outcome == OUTCOME_PASS && count_entries("/proc/self/fd") > fds) {
		printf("  it left descriptors open: %d before, %d after\n", fds,
		       count_entries("/proc/self/fd"));
		outcome = OUTCOME_FAIL;
	}
	if (outcome == OUTCOME_PASS && !threads_are_gone(threads)) {
		printf("  it left threads running\n");
		outcome = OUTCOME_FAIL;
	}
	return outcome;
}

int main(int argc, char **argv)
{
	static const char *const words[] = { "ok", "FAILED", "skipped" };
	int counts[3] = { 0 };

	warm_up();
	for (struct unit_test *t = tests; t; t = t->next) {
		uint64_t begin = os_now_ns(), ms;
		enum outcome outcome;

		if (argc > 1 && !strstr(t->name, argv[1]))
			continue;
		outcome = run_one(t);
		counts[outcome]++;
		ms = (os_now_ns() - begin) / 1000000;
		printf("%s %s", words[outcome], t->name);
		if (ms >= SLOW_MS)
			printf(" (%" PRIu64 " ms)", ms);
		putchar('\n');
		if (outcome == OUTCOME_FAIL)
			printf("  alone: %s %s\n", argv[0], t->name);
		fflush(stdout); /* or children of the next tests print it again */
	}
	printf("%d ok, %d failed, %d skipped\n", counts[OUTCOME_PASS], counts[OUTCOME_FAIL],
	       counts[OUTCOME_SKIP]);
	return counts[OUTCOME_FAIL] || !counts[OUTCOME_PASS];
}
