/* SPDX-License-Identifier: (GPL-2.0 WITH Linux-syscall-note) OR BSD-3-Clause */
/*
 * Interface of /dev/sluice: copies of this process's memory by DMA channels of the kernel.
 *
 *   fd = open("/dev/sluice", O_RDWR | O_CLOEXEC)
 *   ioctl(fd, SLUICE_IOC_INFO)     version, channels and their nodes
 *   ioctl(fd, SLUICE_IOC_ATTACH)   gives the descriptor its channel, once
 *   mmap(fd, SLUICE_RECORDS_BYTES) completion records, one a slot
 *   ioctl(fd, SLUICE_IOC_ENTER)    submits copies, each into a slot that is not in use
 *   ... records[slot].state becomes SLUICE_RECORD_ENDED, in any order, without a system call
 *   ioctl(fd, SLUICE_IOC_CANCEL)   ends copies by their cookies that the device has not begun
 *   ioctl(fd, SLUICE_IOC_RETIRE)   ends all of them, and waits for the rest; nothing is accepted after it
 *   close(fd)
 *
 * Schedules need no channel:
 *
 *   g = ioctl(fd, SLUICE_IOC_GROUP)  one rank creates a group and passes g to the others
 *   ioctl(fd, SLUICE_IOC_JOIN)       each becomes a rank of it
 *   ioctl(fd, SLUICE_IOC_RUN)        executes a schedule of sluice-goal(5); its end shows in records[slot]
 *
 * A descriptor belongs to the address space that opened it; every call by another one, such as a
 * forked child's, fails with EPERM. Addresses are this process's own: the module copies only what
 * the caller may read to where the caller may write, so it gives nobody a right.
 *
 * Pages are pinned at the first copy from or to them and stay pinned until the mapping changes, the
 * cache is full, SLUICE_IOC_DROP, or close. Pinned pages count against RLIMIT_MEMLOCK unless
 * the process has CAP_IPC_LOCK. What is unmapped during a copy is copied to its end; the pages are
 * freed afterwards.
 *
 * Unused fields and flags must be 0, else EINVAL.
 */
#ifndef _UAPI_SLUICE_KMOD_H
#define _UAPI_SLUICE_KMOD_H

#include <linux/ioctl.h>
#include <linux/types.h>

#define SLUICE_ABI 2
#define SLUICE_SLOTS 64
#define SLUICE_CHANNELS_MAX 64
#define SLUICE_RECORDS_BYTES 4096
#define SLUICE_RANKS_MAX 4096

/* The answer to INFO. An abi that the caller does not know must not be used. */
struct sluice_info {
	__u32 abi;
	__u32 channels;                      /* 0: no DMA channel can be had */
	__u32 slots;
	__u32 zero;
	__s32 node[SLUICE_CHANNELS_MAX];     /* NUMA node of each channel; -1: none */
	char driver[32];                     /* of channel 0 */
};

struct sluice_attach {
	__u32 channel;                       /* in: below sluice_info.channels */
	__u32 flags;                         /* in: 0; out: SLUICE_CHANNEL_* */
	__s32 node;
	__u32 depth;                         /* items that the device holds at a time */
	__u64 item_bytes;                    /* one descriptor of the device */
	__u64 max_bytes;                     /* of one copy */
	char name[32];                       /* of the channel, as in /sys/class/dma */
	__u64 zero[4];
};

#define SLUICE_CHANNEL_ONLOAD 1u             /* kernel threads copy, on CPUs */

enum { SLUICE_OP_COPY = 1 };

/* One copy. Any alignment is allowed; a processor copies what the device cannot. */
struct sluice_entry {
	__u32 slot;                          /* below SLUICE_SLOTS */
	__u32 op;
	__u64 src, dst;                      /* addresses in the caller */
	__u64 bytes;                         /* 1 to max_bytes */
	__u64 cookie;                        /* the caller's name of the copy, for CANCEL */
	__u64 zero[3];
};

/* Entries are accepted in order up to the first that is malformed or whose slot is in use. */
struct sluice_enter {
	__u64 entries;                       /* address of struct sluice_entry[count] */
	__u32 count;
	__u32 flags;                         /* 0 */
	__u32 accepted;                      /* out, also after an error */
	__u32 zero;
};

enum { SLUICE_RECORD_ENDED = 1 };

/*
 * The caller clears `state` before it submits the slot. The module stores `state` last. Then
 * the destination is complete (result 0), or any part of it may have been written.
 * result: 0, -ECANCELED, -EFAULT (an address is not mapped so), -ENOMEM (RLIMIT_MEMLOCK), -EIO
 * (the device), or another -errno.
 */
struct sluice_record {
	__u32 state;
	__s32 result;
	__u64 zero;
};

/* Cookies in [from, from + bytes); bytes of ~0 from 0: all. */
struct sluice_cancel {
	__u64 from, bytes;
};

/* Creates a group of 1 to SLUICE_RANKS_MAX ranks. Returns a descriptor: who has it may join. */
struct sluice_group {
	__u32 ranks;
	__u32 flags;                         /* 0 */
};

/* Makes the caller rank `rank` of a group: once a descriptor of the device, once a rank. */
struct sluice_join {
	__s32 fd;                            /* of the group */
	__u32 rank;
};

struct sluice_buffer {
	__u64 address, bytes;                /* in the caller */
};

/*
 * Executes a schedule, a block of sluice-goal(5), for a rank of the caller's group, without the
 * caller: its record is written when all operations have ended. Sends and receives of runs match
 * where their ranks gave the same `id`; both must have the same length. Buffers are pinned as by
 * copies. CALC, and floating point where the kernel has no registers for it, are refused.
 * result: 0, -ECANCELED, -EPIPE (a run of the group has failed or was cancelled, or a rank has left
 * whose message was awaited; then nothing runs in the group any more), -EMSGSIZE.
 */
struct sluice_run {
	__u32 slot;                          /* shared with copies */
	__u32 buffer_count;                  /* GOAL_USER + i is buffer i */
	__u64 program, bytes;                /* address and length of the block */
	__u64 buffers;                       /* address of struct sluice_buffer[buffer_count] */
	__u64 id;
	__u64 cookie;                        /* for CANCEL */
	__u64 zero[2];
};

struct sluice_drop {
	__u64 address, bytes;                /* pins that overlap are given up */
};

/* Sums since the module was loaded, over all descriptors. */
struct sluice_stat {
	__u64 pins, unpins;                  /* pages */
	__u64 regions, hits, stale, evicted; /* pins kept: made, found, outdated, given up for room */
	__u64 enters, copies, cancelled;
	__u64 descriptors, callbacks;        /* given to the device, and ended by it */
	__u64 dma_bytes, cpu_bytes;
	__u64 contexts;                      /* open now */
	__u64 runs, messages;                /* schedules begun; messages delivered by them */
	__u64 onload_bytes;                  /* copied by kernel threads */
	__u64 zero;
};

#define SLUICE_IOC_INFO   _IOR(0xdc, 0x00, struct sluice_info)
#define SLUICE_IOC_ATTACH _IOWR(0xdc, 0x01, struct sluice_attach)
#define SLUICE_IOC_ENTER  _IOWR(0xdc, 0x02, struct sluice_enter)
#define SLUICE_IOC_CANCEL _IOW(0xdc, 0x03, struct sluice_cancel)
#define SLUICE_IOC_RETIRE _IO(0xdc, 0x04)
#define SLUICE_IOC_DROP   _IOW(0xdc, 0x05, struct sluice_drop)
#define SLUICE_IOC_STAT   _IOR(0xdc, 0x06, struct sluice_stat)
#define SLUICE_IOC_GROUP  _IOW(0xdc, 0x07, struct sluice_group)
#define SLUICE_IOC_JOIN   _IOW(0xdc, 0x08, struct sluice_join)
#define SLUICE_IOC_RUN    _IOW(0xdc, 0x09, struct sluice_run)

#endif
