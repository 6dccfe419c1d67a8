/* SPDX-License-Identifier: BSD-3-Clause */
/* Communicators: which world ranks their members have. A number is the rank's own; the reader finds
 * out which numbers of different ranks mean one communicator, by members and order of creation. */
#include <stdlib.h>
#include <string.h>

#include "mpi/record/record.h"

enum { BUCKETS = 256 };

static struct {
	struct record_comm *bucket[BUCKETS];
	uint32_t count;
	MPI_Group world;
} comms;

static struct record_comm **bucket_of(MPI_Comm comm)
{
	return &comms.bucket[((uintptr_t)comm * 0x9e3779b97f4a7c15u) >> 56];
}

static bool translate(MPI_Group group, int n, int32_t *out)
{
	int *all = malloc((size_t)n * sizeof *all + 1);
	bool ok = all;

	for (int i = 0; ok && i < n; i++)
		all[i] = i;
	ok = ok && !host.Group_translate_ranks(group, n, all, comms.world, out);
	free(all);
	return ok;
}

static MPI_Group remote_group(MPI_Comm comm)
{
	int (*get)(MPI_Comm, MPI_Group *) = record_host_function("PMPI_Comm_remote_group");
	MPI_Group group = NULL;

	return get && !get(comm, &group) ? group : NULL;
}

/* Describes the groups of a communicator: `c` gets the one that messages name, out_list (owner: the
 * caller) all members, in an order that both sides of an intercommunicator find. */
static bool describe(struct record_comm *c, int32_t **out_list, uint32_t *out_count)
{
	int inter = 0, local = 0, remote = 0;
	MPI_Group group = NULL;
	int32_t *list;

	if (host.Comm_test_inter(c->handle, &inter) || host.Comm_size(c->handle, &local) ||
	    host.Comm_rank(c->handle, &c->rank) ||
	    (inter && host.Comm_remote_size(c->handle, &remote)))
		return false;
	list = malloc(((size_t)local + 2 * (size_t)remote + 1) * sizeof *list);
	if (!list || host.Comm_group(c->handle, &group) || !translate(group, local, list)) {
		free(list);
		return false;
	}
	host.Group_free(&group);
	c->is_inter = inter;
	c->size = inter ? remote : local;
	if (inter) {
		group = remote_group(c->handle);
		if (!group || !translate(group, remote, list + local)) {
			free(list);
			return false;
		}
		host.Group_free(&group);
	}
	c->world = malloc((size_t)c->size * sizeof *list + 1);
	if (!c->world) {
		free(list);
		return false;
	}
	memcpy(c->world, list + (inter ? local : 0), (size_t)c->size * sizeof *list);
	if (inter && list[0] > list[local]) { /* the group of the lower first rank comes first */
		memcpy(list + local + remote, list + local, (size_t)remote * sizeof *list);
		memmove(list + remote, list, (size_t)local * sizeof *list);
		memcpy(list, list + local + remote, (size_t)remote * sizeof *list);
	}
	*out_list = list;
	*out_count = (uint32_t)(local + remote);
	return true;
}

static struct record_comm *comm_add(MPI_Comm comm)
{
	struct record_comm *c = calloc(1, sizeof *c), **bucket = bucket_of(comm);
	struct messages_record r = { .type = MESSAGES_COMM };
	int32_t *list;

	if (!c)
		return NULL;
	c->handle = comm;
	if (!describe(c, &list, &r.count)) {
		free(c);
		return NULL;
	}
	r.id = c->number = comms.count++;
	record_put(&r, list, r.count * sizeof *list);
	free(list);
	c->next = *bucket;
	*bucket = c;
	return c;
}

void record_comms_start(void)
{
	host.Comm_group(abi.comm_world, &comms.world);
	comm_add(abi.comm_world);
	comm_add(abi.comm_self);
}

struct record_comm *record_comm_of(MPI_Comm comm)
{
	for (struct record_comm *c = *bucket_of(comm); c; c = c->next)
		if (c->handle == comm)
			return c;
	return comm_add(comm);
}

int32_t record_world_rank(const struct record_comm *comm, int rank)
{
	return rank >= 0 && rank < comm->size ? comm->world[rank] : -1;
}

int32_t *record_group(MPI_Group group, int *out_count)
{
	int (*size)(MPI_Group, int *) = record_host_function("PMPI_Group_size");
	int32_t *world;

	if (!size || size(group, out_count))
		return NULL;
	world = malloc((size_t)*out_count * sizeof *world + 1);
	if (world && !translate(group, *out_count, world)) {
		free(world);
		return NULL;
	}
	return world;
}

static void forget(MPI_Comm comm)
{
	for (struct record_comm **at = bucket_of(comm), *c; (c = *at); at = &c->next)
		if (c->handle == comm) {
			*at = c->next;
			free(c->world);
			free(c);
			return;
		}
}

void record_comm_made(const void *comm)
{
	MPI_Comm handle = comm ? abi_handle_get(comm, 0) : abi.comm_null;

	if (handle == abi.comm_null)
		return;
	record_lock();
	forget(handle); /* its earlier owner was freed inside MPI */
	record_comm_of(handle);
	record_unlock();
}

void record_comm_freed(const void *comm)
{
	if (!comm)
		return;
	record_lock();
	forget(abi_handle_get(comm, 0));
	record_unlock();
}
