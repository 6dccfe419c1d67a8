/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * The line of a Python program behind a call of MPI: that of the thread's top frame, as mpi4py has
 * no frames of its own. Only Python's public functions are used, which need its lock. mpi4py has
 * given the lock back before it calls MPI. Sluice takes the lock only where the program has one
 * Python thread: no other can hold it, so nobody waits.
 */
#include <dlfcn.h>
#include <string.h>

#include "trace/private.h"

#define PYTHON_FUNCTIONS(X) \
	X(int, Py_IsInitialized, (void)) \
	X(void *, PyGILState_GetThisThreadState, (void)) \
	X(int, PyGILState_Ensure, (void)) \
	X(void, PyGILState_Release, (int)) \
	X(void *, PyThreadState_GetInterpreter, (void *)) \
	X(void *, PyInterpreterState_ThreadHead, (void *)) \
	X(void *, PyThreadState_Next, (void *)) \
	X(void *, PyThreadState_GetFrame, (void *)) \
	X(int, PyFrame_GetLineNumber, (void *)) \
	X(void *, PyFrame_GetCode, (void *)) \
	X(void *, PyObject_GetAttrString, (void *, const char *)) \
	X(const char *, PyUnicode_AsUTF8, (void *)) \
	X(void, PyErr_Clear, (void)) \
	X(void, Py_DecRef, (void *))

/* Set before any call, by the first thread that asks; several threads find the same. */
static struct {
#define X(ret, name, args) ret (*name) args;
	PYTHON_FUNCTIONS(X)
#undef X
} py;

/* The path of the only thread that Python has (is_only_thread()). Not thread-local, as static TLS
 * is scarce: with LD_AUDIT, ld.so leaves a library some 1.7 KiB. */
static char python_path[sizeof ((struct trace_module *)0)->path];

bool python_find(void)
{
	void *found;
	bool all = true;

	/* an earlier Python lacks PyThreadState_GetFrame */
#define X(ret, name, args)                                \
	found = dlsym(RTLD_DEFAULT, #name);               \
	memcpy(&py.name, &found, sizeof found);           \
	all &= found != NULL;
	PYTHON_FUNCTIONS(X)
#undef X
	return all;
}

static bool is_only_thread(void *thread)
{
	void *first = py.PyInterpreterState_ThreadHead(py.PyThreadState_GetInterpreter(thread));

	return first == thread && !py.PyThreadState_Next(first);
}

/* Copies the file of a frame to python_path. Returns: false: unknown. Context: holds the lock. */
static bool copy_path(void *frame)
{
	void *code = py.PyFrame_GetCode(frame);
	void *name = code ? py.PyObject_GetAttrString(code, "co_filename") : NULL;
	const char *text = name ? py.PyUnicode_AsUTF8(name) : NULL;

	size_t bytes = text ? strlen(text) + 1 : 0;

	if (bytes > sizeof python_path)
		snprintf(python_path, sizeof python_path, "%s", text + bytes - sizeof python_path);
	else if (text)
		snprintf(python_path, sizeof python_path, "%s", text);
	else
		py.PyErr_Clear();
	py.Py_DecRef(name); /* ignores NULL */
	py.Py_DecRef(code);
	return text;
}

static uint64_t base_of_path(void)
{
	uint64_t h = base_hash(BASE_HASH_START, python_path, strlen(python_path));

	return TRACE_SOURCE_BASE | (h & ~(uint64_t)TRACE_SOURCE_LINES);
}

const void *python_caller(void)
{
	void *thread = py.Py_IsInitialized() ? py.PyGILState_GetThisThreadState() : NULL, *frame;
	uint64_t address = 0;
	int lock, line;

	if (!thread || !is_only_thread(thread))
		return NULL;
	lock = py.PyGILState_Ensure();
	frame = py.PyThreadState_GetFrame(thread);
	line = frame ? py.PyFrame_GetLineNumber(frame) : 0;
	if (line > 0 && (uint64_t)line <= TRACE_SOURCE_LINES && copy_path(frame))
		address = base_of_path() | (uint64_t)line;
	py.Py_DecRef(frame);
	py.PyGILState_Release(lock);
	return (const void *)(uintptr_t)address;
}

const char *python_last_path(void) { return python_path; }
