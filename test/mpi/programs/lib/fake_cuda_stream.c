/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Contexts and streams of the libcuda.so.1 of the tests. Each rule is one of NVIDIA's "CUDA Driver
 * API" (section) unless another source is named:
 *
 *   a thread has a current context or none; most calls need one           Context Management
 *   cuCtxGetId: numbers of contexts are unique for the life of a process  Context Management
 *   copies of a stream run in order, after the call has returned          Stream Management
 *   cuMemcpyDtoD does not wait for its copy either                        API sync. behavior
 *   a stream of CU_STREAM_NON_BLOCKING does not wait for the default one  Stream sync. behavior
 *   the default stream may not be used while a graph is captured; to ask
 *   whether that is so does no harm                                       cuStreamIsCapturing
 *
 * A stream whose wait fails has lost its copies. To show a wait that is missing, copies are late: a
 * thread for each stream makes them, those of the default stream more than a millisecond later.
 */
#ifndef _GNU_SOURCE
#define _GNU_SOURCE
#endif
#include <pthread.h>
#include <string.h>
#include <unistd.h>

#include "fake_cuda.h"

enum { CONTEXTS = 8, STREAMS = 8, COPIES = 1024, LATE_US = 50, VERY_LATE_US = 1500 };
enum { NON_BLOCKING = 1 };
#define LEGACY ((void *)1)

struct context {
	unsigned long long id;
	int is_live;
};
struct stream {
	struct context *context; /* NULL: unused */
	int is_default, has_thread;
	_Atomic int is_spoiled; /* its copies fail: they write anything, and late */
	struct copy {
		uintptr_t dst, src;
		size_t bytes;
	} copies[COPIES];
	unsigned begun, ended; /* of all copies */
};

static struct context contexts[CONTEXTS];
static struct stream streams[STREAMS] = { { .is_default = 1 } };
static __thread struct context *current;
static unsigned long long last_id;
static int is_capturing;
static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static pthread_cond_t changed = PTHREAD_COND_INITIALIZER;

/* ---- contexts ----------------------------------------------------------------------------- */

struct context *fake_current(void) { return current && current->is_live ? current : NULL; }

int cuCtxCreate_v2(void **out, unsigned flags, int device)
{
	struct context *c = contexts;
	int rc = fake_begin("cuCtxCreate");

	if (rc || device)
		return rc ? rc : INVALID_VALUE;
	while (c->id)
		c++;
	*c = (struct context){ ++last_id, 1 };
	*out = current = c;
	return OK;
}

int cuCtxDestroy_v2(struct context *c)
{
	int rc = fake_begin("cuCtxDestroy");

	if (!rc)
		c->is_live = 0;
	return rc;
}

int cuCtxSetCurrent(struct context *c)
{
	current = c;
	return OK;
}

int cuCtxGetCurrent(void **out)
{
	int rc = fake_begin("cuCtxGetCurrent");

	*out = rc ? NULL : fake_current();
	return rc;
}

int cuCtxGetId(struct context *c, unsigned long long *out)
{
	int rc = fake_begin("cuCtxGetId");

	if (rc || !c || !c->is_live)
		return rc ? rc : INVALID_CONTEXT;
	*out = c->id;
	return OK;
}

int cuCtxGetDevice(int *out)
{
	int rc = fake_begin("cuCtxGetDevice");

	*out = 0;
	return rc ? rc : fake_current() ? OK : INVALID_CONTEXT;
}

/* ---- streams ------------------------------------------------------------------------------ */

static void copy_now(const struct copy *c, int is_spoiled)
{
	char *dst = fake_real(c->dst, c->bytes, 0), *src = fake_real(c->src, c->bytes, 0);

	if (!dst || !src)
		fake_die("a copy runs whose memory has been freed");
	if (is_spoiled)
		memset(dst, 0xee, c->bytes);
	else
		memcpy(dst, src, c->bytes);
}

static void *run(void *arg)
{
	struct stream *s = arg;

	pthread_mutex_lock(&lock);
	for (;;) {
		while (s->begun == s->ended)
			pthread_cond_wait(&changed, &lock);
		pthread_mutex_unlock(&lock);
		usleep(s->is_default || s->is_spoiled ? VERY_LATE_US : LATE_US);
		copy_now(&s->copies[s->ended % COPIES], s->is_spoiled);
		pthread_mutex_lock(&lock);
		if (++s->ended == s->begun)
			s->is_spoiled = 0;
		pthread_cond_broadcast(&changed);
	}
	return NULL;
}

static void enqueue(struct stream *s, const struct copy *c)
{
	pthread_t thread;

	pthread_mutex_lock(&lock);
	if (!s->has_thread && pthread_create(&thread, NULL, run, s))
		fake_die("no thread");
	s->has_thread = 1;
	while (s->begun - s->ended == COPIES)
		pthread_cond_wait(&changed, &lock);
	s->copies[s->begun++ % COPIES] = *c;
	pthread_cond_broadcast(&changed);
	pthread_mutex_unlock(&lock);
}

static void wait_for(struct stream *s)
{
	pthread_mutex_lock(&lock);
	while (s->begun != s->ended)
		pthread_cond_wait(&changed, &lock);
	pthread_mutex_unlock(&lock);
}

int fake_is_busy(uintptr_t p, size_t bytes)
{
	int is = 0;

	pthread_mutex_lock(&lock);
	for (struct stream *s = streams; s < streams + STREAMS; s++)
		for (unsigned i = s->ended; i != s->begun; i++) {
			const struct copy *c = &s->copies[i % COPIES];

			is |= (c->dst < p + bytes && p < c->dst + c->bytes) ||
			      (c->src < p + bytes && p < c->src + c->bytes);
		}
	pthread_mutex_unlock(&lock);
	return is;
}

/* Returns: the stream of a handle in the current context, or NULL. */
static struct stream *stream_of(void *handle)
{
	struct stream *s = handle == LEGACY || !handle ? streams : handle;

	return s == streams || s->context == current ? s : NULL;
}

int cuStreamCreate(void **out, unsigned flags)
{
	struct stream *s = streams + 1;
	int rc = fake_begin("cuStreamCreate");

	if (rc || !fake_current())
		return rc ? rc : INVALID_CONTEXT;
	if (flags != NON_BLOCKING)
		fake_die("a stream that blocks is not simulated");
	while (s->context)
		s++;
	s->context = current;
	*out = s;
	return OK;
}

void fake_cuda_capture(int is) { is_capturing = is; }

int cuStreamIsCapturing(void *stream, int *out)
{
	int rc = fake_begin("cuStreamIsCapturing");

	*out = 0;
	return rc || !is_capturing ? rc : CAPTURE_IMPLICIT;
}

int cuStreamSynchronize(void *stream)
{
	int rc = fake_begin("cuStreamSynchronize");
	struct stream *s = stream_of(stream);

	if (rc && s && !s->is_default)
		s->is_spoiled = 1;
	if (rc || !fake_current() || !s)
		return rc ? rc : fake_current() ? INVALID_HANDLE : INVALID_CONTEXT;
	if (is_capturing && s->is_default)
		fake_die("the capture of a graph has been ended");
	wait_for(s);
	return OK;
}

int cuCtxSynchronize(void)
{
	for (struct stream *s = streams; s < streams + STREAMS; s++)
		wait_for(s);
	return OK;
}

/* ---- copies ------------------------------------------------------------------------------- */

int cuMemcpyAsync(uintptr_t dst, uintptr_t src, size_t bytes, void *stream)
{
	int rc = fake_begin("cuMemcpyAsync");
	struct stream *s = stream_of(stream);

	if (rc || !fake_current() || !s)
		return rc ? rc : fake_current() ? INVALID_HANDLE : INVALID_CONTEXT;
	if (!fake_real(dst, bytes, 0) || !fake_real(src, bytes, 0))
		return INVALID_VALUE;
	enqueue(s, &(struct copy){ dst, src, bytes });
	return OK;
}

int cuMemcpyDtoD_v2(uintptr_t dst, uintptr_t src, size_t bytes)
{
	if (!fake_real(dst, bytes, 0) || !fake_real(src, bytes, 0))
		return INVALID_VALUE;
	enqueue(streams, &(struct copy){ dst, src, bytes });
	return OK;
}

static int copy_and_wait(uintptr_t dst, uintptr_t src, size_t bytes)
{
	char *to = fake_real(dst, bytes, 1), *from = fake_real(src, bytes, 1);

	if (!to || !from)
		return INVALID_VALUE;
	wait_for(streams);
	memcpy(to, from, bytes);
	return OK;
}
int cuMemcpyHtoD_v2(uintptr_t dst, const void *src, size_t bytes)
{
	return copy_and_wait(dst, (uintptr_t)src, bytes);
}
int cuMemcpyDtoH_v2(void *dst, uintptr_t src, size_t bytes)
{
	return copy_and_wait((uintptr_t)dst, src, bytes);
}
