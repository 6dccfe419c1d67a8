/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Which memory of the caller a system call reads and writes, as data. Private to sud/.
 *
 * A call that is not in the table may do anything: with it, everything pending is completed first.
 * So are calls that make a copy of the process or end it, and those whose memory is named by memory
 * that nobody here understands.
 */
#ifndef SLUICE_SUD_CALLS_H
#define SLUICE_SUD_CALLS_H

#include <stddef.h>
#include <stdint.h>

enum calls_how {
	CALLS_COMPLETE, /* unknown, or it could show the state of things */
	CALLS_PASS,     /* after its uses have been looked at */
	CALLS_MASK,     /* rt_sigprocmask */
	CALLS_ACTION,   /* rt_sigaction */
	CALLS_IOCTL,
};

enum calls_kind {
	CALLS_NOTHING,
	CALLS_IN,  /* the kernel reads it */
	CALLS_OUT, /* the kernel writes it */
	CALLS_STRING,
	CALLS_SIZED_OUT, /* `count` is the argument that points to its 4 bytes of size, which change
			    too */
	CALLS_IOV_IN,
	CALLS_IOV_OUT, /* struct iovec[] and what it names */
	CALLS_MSG_IN,
	CALLS_MSG_OUT, /* struct msghdr */
	CALLS_MMSG_IN,
	CALLS_MMSG_OUT, /* struct mmsghdr[] */
	CALLS_PAGES,    /* address space that is changed or taken away */
	CALLS_PAGES_IF, /* the same, if argument 3 has the bits of `unit` */
	CALLS_SET,      /* of signals: must not contain ours */
	CALLS_BITS,     /* of descriptors, for select */
};

#define CALLS_FIXED 7u /* instead of the number of an argument: once */

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
