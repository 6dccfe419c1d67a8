/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Direct requests of a program to Sluice. Programs need none of them: `sluice run` serves programs
 * that do not know Sluice.
 */
#ifndef SLUICE_SLUICE_H
#define SLUICE_SLUICE_H

#define SLUICE_VERSION_MAJOR 0
#define SLUICE_VERSION_MINOR 1
#define SLUICE_VERSION_PATCH 0
#define SLUICE_VERSION "0.1.0"

/* major * 10000 + minor * 100 + patch, for comparisons in #if */
#define SLUICE_VERSION_NUMBER \
	(SLUICE_VERSION_MAJOR * 10000 + SLUICE_VERSION_MINOR * 100 + SLUICE_VERSION_PATCH)

#ifdef __cplusplus
extern "C" {
#endif

/*
 * The version of the loaded libsluice.so, as "0.1.0": it may differ from SLUICE_VERSION, which is
 * that of the header. Declared weak where the compiler can, so that a program need not link
 * libsluice: the function's address is null when Sluice was not preloaded.
 * Context: any thread, any time, signal handlers included.
 */
#if defined(__GNUC__) && !defined(SLUICE_STRONG)
__attribute__((weak))
#endif
const char *sluice_version(void);

#ifdef __cplusplus
}
#endif

#endif
