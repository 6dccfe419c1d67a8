/* SPDX-License-Identifier: BSD-3-Clause */
/* process_vm_readv(), by which host MPIs read large messages: message/ serves it. */
#include <sys/uio.h>

#include "message/message.h"
#include "preload/next.h"
#include "trace/trace.h"

static struct {
	__typeof__(&process_vm_readv) process_vm_readv;
} next;

/* A crash handler may call it. */
__attribute__((constructor)) static void resolve_early(void) { (void)NEXT(process_vm_readv); }

static ssize_t real(pid_t pid, const struct iovec *local, unsigned long locals,
		    const struct iovec *remote, unsigned long remotes, unsigned long flags)
{
	return NEXT(process_vm_readv)(pid, local, locals, remote, remotes, flags);
}

EXPORT ssize_t process_vm_readv(pid_t pid, const struct iovec *local, unsigned long locals,
				const struct iovec *remote, unsigned long remotes,
				unsigned long flags)
{
	struct message_read r = { .pid = pid, .local = local, .locals = locals, .remote = remote,
				  .remotes = remotes, .flags = flags, .real = real };

	if (base_unlikely(!message_is_served(__builtin_return_address(0)))) {
		uint64_t since = trace_message_copy();
		ssize_t ret = real(pid, local, locals, remote, remotes, flags);

		trace_message_copied(since, ret, 0);
		return ret;
	}
	return message_read(&r);
}
