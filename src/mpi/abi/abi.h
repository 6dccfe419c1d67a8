/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * mpi/abi: the host MPI as the rest of mpi/ sees it, whichever of three ABIs it has.
 *
 *   mpich.h ompi.h std.h    handle types and constants of one ABI, also for bench/ and tests
 *   mpich.c ompi.c std.c    driver.h compiled with each of them: fills struct abi
 *   attach.c                copies a driver's facts and the host MPI's functions
 *   types.c flatten.c       datatypes, and where their bytes lie
 *   pack.c                  buffers with gaps as packed bytes
 *   members.c               size of a communicator's groups, its topology
 *   scratch.c               a communicator of this process alone, for questions that may fail
 *   host_call.c             brackets around calls of the host MPI
 *
 * The other folders of mpi/ are compiled once. They see a handle (MPI_Comm, MPI_Datatype ...) as a
 * pointer that they never dereference. Its canonical value is the host MPI's pointer, or, where
 * handles are integers, that integer with a zero upper half:
 *
 *   by value        generated wrappers canonicalise (CANONICAL) before Sluice compares or stores a
 *                   handle; a handle that only passes through to the host MPI may stay as it came
 *   in memory       of the program: void *, by abi_handle_get() and abi_handle_set(). Of Sluice: a
 *                   canonical handle that is NULL before the host MPI writes it (little-endian:
 *                   the host MPI writes the lower half)
 *   in callbacks    attribute, error and request callbacks of Sluice do not read handles
 *
 * MPI_Aint, MPI_Count and MPI_Offset have 64 bits in all ABIs.
 *
 * A process has one driver: Sluice serves the host MPI that it attaches first and leaves others
 * alone (front/resolve.c). Errors: 0 or -errno among Sluice's functions, MPI error codes where a
 * comment says so.
 */
#ifndef SLUICE_MPI_ABI_H
#define SLUICE_MPI_ABI_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/base.h"
#include "functions.h"
#include "layout/layout.h"
#include "mpi/abi/predefined.h"
#include "mpi/abi/sizes.h"
#include "rt/early.h"
#include "rt/requests.h"
#include "rt/rt.h"

typedef struct mpi_comm *MPI_Comm;
typedef struct mpi_datatype *MPI_Datatype;
typedef struct mpi_errhandler *MPI_Errhandler;
typedef struct mpi_group *MPI_Group;
typedef struct mpi_info *MPI_Info;
typedef struct mpi_message *MPI_Message;
typedef struct mpi_op *MPI_Op;
typedef struct mpi_request *MPI_Request;
typedef struct mpi_session *MPI_Session;
typedef struct mpi_win *MPI_Win;
typedef struct mpi_file *MPI_File; /* a pointer in all ABIs: never canonicalised */
typedef intptr_t MPI_Aint;
typedef int64_t MPI_Count;
typedef int64_t MPI_Offset;
typedef void MPI_Status;

typedef int MPI_Comm_copy_attr_function(MPI_Comm, int, void *, void *, void *, int *);
typedef int MPI_Comm_delete_attr_function(MPI_Comm, int, void *, void *);
typedef int MPI_Type_copy_attr_function(MPI_Datatype, int, void *, void *, void *, int *);
typedef int MPI_Type_delete_attr_function(MPI_Datatype, int, void *, void *);
typedef void MPI_Comm_errhandler_function(void *, int *, ...);
typedef int MPI_Grequest_query_function(void *, MPI_Status *);
typedef int MPI_Grequest_free_function(void *);
typedef int MPI_Grequest_cancel_function(void *, int);

#include "host.h"

/* ---- the driver -------------------------------------------------------------------------- */

/* A predefined datatype or operation, and rt's name of it. */
struct abi_known { uintptr_t handle; int value; };

/* Facts of the host MPI's ABI. Written by abi_attach(), then constant. */
struct abi {
	/* wrappers read these at every call */
	struct abi_predefined predefined;
	uintptr_t handle_mask;   /* defined bits of a handle by value */
	const void *in_place;
	struct abi_range caller; /* image whose calls are not the program's: see
				    abi_is_program_call() */
	size_t handle_bytes;     /* size of a handle in memory */

	MPI_Comm comm_null, comm_world, comm_self;
	MPI_Datatype datatype_null, byte;
	MPI_Op op_null, bor;
	MPI_Request request_null;
	MPI_Status *status_ignore;
	/* Length of a status and indexes of its members, in ints. */
	int status_ints, status_source, status_tag, status_error;
	int any_source, any_tag, thread_multiple, undefined, root;
	int graph, cart, dist_graph;
	int err_truncate, err_other, err_in_status, err_no_mem;
	int err_cancel; /* result of canceling a collective */
	int combiner_dup, combiner_contiguous, combiner_resized;
	int combiner_vector, combiner_hvector, combiner_struct, combiner_subarray;
	int combiner_indexed, combiner_hindexed, combiner_indexed_block, combiner_hindexed_block;
	int combiner_darray, order_c, distribute_none, distribute_cyclic, distribute_dflt_darg;
	bool is_started_by_pmix; /* a hint only: PMIx can also start MPICH */
	bool packs_gaps;         /* no peer reads elements with gaps where they lie */
	const struct abi_known *numbers, *ops; /* handles that rt computes with */
	size_t number_count, op_count;
};

/* A loaded MPI library. `functions` are in the order of FRONT_REAL; optional ones may be NULL. */
struct host_library {
	void *handle;                     /* for dlsym; never closed */
	uintptr_t lo, hi;                 /* its mapped image */
	uintptr_t program_lo, program_hi; /* image of the executable */
	void *functions[FRONT_REAL_COUNT];
};

/* Fills *out. Returns: 0, or -ENOSYS when the library lacks a symbol of the ABI. */
typedef int abi_driver(struct abi *out, const struct host_library *library);
__attribute__((cold)) abi_driver abi_mpich, abi_ompi, abi_std;

extern struct abi abi;
extern struct host_functions host; /* the host MPI's own, its PMPI_X */

/* Remembers the library. Returns: 0 or -errno. Context: once per process, before any wrapper runs.
 */
int abi_attach(abi_driver *driver, const struct host_library *library);

/* > 0: this thread calls MPI on behalf of Sluice, and wrappers pass every call on. */
extern __thread int bypass __attribute__((tls_model("initial-exec")));
static inline int bypass_end(int rc)
{
	bypass--;
	return rc;
}
#define BYPASS(call) (bypass++, bypass_end(call)) /* one such call of the host MPI */

#define CALLER() __builtin_return_address(0)

/* Returns: whether the program made the call that returns to `caller`. The host MPI also calls
 * through the symbol table (MPI-IO in MPICH); a host MPI that contains its Fortran bindings does
 * so for the program. */
static inline bool abi_is_program_call(const void *caller)
{
	return !bypass && !abi_range_has(&abi.caller, (uintptr_t)caller);
}

/* ---- handles ----------------------------------------------------------------------------- */

#define CANONICAL_OF(handle) ((__typeof__(handle))((uintptr_t)(handle) & abi.handle_mask))
#define CANONICAL(handle)    ((handle) = CANONICAL_OF(handle))

/* Returns: the i-th handle, canonical, of an array in the host MPI's form. */
static inline void *abi_handle_get(const void *array, int i)
{
	if (abi.handle_bytes == sizeof(uint32_t))
		return (void *)(uintptr_t)((const uint32_t *)array)[i];
	return ((void *const *)array)[i];
}
static inline void abi_handle_set(void *array, int i, const void *handle)
{
	if (abi.handle_bytes == sizeof(uint32_t))
		((uint32_t *)array)[i] = (uint32_t)(uintptr_t)handle;
	else
		((const void **)array)[i] = handle;
}
static inline void *abi_handle_at(const void *array, int i)
{
	return (char *)array + (size_t)i * abi.handle_bytes;
}

/* ---- statuses ---------------------------------------------------------------------------- */

static inline void abi_status_set(MPI_Status *status, int source, int tag)
{
	((int *)status)[abi.status_source] = source;
	((int *)status)[abi.status_tag] = tag;
}
/* Sets the error of the i-th status of an array. */
static inline void abi_status_set_error(MPI_Status *statuses, int i, int error)
{
	((int *)statuses)[i * abi.status_ints + abi.status_error] = error;
}
static inline bool abi_are_statuses(const MPI_Status *statuses)
{
	return statuses && statuses != abi.status_ignore;
}

/* ---- host_call.c ------------------------------------------------------------------------- */

/* Calls the host MPI, and tells rt that operations may be pending during the call if `is_hosted`
 * holds. The empty statement hides the condition: GCC would copy the call for its two values. */
#define HOST_CALL_IF(is_hosted, call)                                                              \
	({                                                                                         \
		bool is_hosted_ = is_hosted;                                                       \
		int rc_;                                                                           \
		if (is_hosted_)                                                                    \
			host_bracket_begin(__builtin_frame_address(0));                            \
		__asm__("" : "+r"(is_hosted_));                                                    \
		rc_ = (call);                                                                      \
		is_hosted_ ? host_bracket_end(rc_) : rc_;                                          \
	})
#define HOST_CALL(call) HOST_CALL_IF(rt_has_pending(), call)
void host_bracket_begin(const void *frame);
int host_bracket_end(int rc); /* returns rc */
/* Tells that the program is at `frame`: longjmp() has ended the calls that began deeper in the
 * stack, as error handlers do. */
void host_bracket_unwind(const void *frame);

/* Returns: a stand-in for function X_c of a host MPI that has only X; NULL: none. In
 * front/narrow.c. */
void *narrow_function(const char *name);
/* A function of large counts, or its stand-in. */
#define OR_NARROW(name)                                                                            \
	(host.name ? host.name : (__typeof__(host.name))(uintptr_t)narrow_function(#name))

/* ---- scratch.c --------------------------------------------------------------------------- */

/* Makes at first use a communicator of this process alone, which ignores errors: for questions
 * that may fail. Local. Returns: 0 or -errno. */
int scratch_comm(MPI_Comm *out);
/* Frees the scratch communicator for good. Context: inside MPI_Finalize. */
void scratch_free(void);
/* Makes a call on the scratch communicator. Returns: its error code. Some host MPIs return 0
 * after an error handler has run, and the handle of MPI_ERRORS_RETURN differs between host MPIs
 * of the standard ABI. */
#define ON_SCRATCH(call) (scratch_error = 0, scratch_result(call))
/* As ON_SCRATCH, for calls that communicate: one thread at a time may do so on a communicator.
 * Wrappers pass the call on. */
#define ON_SCRATCH_LOCKED(call) (scratch_lock(), scratch_unlock(ON_SCRATCH(call)))
void scratch_lock(void);
int scratch_unlock(int rc); /* returns rc */
/* Copies a communicator without its attributes; tag: of MPI_Comm_create_group(), which disturbs no
 * rank outside the group. Returns: 0 or an MPI error code. */
int scratch_copy_of(MPI_Comm comm, int tag, MPI_Comm *out);
/* Has the host MPI return errors on this communicator, for scratch_result(). Returns: 0 or an MPI
 * error code. */
int scratch_silence(MPI_Comm comm);
extern __thread int scratch_error __attribute__((tls_model("initial-exec")));
static inline int scratch_result(int rc)
{
	return rc ? rc : scratch_error;
}

/* ---- members.c --------------------------------------------------------------------------- */

/* Ranks that a communicator's collective exchanges data with. */
enum members {
	MEMBERS_PEERS,   /* members of the group, of the other group in an intercommunicator */
	MEMBERS_LOCAL,   /* members of the rank's own group */
	MEMBERS_SOURCES, /* neighbours in a topology */
	MEMBERS_TARGETS,
};

/* Returns: their number; -1: unknown. */
int members_count(MPI_Comm comm, enum members which);
/* Returns: whether the root's arguments are significant on this rank; true in doubt. */
bool members_is_root(int root, MPI_Comm comm);
/* Finds the ranks that this rank receives from (n of them) and sends to (m), in the order of the
 * parts of a neighbourhood collective; negative: no rank. Returns: false when unknown. */
bool topology_neighbors(MPI_Comm comm, int *sources, int n, int *targets, int m);
/* Returns: whether rt can serve the topology, as far as this rank can tell. */
bool topology_is_served(MPI_Comm comm, int size);

/* ---- types.c ----------------------------------------------------------------------------- */

struct types_shape {
	bool in_order; /* one element is `size` bytes without gaps, in the order of packing */
	bool has_layout;
	MPI_Count size, extent, true_lb;
	struct layout layout; /* of one element, from the address of the buffer */
	struct typemap *map;  /* of one element without a layout. The datatype owns it */
};

/* Returns: count * size; 0: not executable (no bytes, too many, unknown datatype). */
uint64_t types_bytes(MPI_Datatype datatype, MPI_Count count);
/* Describes a datatype. Returns: 0, or -EINVAL when the host MPI would not communicate with it
 * (not committed). */
int types_describe(MPI_Datatype datatype, struct types_shape *out);

/* Sizes of predefined datatypes, which types_bytes() learns. */
extern struct sizes types_sizes;

/* Returns: an upper bound of the size of a predefined datatype; 0: the handle does not tell. */
static inline uint64_t types_bound(MPI_Datatype datatype)
{
	return abi_size_bound(&abi.predefined, (uintptr_t)datatype);
}

/* Returns: the size of a datatype that has a bound; 0: unknown yet. */
static inline uint64_t types_known_size(MPI_Datatype datatype, uint64_t bound)
{
	return abi_size_is_exact(&abi.predefined, (uintptr_t)datatype)
		       ? bound
		       : sizes_find(&types_sizes, (uintptr_t)datatype);
}

#define TYPES_COUNT_END ((uint64_t)1 << 40) /* larger counts could overflow a product */

/* Returns: whether a call is so small that Sluice asks neither rank nor host MPI, by the handle
 * or its known size. In sizes.c. */
bool types_is_small(MPI_Datatype datatype, uint64_t count, uint64_t threshold_bytes);
/* Returns: whether the gate leaves the call to the host MPI. */
bool types_is_passed(MPI_Datatype datatype, uint64_t count, const struct coll_gate *gate);

/* An array of counts or displacements, of int or of MPI_Count. A read of it touches the
 * program's memory and completes a pending operation there, as any other access does. */
struct list {
	const void *at;
	size_t width;
};

#define WIDE(array) ((struct list){ (array), sizeof((array)[0]) })
MPI_Count list_get(struct list list, int i); /* in sizes.c */

/* ---- pack.c ------------------------------------------------------------------------------ */

/* A program's buffer of `count` elements with gaps, as packed bytes. It outlives the datatype. */
struct pack {
	char *base;
	struct layout layout; /* of all elements */
	struct typemap *map;  /* of one element, when all elements have no layout; NULL: none */
	MPI_Count extent;
	bool is_device;       /* the host MPI copies the bytes */
};

/* Describes `count` elements at base in `out`: in place without gaps, else through `pack`, which
 * must live until pack_fini(). Returns: 0 or -errno. */
int pack_init(struct pack *pack, void *base, MPI_Count count, const struct types_shape *shape,
	      struct coll_buf *out);
/* As pack_init(), always through `pack`. */
int pack_init_packed(struct pack *pack, void *base, MPI_Count count,
		     const struct types_shape *shape, struct coll_buf *out);
/* Copies bytes [off, off + len) of the packed form; ctx: the pack. Returns: 0 or -errno. */
int pack_read(void *ctx, uint64_t off, uint64_t len, void *out);
int pack_write(void *ctx, uint64_t off, uint64_t len, const void *in);
/* Stores the layout of `count` elements whose buffer begins at `at`. Returns: 0 or -errno. */
int pack_layout(const struct types_shape *shape, uintptr_t at, MPI_Count count,
		struct layout *out);
/* Context: also for a pack whose members are zero. */
void pack_fini(struct pack *pack);

#endif
