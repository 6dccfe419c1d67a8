/* SPDX-License-Identifier: BSD-3-Clause */
/* The functions that libsluice-record.so exports only where the host MPI has them. */
#include <stddef.h>

#include "base/base.h"
#include "mpi/front/front.h"
#include "record_optional.h"

#define X(name) extern char choose_##name[];
RECORD_OPTIONAL(X)
#undef X

const struct front_optional front_optional[] = {
#define X(name) { #name, choose_##name },
	RECORD_OPTIONAL(X)
#undef X
	{ NULL, NULL },
};
_Static_assert(BASE_ARRAY_LEN(front_optional) <= FRONT_OPTIONAL_MAX, "room in decide()");

long front_protect(void *start, size_t bytes, int protection)
{
	long ret = 10; /* mprotect */

	__asm__ volatile("syscall"
			 : "+a"(ret)
			 : "D"(start), "S"(bytes), "d"(protection)
			 : "rcx", "r11", "memory");
	return ret;
}
