/* SPDX-License-Identifier: BSD-3-Clause */
/* Shared by the files of rt/ only. */
#ifndef SLUICE_RT_PRIVATE_H
#define SLUICE_RT_PRIVATE_H

#include "coll/coll.h"
#include "exec/exec.h"
#include "goal/goal.h"
#include "node/node.h"
#include "region/region.h"
#include "rt/policy.h"
#include "rt/rt.h"

struct rt_comm {
	struct node_group *group;
	struct exec_comm *exec;
	bool prefer_vm;
	/* work space for one schedule */
	struct goal_op *ops;
	struct goal_edge *edges;
	struct goal_block *block;
	size_t block_cap;
	/* packed forms of the send and the receive buffer */
	struct region_extent scratch[GOAL_MEMS - 1];
};

#endif
