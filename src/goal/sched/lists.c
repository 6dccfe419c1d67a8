/* SPDX-License-Identifier: BSD-3-Clause */
/* Doubly linked lists of operations, by reference instead of pointer. Context: under the claim. */
#include "goal/sched/private.h"

void list_push(struct sched_driver *d, struct sched_list *l, sched_opref ref, struct sched_op *op)
{
	struct sched_inst *s;
	struct sched_op *last = l->tail ? op_at(d, l->tail, &s) : NULL;

	op->next = 0;
	op->prev = l->tail;
	if (last)
		last->next = ref;
	else
		l->head = ref;
	l->tail = ref;
}

void list_remove(struct sched_driver *d, struct sched_list *l, struct sched_op *op)
{
	struct sched_inst *s;
	struct sched_op *prev = op->prev ? op_at(d, op->prev, &s) : NULL;
	struct sched_op *next = op->next ? op_at(d, op->next, &s) : NULL;

	if (prev)
		prev->next = op->next;
	else
		l->head = op->next;
	if (next)
		next->prev = op->prev;
	else
		l->tail = op->prev;
	op->next = op->prev = 0;
}

sched_opref list_pop(struct sched_driver *d, struct sched_list *l)
{
	struct sched_inst *s;
	sched_opref ref = l->head;
	struct sched_op *op = ref ? op_at(d, ref, &s) : NULL;

	if (!op) {
		l->head = l->tail = 0;
		return 0;
	}
	list_remove(d, l, op);
	return ref;
}
