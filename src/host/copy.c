/* SPDX-License-Identifier: BSD-3-Clause */
/* Which copy kernel, and running it. */
#include <string.h>

#include "host/arch/arch.h"
#include "host/host.h"

bool host_copy_has(enum base_copy_kernel kernel)
{
	switch (kernel) {
	case BASE_COPY_MOVSB:
		return host_arch_has_movsb();
	case BASE_COPY_NONTEMPORAL:
		return host_arch_has_nontemporal();
	case BASE_COPY_AUTO:
	case BASE_COPY_PLAIN:
		return true;
	}
	return false;
}

enum base_copy_kernel host_copy_pick(uint64_t fragment_bytes, uint64_t total_bytes)
{
	enum base_copy_kernel wanted = (enum base_copy_kernel)base_opt.xfer_copy;

	if (wanted != BASE_COPY_AUTO)
		return host_copy_has(wanted) ? wanted : BASE_COPY_PLAIN;
	return BASE_COPY_PLAIN;
}

void host_copy(void *dst, const void *src, size_t bytes, enum base_copy_kernel kernel)
{
	if (kernel == BASE_COPY_AUTO)
		kernel = host_copy_pick(bytes, bytes);
	switch (kernel) {
	case BASE_COPY_MOVSB:
		host_arch_copy_movsb(dst, src, bytes);
		return;
	case BASE_COPY_NONTEMPORAL:
		host_arch_copy_nontemporal(dst, src, bytes);
		return;
	case BASE_COPY_AUTO:
	case BASE_COPY_PLAIN:
		memcpy(dst, src, bytes);
		return;
	}
}
