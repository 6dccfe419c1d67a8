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
 *     copies what no region holds                       its copies (snapshot.c)
 *   host MPI sends address and length                   its regions (region_peer_find):
 *   message_sent(), or the end of the request               memcpy, check
 *     (message_completed), withdraws the copy           the rest by the real call
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

/* At the runtime's start. Returns: whether messages are served (SLUICE_MESSAGES permits). */
bool message_begin(void);
/* Returns: whether copies of nonblocking sends were left (message_has_posted). */
bool message_end(void);

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

/* The host MPI reads no shorter message from its sender. Set before message_begin(). */
extern uint64_t message_min_bytes;
/* A message of fewer bytes is passed on at once; UINT64_MAX: all are. */
extern _Atomic uint64_t message_gate;
/* May the sender offer a copy of the message, and until when? */
enum message_copy {
	MESSAGE_UNCOPIED,
	MESSAGE_BLOCKING, /* until message_sent(), in the same call */
	MESSAGE_POSTED,   /* until its request is complete: message_posted() */
};
/*
 * The program is about to send [buf, buf + bytes), of which `used` bytes are the message. Offers a
 * copy of what no region holds, or of a short message, in the arena, from where the reader takes it
 * without a system call; until it is withdrawn nobody may change the message. Otherwise adopts the
 * buffer once it has earned that, and checks that a region there is still mapped. Returns: NULL or
 * the copy. Context: in the call, before the host MPI.
 */
struct snapshot;
struct snapshot *message_send(const void *buf, uint64_t bytes, uint64_t used,
			      enum message_copy copy);
/* A blocking send has ended; s: NULL or its copy. Returns: rc. */
int message_sent(struct snapshot *s, int rc);
/* The program makes an error handler, which may leave any call by longjmp(), or begins to have
 * several threads in MPI: withdraws all copies, and offers none any more. */
void message_copy_no_more(void);

/*
 * Copies of nonblocking sends: the host MPI has returned this request, or has failed. While
 * message_has_posted(), all calls that name requests report them before and after. Context: one
 * thread at a time, in the order of the program: not with MPI_THREAD_MULTIPLE.
 */
void message_posted(struct snapshot *s, uintptr_t request, bool is_persistent);
void message_not_posted(struct snapshot *s);
bool message_has_posted(void);
/* Returns: the copies of this request, one bit each. */
uint64_t message_listed(uintptr_t request);
/* A call that may complete requests has ended. listed: before it; remaining: of the handles that it
 * has left. Withdraws the others. Returns: whether these were the last copies. */
bool message_completed(uint64_t listed, uint64_t remaining);

#endif
