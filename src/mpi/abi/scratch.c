/* SPDX-License-Identifier: BSD-3-Clause */
/* A communicator of this process alone, which ignores errors. */
#include <errno.h>
#include <pthread.h>

#include "mpi/abi/abi.h"

__thread int scratch_error __attribute__((tls_model("initial-exec")));

/* A separate lock: Sluice holds it while making the communicator, and the host MPI may hold
 * locks of its own when it calls delete_comm(). */
static struct {
	pthread_mutex_t lock;
	bool is_made, is_freed;
	MPI_Comm comm;
	pthread_mutex_t turn; /* held while a thread communicates on comm */
} scratch = { .lock = PTHREAD_MUTEX_INITIALIZER, .turn = PTHREAD_MUTEX_INITIALIZER };

void scratch_note_error(void *comm, int *code, ...)
{
	scratch_error = *code;
}

static int make_locked(void)
{
	enum { TAG = 0x51c }; /* unique tag of this call on MPI_COMM_SELF */
	MPI_Errhandler errhandler = NULL;
	MPI_Group group = NULL;
	int rc;

	if (host.Comm_group(abi.comm_self, &group))
		return -EIO;
	/* unlike MPI_Comm_dup, this copies no attributes, and other threads may use
	 * MPI_COMM_SELF */
	rc = host.Comm_create_group(abi.comm_self, group, TAG, &scratch.comm);
	host.Group_free(&group);
	if (rc)
		return -EIO;
	if (host.Comm_create_errhandler(scratch_note_error, &errhandler)) {
		host.Comm_free(&scratch.comm);
		return -EIO;
	}
	host.Comm_set_errhandler(scratch.comm, errhandler);
	host.Errhandler_free(&errhandler);
	scratch.is_made = true;
	return 0;
}

int scratch_comm(MPI_Comm *out)
{
	int rc = 0;

	pthread_mutex_lock(&scratch.lock);
	bypass++;
	if (scratch.is_freed)
		rc = -ESHUTDOWN;
	else if (!scratch.is_made)
		rc = make_locked();
	*out = scratch.comm;
	bypass--;
	pthread_mutex_unlock(&scratch.lock);
	return rc;
}

void scratch_lock(void)
{
	pthread_mutex_lock(&scratch.turn);
	bypass++;
}

int scratch_unlock(int rc)
{
	pthread_mutex_unlock(&scratch.turn);
	return bypass_end(rc);
}

void scratch_free(void)
{
	pthread_mutex_lock(&scratch.lock);
	bypass++;
	if (scratch.is_made)
		host.Comm_free(&scratch.comm);
	scratch.is_made = false;
	scratch.is_freed = true;
	bypass--;
	pthread_mutex_unlock(&scratch.lock);
}
