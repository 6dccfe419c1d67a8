/* SPDX-License-Identifier: BSD-3-Clause */
/* A program that links libsluice-goal.so and no MPI: exit 0 when it could build a schedule. */
#include <sluice/goal.h>

int main(void)
{
	struct sluice_goal_schedule *s = 0;
	struct sluice_goal *g = 0;
	uint64_t bytes = 0;
	int ok;

	ok = !sluice_goal_create(0, &g) &&
	     sluice_goal_send(g, sluice_goal_user(0, 0), 8, 1, 0) == 0 &&
	     !sluice_goal_compile(g, 2, &s) && sluice_goal_data(s, &bytes) && bytes == 128;
	sluice_goal_schedule_destroy(s);
	sluice_goal_destroy(g);
	return !ok;
}
