/* SPDX-License-Identifier: BSD-3-Clause */
#include <dlfcn.h>
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "../bench.h"
#include "mpi.h"

struct anympi anympi;

#ifdef SLUICE_ABI_OMPI
struct abi_ompi_symbols abi_ompi_symbols;
void *anympi_int, *anympi_double, *anympi_uint32, *anympi_sum;
#endif

static _Noreturn void die(const char *why, const char *more)
{
	fprintf(stderr, "%s: %s%s\n", program_invocation_short_name, why, more);
	exit(2);
}

/* The library's path; what is ours is taken out of the arguments. */
static const char *take_ours(int *argc, char **argv)
{
	const char *path = NULL;
	int kept = 0;

	for (int i = 0; i < *argc; i++) {
		if (!strncmp(argv[i], "libmpi=", 7))
			path = argv[i] + 7;
		else if (!strncmp(argv[i], "cpus=", 5))
			bench_use_cpus(argv[i] + 5);
		else
			argv[kept++] = argv[i];
	}
	*argc = kept;
	argv[kept] = NULL;
	return path;
}

static void *find(const char *symbol)
{
	void *found = dlsym(RTLD_DEFAULT, symbol);

	if (!found)
		die("the MPI library lacks ", symbol);
	return found;
}

/*
 * A call of a symbol that the host MPI lacks fails; loading does not: not every program needs all.
 */
static void *find_or(const char *symbol, void *lacks)
{
	void *found = dlsym(RTLD_DEFAULT, symbol);

	return found ? found : lacks;
}

#define X(name, parameters)                                                                        \
	static int lacks_##name(void) { die("the MPI library lacks ", "MPI_" #name); }
ANYMPI_CALLS(X)
#undef X

int anympi_init(int *argc, char ***argv)
{
	const char *path = take_ours(argc, *argv);
	int (*init)(int *, char ***);

	if (!path)
		die("needs libmpi=PATH", "");
	if (!dlopen(path, RTLD_NOW | RTLD_GLOBAL))
		die("cannot load the MPI library: ", dlerror());
#define X(name, parameters) anympi.name = find_or("MPI_" #name, (void *)lacks_##name);
	ANYMPI_CALLS(X)
#undef X
#ifdef SLUICE_ABI_OMPI
#define X(field, symbol) abi_ompi_symbols.field = find(symbol);
	ABI_SYMBOLS(X)
#undef X
#define X(variable, symbol) variable = find(symbol);
	ANYMPI_SYMBOLS(X)
#undef X
#endif
	init = find("MPI_Init");
	return init(argc, argv);
}
