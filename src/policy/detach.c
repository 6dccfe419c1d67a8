/* SPDX-License-Identifier: BSD-3-Clause */
/* Whether a call returns before its data is complete. */
#include "policy/policy.h"

/* Least copy time for which an early return pays. Guarding and unguarding cost 30 to 40 us with the
 * worker process, and up to 100 us with a thread, which must wake and interrupts this thread
 * (results/early-return.md). An application that computes little between calls also pays other
 * costs: 1 MB (75 us) took 1.08 to 1.12 x the time of blocking calls. A partner that copies alone
 * saves this rank at most half of copy_ns. */
#define WORTH_NS 120000u
#define WORTH_THREAD_NS 150000u
#define LATE_NS                                                                                    \
	30000u /* a later partner is late: about the cost of an early return */
/* Where ranks share CPUs a partner may wait for its time slice, so a partner is late only after the
 * length of a time slice. (1 MB in an application on one core: 1.11 to 1.19 x the time of blocking
 * calls with 30 us.) */
#define LATE_SHARED_NS 2000000u

void policy_detach(const struct policy_detach_facts *f, struct policy_detach_choice *out)
{
	*out = (struct policy_detach_choice){ .how = DETACH_NEVER };
	if (f->mode == BASE_EARLY_OFF) {
		out->reason = "SLUICE_EARLY is off";
	} else if (f->bytes < f->min_bytes) {
		out->reason = "shorter than SLUICE_EARLY_MIN";
	} else if (!f->guard_is_ready) {
		out->reason = "memory cannot be guarded now";
	} else if (f->mode == BASE_EARLY_ON) {
		out->how = f->wait_us > 0 ? DETACH_IF_LATE : DETACH_NOW;
		out->wait_ns = f->wait_us > 0 ? (uint64_t)f->wait_us * 1000 : 0;
		out->reason = "SLUICE_EARLY is on";
	} else if (!f->site_may_try) {
		out->reason = "the program used the data at once in recent calls";
	} else if (f->has_mover && f->copy_ns >= (f->has_process ? WORTH_NS : WORTH_THREAD_NS)) {
		out->how = DETACH_NOW;
		out->reason = f->has_process ? "the worker process moves the data meanwhile"
					     : "a channel moves the data meanwhile";
	} else if (f->copy_ns >= WORTH_THREAD_NS && f->waited_ns &&
		   f->waited_ns >= f->partner_copy_ns) {
		out->how = DETACH_NOW;
		out->reason = "a partner has waited long enough to copy alone";
	} else {
		out->how = DETACH_IF_LATE;
		out->wait_ns = f->wait_us >= 0  ? (uint64_t)f->wait_us * 1000
			       : f->shares_cpus ? LATE_SHARED_NS
						: LATE_NS;
		out->reason =
			f->shares_cpus
				? "ranks share CPUs: only if a partner is later than a time slice"
			: f->has_mover ? "too short to wake a worker: only if a partner is late"
				       : "no channel or CPU is free: only if a partner is late";
	}
}

uint64_t policy_gain_ns(uint64_t free_ns, uint64_t waited_ns, uint64_t copy_ns)
{
	if (!copy_ns)
		return free_ns;
	return copy_ns > waited_ns ? base_min_u64(free_ns, copy_ns - waited_ns) : 0;
}

bool policy_was_worth(uint64_t free_ns, uint64_t cost_ns) { return free_ns > 2 * cost_ns; }
