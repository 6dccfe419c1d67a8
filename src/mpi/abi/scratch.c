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

static void note_error(void *comm, int *code, ...) { scratch_error = *code; }

int scratch_silence(MPI_Comm comm)
{
	MPI_Errhandler errhandler = NULL;
	int rc = host.Comm_create_errhandler(note_error, &errhandler);

	if (rc)
		return rc;
	rc = host.Comm_set_errhandler(comm, errhandler);
	host.Errhandler_free(&errhandler);
	return rc;
}

int scratch_copy_of(MPI_Comm comm, int tag, MPI_Comm *out)
{
	MPI_Group group = NULL;
	int rc = host.Comm_group(comm, &group);

	if (rc)
		return rc;
	*out = NULL;
	rc = host.Comm_create_group(comm, group, tag, out);
	host.Group_free(&group);
	return rc;
}

static int make_locked(void)
{
	enum { TAG = 0x51c }; /* unique tag of this call on MPI_COMM_SELF */

	/* not MPI_Comm_dup(): other threads may use MPI_COMM_SELF */
	if (scratch_copy_of(abi.comm_self, TAG, &scratch.comm))
		return -EIO;
	if (scratch_silence(scratch.comm)) {
		host.Comm_free(&scratch.comm);
		return -EIO;
	}
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
