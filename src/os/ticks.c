/* SPDX-License-Identifier: BSD-3-Clause */
#include <string.h>

#include "os/arch.h"
#include "os/os.h"
#include "os/procfile.h"

/* Clock sources that read the time-stamp counter. A kernel that found the counter unstable uses
 * another. */
static bool is_by_counter(const char *source)
{
	static const char *const names[] = { "tsc", "kvm-clock", "hyperv_clocksource_tsc_page" };

	for (size_t i = 0; i < BASE_ARRAY_LEN(names); i++)
		if (!strncmp(source, names[i], strlen(names[i])))
			return true;
	return false;
}

bool os_has_steady_ticks(void)
{
	char source[64];

	return os_arch_has_steady_ticks() &&
	       os_procfile_read(
		       "/sys/devices/system/clocksource/clocksource0/current_clocksource", source,
		       sizeof source) > 0 &&
	       is_by_counter(source);
}
