/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * A lane of persistent collectives: src/rt/request/lanes.c, src/exec. Its turns are one slot's, so
 * that a rank which runs ahead writes over what a late one has not seen at once, not a whole turn
 * of the slots later.
 */
#define SLOTS 1
#include "slots.pml"
