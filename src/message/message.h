/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * message: messages between processes, which the host MPI matches, orders and completes, moved
 * faster. The host MPI reads a large message from its sender's memory by one system call
 * (process_vm_readv, "CMA"). Sluice stands before that call: what lies in regions of the sender is
 * copied from the mapping of the sender's arena, at the speed of memory; the kernel reads the rest.
 *
 *   sender                                      receiver
 *   MPI_Send -> message_send()                  host MPI matches the message
 *     adopts the buffer, once peers have read     -> process_vm_readv(sender, ...) (preload/)
 *     it privately and its uses have earned it      -> message_read(): header of the sender (node/)
 *     a blocking send: message_offer()                  its regions (region_peer_find):
 *     copies what no region holds                           memcpy, check
 *   host MPI sends address and length                   its copies (snapshot.c); the rest by the
 *   message_sent() withdraws the copy                     real call
 *
 * Between ranks that share an address space (endpoints/) every readable mapping is copied directly.
 *
 * Never served: process_vm_writev, and calls that the host MPI's libraries do not make (a debugger,
 * the program itself), because only the kernel can refuse a bad local address. The result is the
 * kernel's in every case: the same count, a short one too, and the same errors.
 *
 * A reader pins nothing and waits for nobody: it copies, then checks that the region has not ended
 * meanwhile (region_peer_has), and otherwise makes the real call (doc/adr/0036-messages.md).
 *
 * Threads: any thread, as the host MPI permits; no lock, except for the first message of a process.
 */
#ifndef SLUICE_MESSAGE_H
#define SLUICE_MESSAGE_H

#include <sys/types.h>
#include <sys/uio.h>

#include "base/base.h"

/* Whether messages are served. message_begin(): at the runtime's start, when SLUICE_MESSAGES
 * permits. */
void message_begin(void);
void message_end(void);

/* Does a library of an MPI make the call that returns to `caller`, and are messages served? */
bool message_is_served(const void *caller);

/* The arguments of process_vm_readv(). real: makes the system call. */
struct message_read {
	pid_t pid;
	const struct iovec *local;
	unsigned long locals;
	const struct iovec *remote;
	unsigned long remotes, flags;
	ssize_t (*real)(pid_t, const struct iovec *, unsigned long, const struct iovec *,
			unsigned long, unsigned long);
};
/* Returns: as process_vm_readv(), with errno; the local memory must be writable. */
ssize_t message_read(const struct message_read *r);

/* A message of fewer bytes is passed on at once; UINT64_MAX: all are. */
extern _Atomic uint64_t message_gate;
/* Bytes at the ends of a message that no region holds. */
struct message_edges { uint64_t head, tail; };
/*
 * The program is about to send [buf, buf + bytes), of which `used` bytes are the message. Adopts
 * the buffer once it has earned that, and checks that a region there is still mapped. Returns: the
 * bytes that may be worth a copy (message_offer), or zeros. Context: in the call, before the host
 * MPI.
 */
struct message_edges message_send(const void *buf, uint64_t bytes, uint64_t used);

/*
 * Around a blocking send that will not fail for its arguments: the edges are copied into the arena,
 * from where the reader takes them without a system call. Until message_sent() nobody changes the
 * message.
 */
struct snapshot;
bool message_may_offer(const void *buf, uint64_t bytes, const struct message_edges *edges);
struct snapshot *message_offer(const void *buf, uint64_t bytes, const struct message_edges *edges);
/* The call has ended; s: NULL or the copy. Returns: rc. */
int message_sent(struct snapshot *s, int rc);

#endif
