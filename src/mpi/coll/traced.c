/* SPDX-License-Identifier: BSD-3-Clause */
/* The choice between recording a call and counting it. */
#include "mpi/coll/traced.h"

static uint64_t size_of(uintptr_t type)
{
	return types_bytes((MPI_Datatype)type, 1);
}

bool traced_begin_on(struct traced *t, MPI_Datatype datatype, MPI_Count count,
		     uint64_t threshold_bytes)
{
	bool is_off = threshold_bytes == UINT64_MAX;

	if (!is_off && count > 0 && types_is_small(datatype, (uint64_t)count, threshold_bytes)) {
		t->since = trace_small_begin(t->name, t->site, __builtin_frame_address(0),
					     (uint64_t)count, (uintptr_t)datatype, size_of);
		return true;
	}
	t->is_call = true;
	trace_call_begin(t->name, t->site, __builtin_frame_address(0));
	if (is_off)
		trace_rejected("SLUICE_COLL turns this collective off");
	return false;
}
