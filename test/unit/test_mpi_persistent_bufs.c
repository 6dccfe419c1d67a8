/* SPDX-License-Identifier: BSD-3-Clause */
/* Buffers of persistent requests. */
#include "mpi/request/persistent_bufs.h"
#include "unit.h"

static uint64_t state = 11;

static int pick(int lo, int hi)
{
	state = state * 6364136223846793005u + 1442695040888963407u;
	return lo + (int)((state >> 33) % (uint64_t)(hi - lo + 1));
}

/* Against an array: puts, drops and looks in any order, handles that collide. */
UNIT_TEST(requests_are_found_whatever_came_and_went)
{
	enum { HANDLES = 3000 };
	static uintptr_t known[HANDLES], handles[HANDLES];

	memset(known, 0, sizeof(known));
	for (int i = 0; i < HANDLES; i++)
		handles[i] = ((uintptr_t)pick(0, 1 << 30) << 12) + (uintptr_t)i;
	for (int i = 0; i < 200000; i++) {
		uintptr_t handle = (uintptr_t)pick(0, HANDLES - 1), start = 0;
		uint64_t bytes, sent = 0;

		switch (pick(0, 3)) {
		case 0:
			known[handle] = (uintptr_t)i + 1;
			persistent_buf_set(handles[handle], known[handle], 1, known[handle] / 2);
			break;
		case 1:
			known[handle] = 0;
			persistent_buf_drop(handles[handle]);
			break;
		default:
			CHECK_EQ(persistent_buf_get(handles[handle], &start, &bytes, &sent),
				 known[handle] != 0);
			CHECK(start == known[handle]);
			CHECK_EQ(sent, known[handle] / 2);
		}
	}
	for (uintptr_t handle = 0; handle < HANDLES; handle++)
		persistent_buf_drop(handles[handle]);
}
