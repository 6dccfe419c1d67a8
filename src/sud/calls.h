/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Which memory of the caller a system call reads and writes, as data. Private to sud/.
 *
 * Before a call that is not in the table everything is completed, as the call may do anything. So
 * it is before calls that copy or end the process, and before calls with structures of unknown
 * layout.
 */
#ifndef SLUICE_SUD_CALLS_H
#define SLUICE_SUD_CALLS_H

#include <stddef.h>
#include <stdint.h>

enum calls_how {
	CALLS_COMPLETE, /* unknown, or it could show the state of all memory */
	CALLS_PASS,     /* after its uses were checked */
	CALLS_MASK,     /* rt_sigprocmask */
	CALLS_ACTION,   /* rt_sigaction */
	CALLS_IOCTL,
};

enum calls_kind {
	CALLS_NOTHING,
	CALLS_IN,  /* the kernel reads it */
	CALLS_OUT, /* the kernel writes it */
	CALLS_STRING,
	CALLS_SIZED_OUT, /* argument `count` points to its size, 4 bytes, which change too */
	CALLS_IOV_IN,
	CALLS_IOV_OUT, /* struct iovec[] and its buffers */
	CALLS_MSG_IN,
	CALLS_MSG_OUT, /* struct msghdr */
	CALLS_MMSG_IN,
	CALLS_MMSG_OUT, /* struct mmsghdr[] */
	CALLS_PAGES,    /* address space that is changed or unmapped */
	CALLS_PAGES_IF, /* address space, if argument 3 has a bit of `unit` */
	CALLS_SET,      /* a set of signals: must not contain SIGSEGV and SIGSYS */
	CALLS_BITS,     /* a set of descriptors, for select */
};

#define CALLS_FIXED 7u /* as `count`: once */

/* args[arg] points to `unit` bytes, args[count] times. */
struct calls_use {
	uint8_t kind, arg, count;
	uint32_t unit;
};

#define CALLS_USES 5
struct calls_entry {
	uint8_t how;
	struct calls_use uses[CALLS_USES];
};

extern const struct calls_entry calls_table[];
extern const long calls_count; /* numbers below it are in the table */

#endif
