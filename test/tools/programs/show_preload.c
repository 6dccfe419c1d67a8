/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Prints its LD_PRELOAD, if it has one. Compiled with -DCAN_EXEC it could start other programs,
 * which is what the exec hooks look at; otherwise it is a program like `ls`.
 */
#include <stdio.h>
#include <string.h>
#include <unistd.h>

extern char **environ;

int main(int argc, char **argv)
{
#ifdef CAN_EXEC
	if (argc > 9)
		return execv(argv[1], argv + 1);
#endif
	(void)argc;
	(void)argv;
	for (char **e = environ; *e; e++)
		if (strncmp(*e, "LD_PRELOAD=", 11) == 0)
			puts(*e + 11);
	return 0;
}
