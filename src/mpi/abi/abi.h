/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * What attach.c, take.c, observe.c, life.c, types.c and pack.c share. They are compiled once per
 * ABI, with one of SLUICE_ABI_MPICH, SLUICE_ABI_OMPI, SLUICE_ABI_STD defined; ABI_NAME keeps the
 * objects apart.
 *
 *   take.c --comm_state--> life.c     state of a communicator, as an attribute of it
 *          --hier_serve--> span*.c   communicators that span nodes (span.h)
 *          --types_describe--> types.c   what a datatype looks like, as an attribute of it
 *          --pack_init--> pack.c     struct coll_buf for buffers with gaps
 *          --observe_buf--> observe.c    completes what overlaps, before others see it
 *
 * Errors: 0 or -errno among us. The library's functions are called through `real`; `inside` counts
 * how deep this thread is in calls of ours, during which wrappers pass everything on.
 */
#ifndef SLUICE_MPI_ABI_H
#define SLUICE_MPI_ABI_H

#include <stdbool.h>
#include <stddef.h>

#if defined(SLUICE_ABI_MPICH)
#include "mpi/abi/mpich.h"
#define ABI_NAME(name) name##_mpich
#elif defined(SLUICE_ABI_OMPI)
#define ABI_NAME(name) name##_ompi
#define abi_ompi_symbols ABI_NAME(abi_ompi_symbols)
#include "mpi/abi/ompi.h"
#elif defined(SLUICE_ABI_STD)
#include "mpi/abi/std.h"
#define ABI_NAME(name) name##_std
#endif

#include "mpi/front/front.h"
#include "mpi/abi/sizes.h"
#include "rt/early.h"
#include "rt/requests.h"
#include "rt/rt.h"

typedef int MPI_Comm_copy_attr_function(MPI_Comm, int, void *, void *, void *, int *);
typedef int MPI_Comm_delete_attr_function(MPI_Comm, int, void *, void *);
typedef int MPI_Type_copy_attr_function(MPI_Datatype, int, void *, void *, void *, int *);
typedef int MPI_Type_delete_attr_function(MPI_Datatype, int, void *, void *);
typedef void MPI_Comm_errhandler_function(MPI_Comm *, int *, ...);
typedef int MPI_Grequest_query_function(void *, MPI_Status *);
typedef int MPI_Grequest_free_function(void *);
typedef int MPI_Grequest_cancel_function(void *, int);

#define real            ABI_NAME(front_real)
#define inside          ABI_NAME(front_inside)
#define scratch_error    ABI_NAME(front_helper_error)
#define session_start      ABI_NAME(session_start)
#define comm_state       ABI_NAME(comm_state)
#define comm_state_connect    ABI_NAME(comm_state_connect)
#define comm_state_connect_lanes ABI_NAME(comm_state_connect_lanes)
#define comm_state_oob        ABI_NAME(comm_state_oob)
#define scratch_comm     ABI_NAME(scratch_comm)
#define scratch_lock   ABI_NAME(scratch_lock)
#define scratch_unlock ABI_NAME(scratch_unlock)
#define comm_state_ref       ABI_NAME(comm_state_ref)
#define comm_state_unref    ABI_NAME(comm_state_unref)
#define comm_state_add_credit       ABI_NAME(comm_state_add_credit)
#define comm_state_is_freed    ABI_NAME(comm_state_is_freed)
#define comm_state_agree      ABI_NAME(comm_state_agree)
#define comm_state_progress   ABI_NAME(comm_state_progress)
#define session_is_thread_multiple ABI_NAME(session_is_thread_multiple)
#define comm_state_sync    ABI_NAME(comm_state_sync)
#define request_stop_all    ABI_NAME(request_stop_all)
#define topology_is_served  ABI_NAME(topology_is_served)
#define topology_neighbors ABI_NAME(topology_neighbors)
#define types_bytes     ABI_NAME(types_bytes)
#define types_sizes     ABI_NAME(types_sizes)
#define types_describe  ABI_NAME(types_describe)
#define types_repeat    ABI_NAME(types_repeat)
#define pack_init       ABI_NAME(pack_init)
#define pack_init_packed ABI_NAME(pack_init_packed)
#define pack_read       ABI_NAME(pack_read)
#define pack_write      ABI_NAME(pack_write)
#define pack_flush      ABI_NAME(pack_flush)
#define pack_fini       ABI_NAME(pack_fini)
#define pack_elements   ABI_NAME(pack_elements)
#define abi_library     ABI_NAME(abi_library)
#define abi_attach  ABI_NAME(abi_attach)
#define observe_ways       ABI_NAME(observe_ways)
#define members_count   ABI_NAME(members_count)
#define members_is_root ABI_NAME(members_is_root)
#define observe_buf     ABI_NAME(observe_buf)
#define observe_each    ABI_NAME(observe_each)
#define observe_all     ABI_NAME(observe_all)
#define observe_bytes   ABI_NAME(observe_bytes)
#define observe_part    ABI_NAME(observe_part)
#define observe_parts   ABI_NAME(observe_parts)
#define observe_sum     ABI_NAME(observe_sum)
#define host_call_begin_at ABI_NAME(host_call_begin_at)
#define host_call_end_at   ABI_NAME(host_call_end_at)
#define host_call_unwind    ABI_NAME(host_call_unwind)

#include "real.h"

static inline void abi_status_set(MPI_Status *status, int source, int tag)
{
	((int *)status)[ABI_STATUS_SOURCE] = source;
	((int *)status)[ABI_STATUS_TAG] = tag;
}
/* Of the i-th in an array. */
static inline void abi_status_set_error(MPI_Status *statuses, int i, int error)
{
	((int *)statuses)[i * ABI_STATUS_INTS + ABI_STATUS_ERROR] = error;
}
static inline bool abi_are_statuses(const MPI_Status *statuses)
{
	return statuses && statuses != ABI_STATUS_IGNORE;
}

extern struct host_functions real;
extern __thread int inside __attribute__((tls_model("initial-exec")));

/* The library's image: its own calls through the symbol table (MPI-IO in MPICH) are not the
 * program's. Empty for a library that contains its Fortran bindings. */
struct abi_library {
	uintptr_t lo, hi;
};
extern struct abi_library abi_library;
/* attach.c; see struct front_abi */
int abi_attach(const struct front_host *host);

static inline bool abi_is_program_call(const void *caller)
{
	return !inside &&
	       !((uintptr_t)caller >= abi_library.lo && (uintptr_t)caller < abi_library.hi);
}

#define CALLER() __builtin_return_address(0)

/* ---- life.c ------------------------------------------------------------------------------ */

struct comm_state {
	struct comm_state *next; /* of all, under a lock; to let go of all at MPI_Finalize */
	MPI_Comm comm;
	int rank, size;
	bool is_inter;
	bool is_asked;          /* rt has been asked; rt == NULL then means: not served */
	struct rt_comm *rt;
	bool is_asked_lanes;    /* rt has been asked for `lanes`, too, ... */
	struct rt_comm *lanes;  /* ... of persistent requests; NULL: the library's */
	struct spanning *span;      /* of one that spans nodes; else NULL */
	bool has_neighbours;    /* ... that rt can serve, on every rank */
	uint32_t passed; /* calls that rt may want, if there are more of them: before it is asked */
	bool is_wanted;         /* by nonblocking calls: the next blocking one connects it */
	uint32_t wishes;        /* of all of them; the same on all ranks whenever they meet */
	bool is_gone;           /* freed by the program, and kept for those who hold it */
	int refs;               /* requests that hold it; under the lock */
	bool has_pending;
	MPI_Request pending;    /* never completes; testing it makes the library progress */
	int64_t words[]; /* one a rank: whoever has this can take part in what all ranks agree on */
};

/* Start the runtime if MPI is there, and see to it that MPI_Finalize stops it. Idempotent. */
void session_start(void);
/* State of a communicator, made at first sight; local. Returns an MPI error code, which the library
 * has then already reported, or 0. */
int comm_state(MPI_Comm comm, struct comm_state **out);
/* Collective over the communicator at its first call: true when rt serves it. */
bool comm_state_connect(struct comm_state *lc);
/* The same of persistent requests, on a communicator that rt serves. */
bool comm_state_connect_lanes(struct comm_state *lc);
/* For what rt asks all ranks. Valid as long as lc. */
struct rt_oob comm_state_oob(struct comm_state *lc);
/* Smallest of all ranks' values: collective over the communicator. 0 or -errno. */
int comm_state_agree(struct comm_state *lc, int64_t mine, int64_t *out);
/* The library makes progress on all its messages. */
void comm_state_progress(struct comm_state *lc);
bool session_is_thread_multiple(void); /* MPI_THREAD_MULTIPLE is provided */
/* A request of ours names it, and may be in flight when the program frees it. */
void comm_state_ref(struct comm_state *lc);
void comm_state_unref(struct comm_state *lc);
bool comm_state_is_freed(struct comm_state *lc); /* freed by the program */
/*
 * A nonblocking call must not wait for others, so it cannot connect a communicator. It says how
 * much it wishes that (policy_connect_credit); the next blocking collective on it, which all ranks call,
 * connects it (comm_state_sync).
 */
void comm_state_add_credit(struct comm_state *lc, uint32_t wish);
void comm_state_sync(MPI_Comm comm);
/* Those that are over are completed, persistent ones forgotten; at the end, when nothing progresses
 * any more. */
void request_stop_all(void);
/* A communicator of this process alone whose errors nobody hears of: for questions that may fail.
 * Made at first use, local. 0 or -errno. */
int scratch_comm(MPI_Comm *out);
/* Error code of a call on it: 0 or not. Some libraries return 0 after an error handler of ours has
 * run, and the handle of MPI_ERRORS_RETURN is not the same in all libraries of the standard ABI. */
#define ON_SCRATCH(call) (scratch_error = 0, scratch_result(call))
/* The same for calls that communicate: threads must not do so on one communicator at once. */
#define ON_SCRATCH_LOCKED(call) (scratch_lock(), scratch_unlock(ON_SCRATCH(call)))
void scratch_lock(void);
int scratch_unlock(int rc); /* returns rc */
extern __thread int scratch_error __attribute__((tls_model("initial-exec")));
static inline int scratch_result(int rc)
{
	return rc ? rc : scratch_error;
}

/* ---- neighbours.c ------------------------------------------------------------------------ */

/* Ranks that this one receives from (n of them) and sends to (m), negative: nobody. False: not
 * known. */
bool topology_neighbors(MPI_Comm comm, int *sources, int n, int *targets, int m);
/* Can they be served, as far as this rank knows? */
bool topology_is_served(MPI_Comm comm, int size);

/* ---- types.c ----------------------------------------------------------------------------- */

struct types_shape {
	bool in_order;      /* one element is `size` bytes without gaps, in the order of packing */
	MPI_Count size, extent, true_lb;
};

/* count * size, or 0 when that is nothing that can be taken (nothing, too much, unknown). */
uint64_t types_bytes(MPI_Datatype datatype, MPI_Count count);
/* 0, or -EINVAL for what the library would not accept in communication (not committed). */
int types_describe(MPI_Datatype datatype, struct types_shape *out);
/* A committed datatype of `count` elements, for libraries without functions for large counts.
 * Returns an MPI error code or 0. */
int types_repeat(MPI_Count count, MPI_Datatype datatype, MPI_Datatype *out);

/* Of predefined datatypes, learnt by types_bytes(). */
extern struct sizes types_sizes;

/* The size of one that has a bound; 0: not known yet. */
static inline uint64_t types_known_size(MPI_Datatype datatype, uint64_t bound)
{
	return abi_size_is_exact(datatype) ? bound : sizes_find(&types_sizes, (uintptr_t)datatype);
}

/* A call so small that neither rank nor library need be asked: by the handle alone, or by what is
 * known of it. */
static inline bool types_is_small(MPI_Datatype datatype, uint64_t count, uint64_t threshold_bytes)
{
	uint64_t bound = abi_size_bound(datatype), size;

	if (!bound || count >= (uint64_t)1 << 40)
		return false;
	if (base_likely(count * bound < threshold_bytes))
		return true;
	size = types_known_size(datatype, bound);
	return size && count * size < threshold_bytes;
}

/* Likewise: one that the gate leaves to the library. */
static inline bool types_is_passed(MPI_Datatype datatype, uint64_t count,
				   const struct coll_gate *gate)
{
	uint64_t bound = abi_size_bound(datatype), size;

	if (!bound || count >= (uint64_t)1 << 40)
		return false;
	if (base_likely(count * bound < gate->gate))
		return true;
	size = types_known_size(datatype, bound);
	return size && coll_gate_passes(gate, count * size);
}

/* An array of counts or displacements, of int or of MPI_Count. Reading it touches the program's
 * memory, which may be what is pending: that is completed like any other touch. */
struct list {
	const void *at;
	size_t width;
};

#define WIDE(array) ((struct list){ (array), sizeof((array)[0]) })

static inline MPI_Count list_get(struct list list, int i)
{
	if (list.width == sizeof(int))
		return ((const int *)list.at)[i];
	return ((const int64_t *)list.at)[i];
}

/* A function of large counts that the library may not have. */
#define OR_NARROW(name)                                                                            \
	(real.name ? real.name : (__typeof__(real.name))(uintptr_t)narrow_function(#name))

/* ---- observe.c ---------------------------------------------------------------------------- */

/* A call of the library's that is made while something may be pending. */
#define HOST_CALL(call)                                                                               \
	(rt_has_pending()                                                                          \
		 ? (host_call_begin_at(__builtin_frame_address(0)), host_call_end_at(call))        \
		 : (call))
void host_call_begin_at(const void *frame);
int host_call_end_at(int rc); /* returns rc */
/* Here is where the program is; calls that were begun deeper in the stack have been left by
 * longjmp(), as error handlers do. */
void host_call_unwind(const void *frame);

extern const struct front_way observe_ways[FRONT_LOOK_COUNT];
int members_count(uintptr_t comm, enum front_who who);
bool members_is_root(int root, MPI_Comm comm);
/* Complete what overlaps `count` elements at `at` (MPI_IN_PLACE names nothing); the same number for
 * each of `who`; bytes. */
void observe_buf(const void *at, MPI_Count count, MPI_Datatype datatype);
void observe_each(const void *at, MPI_Count count, MPI_Datatype datatype, MPI_Comm comm,
		  enum front_who who);
void observe_all(void);
void observe_bytes(const void *at, MPI_Count bytes);
/* One count for each: with places in elements, in bytes and with datatypes, one after the other. */
void observe_part(const void *at, struct list counts, struct list displs, MPI_Datatype datatype,
		  MPI_Comm comm, enum front_who who);
void observe_parts(const void *at, struct list counts, struct list displs,
		   const MPI_Datatype *datatypes, MPI_Comm comm, enum front_who who);
void observe_sum(const void *at, struct list counts, MPI_Datatype datatype, MPI_Comm comm,
		 enum front_who who);

/* ---- pack.c ------------------------------------------------------------------------------ */

/* A program's buffer of `count` elements with gaps, seen as packed bytes. */
struct pack {
	void *base;
	MPI_Datatype datatype;
	struct types_shape shape;
	MPI_Comm helper;
	unsigned char *element;  /* packed form of one element of which parts are wanted */
	MPI_Count element_index; /* -1: none */
	bool element_is_dirty;   /* holds bytes that the buffer has not yet */
};

/* Describe `count` elements at base in `out`: in place when there are no gaps, else through `pack`,
 * which must live until pack_fini(). 0 or -errno. */
int pack_init(struct pack *pack, void *base, MPI_Count count, MPI_Datatype datatype,
	      const struct types_shape *shape, struct coll_buf *out);
/* The same, always through `pack`. */
int pack_init_packed(struct pack *pack, void *base, MPI_Count count, MPI_Datatype datatype,
		     const struct types_shape *shape, struct coll_buf *out);
/* Bytes [off, off + len) of the packed form; ctx: the pack. 0 or -errno. */
int pack_read(void *ctx, uint64_t off, uint64_t len, void *out);
int pack_write(void *ctx, uint64_t off, uint64_t len, const void *in);
/* Write back what is still held, and hold nothing; 0 or -errno. */
int pack_flush(struct pack *pack);
/* The same for the last time. */
int pack_fini(struct pack *pack);
/* n elements from the first-th on, as packed by the library: n * size bytes at out. 0 or -errno. */
int pack_elements(const struct pack *pack, MPI_Count first, MPI_Count n, void *out);

#endif
