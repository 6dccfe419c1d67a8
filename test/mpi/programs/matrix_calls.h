/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * One collective call as data, and every way to make it: blocking, nonblocking and persistent, with
 * int and with MPI_Count, and the library's own function, which nobody stands in front of.
 */
#ifndef MATRIX_CALLS_H
#define MATRIX_CALLS_H

#include "check.h"

#include <dlfcn.h>
#include <link.h>

enum { RANKS_MAX = 16 };

/* The part for, or from, each partner: in elements, and for the w forms in bytes. */
struct list {
	int counts[RANKS_MAX], displs[RANKS_MAX], bytes[RANKS_MAX];
	MPI_Count counts_c[RANKS_MAX];
	MPI_Aint displs_c[RANKS_MAX], bytes_c[RANKS_MAX];
	MPI_Datatype types[RANKS_MAX];
};

struct call {
	const void *send;
	void *recv;
	int scount, rcount, root; /* of one part */
	MPI_Datatype stype, type; /* of what is sent; of what is received or reduced */
	MPI_Op op;
	MPI_Comm comm;
	struct list s, r;
};

#define MOVED(c) (c)->send, (c)->scount, (c)->stype, (c)->recv, (c)->rcount, (c)->type
#define REDUCED(c) (c)->send, (c)->recv, (c)->rcount, (c)->type, (c)->op
#define SENT_LIST(c) (c)->send, LIST((c)->s, counts), LIST((c)->s, displs), (c)->stype
#define GOT_LIST(c) (c)->recv, LIST((c)->r, counts), LIST((c)->r, displs), (c)->type
#define SENT_ONE(c) (c)->send, (c)->scount, (c)->stype
#define GOT_ONE(c) (c)->recv, (c)->rcount, (c)->type

/* name, name of the nonblocking form, arguments up to the communicator. LIST(l, x): l.x, or l.x_c
 * where MPI_Count is meant. */
#define COLLECTIVES(X)                                                                             \
	X(Bcast, Ibcast, c->recv, c->rcount, c->type, c->root, c->comm)                            \
	X(Gather, Igather, MOVED(c), c->root, c->comm)                                             \
	X(Gatherv, Igatherv, SENT_ONE(c), GOT_LIST(c), c->root, c->comm)                           \
	X(Scatter, Iscatter, MOVED(c), c->root, c->comm)                                           \
	X(Scatterv, Iscatterv, SENT_LIST(c), GOT_ONE(c), c->root, c->comm)                         \
	X(Allgather, Iallgather, MOVED(c), c->comm)                                                \
	X(Allgatherv, Iallgatherv, SENT_ONE(c), GOT_LIST(c), c->comm)                              \
	X(Alltoall, Ialltoall, MOVED(c), c->comm)                                                  \
	X(Alltoallv, Ialltoallv, SENT_LIST(c), GOT_LIST(c), c->comm)                               \
	X(Alltoallw, Ialltoallw, c->send, LIST(c->s, counts), LIST(c->s, bytes), c->s.types,       \
	  c->recv, LIST(c->r, counts), LIST(c->r, bytes), c->r.types, c->comm)                     \
	X(Reduce, Ireduce, REDUCED(c), c->root, c->comm)                                           \
	X(Allreduce, Iallreduce, REDUCED(c), c->comm)                                              \
	X(Reduce_scatter, Ireduce_scatter, c->send, c->recv, LIST(c->r, counts), c->type, c->op,   \
	  c->comm)                                                                                 \
	X(Reduce_scatter_block, Ireduce_scatter_block, REDUCED(c), c->comm)                        \
	X(Scan, Iscan, REDUCED(c), c->comm)                                                        \
	X(Exscan, Iexscan, REDUCED(c), c->comm)                                                    \
	X(Neighbor_allgather, Ineighbor_allgather, MOVED(c), c->comm)                              \
	X(Neighbor_allgatherv, Ineighbor_allgatherv, SENT_ONE(c), GOT_LIST(c), c->comm)            \
	X(Neighbor_alltoall, Ineighbor_alltoall, MOVED(c), c->comm)                                \
	X(Neighbor_alltoallv, Ineighbor_alltoallv, SENT_LIST(c), GOT_LIST(c), c->comm)             \
	X(Neighbor_alltoallw, Ineighbor_alltoallw, c->send, LIST(c->s, counts), c->s.bytes_c,      \
	  c->s.types, c->recv, LIST(c->r, counts), c->r.bytes_c, c->r.types, c->comm)

#define X(name, iname, ...) name,
enum kind { COLLECTIVES(X) KINDS };
#undef X

static inline bool is_reduce(enum kind k) { return k >= Reduce && k <= Exscan; }
static inline bool is_neighbours(enum kind k) { return k >= Neighbor_allgather; }
static inline bool has_root(enum kind k) { return k <= Scatterv || k == Reduce; }
static inline bool has_lists(enum kind k)
{
	return k == Gatherv || k == Scatterv || k == Allgatherv || k == Alltoallv ||
	       k == Alltoallw || k == Reduce_scatter || k == Neighbor_allgatherv ||
	       k >= Neighbor_alltoallv;
}

static inline const char *kind_name(enum kind k)
{
#define X(name, iname, ...) #name,
	static const char *const names[] = { COLLECTIVES(X) };
#undef X
	return names[k];
}

/* ---- the library's own ------------------------------------------------------------------- */

#define X(name, iname, ...) __typeof__(MPI_##name) *name;
static struct { COLLECTIVES(X) } host;
#undef X

/* Whatever is loaded before the MPI library is not asked. */
static int find_host(struct dl_phdr_info *object, size_t size_, void *out)
{
	const char *name = strrchr(object->dlpi_name, '/');
	void *handle;

	(void)size_;
	if (!name || strncmp(name, "/libmpi", 7))
		return 0;
	handle = dlopen(object->dlpi_name, RTLD_LAZY | RTLD_NOLOAD);
	if (!handle || !dlsym(handle, "PMPI_Ibcast"))
		return 0;
	*(void **)out = handle;
	return 1;
}

static inline void host_find(void)
{
	void *handle = NULL;

	if (host.Bcast)
		return;
	dl_iterate_phdr(find_host, &handle);
	if (!handle) {
		check_fail("no MPI library is loaded");
		MPI_Abort(MPI_COMM_WORLD, 4);
	}
#define X(name, iname, ...) host.name = (__typeof__(host.name))dlsym(handle, "PMPI_" #name);
	COLLECTIVES(X)
#undef X
}

#define LIST(l, what) (l).what
static inline int call_host(enum kind kind, const struct call *c)
{
	switch (kind) {
#define X(name, iname, ...) case name: return host.name(__VA_ARGS__);
	COLLECTIVES(X)
#undef X
	case KINDS:;
	}
	return -1;
}

/* ---- every form -------------------------------------------------------------------------- */

enum form { BLOCKING, NONBLOCKING, PERSISTENT, BLOCKING_C, NONBLOCKING_C, FORMS };

#define HAS_COUNT_FORMS (MPI_VERSION >= 4)
#ifdef OMPI_MAJOR_VERSION
#define HAS_PERSISTENT (OMPI_MAJOR_VERSION >= 5)
#elif defined(I_MPI_VERSION)
#define HAS_PERSISTENT 0 /* 2021.18's are wrong: an unmodified MPI_Gather_init receives nothing */
#else
#define HAS_PERSISTENT (MPI_VERSION >= 4)
#endif

static inline bool has_form(enum form form)
{
	return form < PERSISTENT || (form == PERSISTENT ? HAS_PERSISTENT : HAS_COUNT_FORMS);
}

static inline void call_blocking(enum kind kind, const struct call *c)
{
	switch (kind) {
#define X(name, iname, ...) case name: MPI_##name(__VA_ARGS__); break;
	COLLECTIVES(X)
#undef X
	case KINDS:;
	}
}

static inline void call_nonblocking(enum kind kind, const struct call *c, MPI_Request *request)
{
	switch (kind) {
#define X(name, iname, ...) case name: MPI_##iname(__VA_ARGS__, request); break;
	COLLECTIVES(X)
#undef X
	case KINDS:;
	}
}

#if HAS_PERSISTENT
static inline void call_init(enum kind kind, const struct call *c, MPI_Request *request)
{
	switch (kind) {
#define X(name, iname, ...)                                                                        \
	case name:                                                                                 \
		MPI_##name##_init(__VA_ARGS__, MPI_INFO_NULL, request);                            \
		break;
		COLLECTIVES(X)
#undef X
	case KINDS:;
	}
}

#else
static inline void call_init(enum kind kind, const struct call *c, MPI_Request *request) { }
#endif

#if HAS_COUNT_FORMS
#undef LIST
#define LIST(l, what) (l).what##_c
static inline void call_blocking_c(enum kind kind, const struct call *c)
{
	switch (kind) {
#define X(name, iname, ...) case name: MPI_##name##_c(__VA_ARGS__); break;
	COLLECTIVES(X)
#undef X
	case KINDS:;
	}
}

static inline void call_nonblocking_c(enum kind kind, const struct call *c, MPI_Request *request)
{
	switch (kind) {
#define X(name, iname, ...) case name: MPI_##iname##_c(__VA_ARGS__, request); break;
	COLLECTIVES(X)
#undef X
	case KINDS:;
	}
}
#else
static inline void call_blocking_c(enum kind kind, const struct call *c) { }
static inline void call_nonblocking_c(enum kind kind, const struct call *c, MPI_Request *request) {}
#endif

#endif
