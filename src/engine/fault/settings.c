/* SPDX-License-Identifier: BSD-3-Clause */
#include "engine/fault/settings.h"

#include <errno.h>
#include <stddef.h>
#include <string.h>

static const struct setting {
	const char *name, *accepts;
	size_t offset;
	uint64_t max;
} settings[] = {
	{ "inner", "the name of an engine", offsetof(struct fault_settings, inner), 0 },
	{ "delay", "microseconds, at most 60000000", offsetof(struct fault_settings, delay_us),
	  60000000 },
	{ "rate", "bytes a second like 1G", offsetof(struct fault_settings, rate_bytes),
	  INT64_MAX },
	{ "short", "the number of a copy", offsetof(struct fault_settings, short_nth), INT64_MAX },
	{ "error", "the number of a copy", offsetof(struct fault_settings, error_nth), INT64_MAX },
	{ "hang", "the number of a copy", offsetof(struct fault_settings, hang_nth), INT64_MAX },
};

/* Parses one "name=value". */
static int set(char *text, struct fault_settings *out, char *reason, size_t cap)
{
	char *value = strchr(text, '=');
	uint64_t number;

	if (value)
		*value++ = 0;
	else
		value = text + strlen(text);
	for (size_t i = 0; i < BASE_ARRAY_LEN(settings); i++) {
		const struct setting *s = &settings[i];

		if (strcmp(text, s->name))
			continue;
		if (!s->max && strlen(value) < sizeof(out->inner)) {
			strcpy(out->inner, value);
			return 0;
		}
		if (!base_parse_bytes(value, &number) && number && number <= s->max) {
			memcpy((char *)out + s->offset, &number, sizeof(number));
			return 0;
		}
		snprintf(reason, cap, "engine_fault: %s=%.40s is wrong: it takes %s",
			 s->name, value, s->accepts);
		return -EINVAL;
	}
	snprintf(reason, cap,
		 "engine_fault: there is no %.40s; it takes inner, delay, rate, short, error "
		 "and hang",
		 text);
	return -EINVAL;
}

int fault_settings_parse(const char *text, struct fault_settings *out, char *reason, size_t cap)
{
	struct fault_settings s = { 0 };
	char copy[256], *next = copy;

	if (strlen(text) >= sizeof(copy)) {
		snprintf(reason, cap, "engine_fault is longer than %zu bytes", sizeof(copy) - 1);
		return -EINVAL;
	}
	strcpy(copy, text);
	while (*text && next) {
		int rc = set(strsep(&next, ","), &s, reason, cap);

		if (rc)
			return rc;
	}
	*out = s;
	return 0;
}
