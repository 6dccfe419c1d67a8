/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Which message a receive got. A receive whose source is known takes the first message of that
 * source that fits and no receive before it took, as MPI requires. One from any source takes the
 * message that was sent first, which is a guess.
 */
#include <stdlib.h>

#include "trace_liballprof.h"

struct message {
	double sent_us;
	uint64_t bytes;
	int32_t tag;
	bool is_received;
};

/* Messages of one rank for another in one communicator, in order. All before `first` are taken. */
struct channel {
	uint32_t src, dst, comm;
	uint32_t next; /* 1 + index of another channel for the same rank in this communicator */
	size_t first;
	TRACE_ARRAY(struct message, all);
};

struct lap_sends {
	struct messages_numbers channel_numbers, inbox_numbers;
	TRACE_ARRAY(struct channel, channels);
	TRACE_ARRAY(uint32_t, inboxes); /* 1 + index of a channel */
};

struct lap_sends *lap_sends_create(void) { return trace_alloc(sizeof(struct lap_sends)); }

void lap_sends_free(struct lap_sends *s)
{
	for (size_t i = 0; i < s->channels_count; i++)
		free(s->channels[i].all);
	free(s->channels);
	free(s->inboxes);
	free(s->channel_numbers.all);
	free(s->inbox_numbers.all);
	free(s);
}

static uint32_t *inbox_of(struct lap_sends *s, uint32_t dst, uint32_t comm)
{
	uint32_t number = messages_number_of(&s->inbox_numbers, dst, comm);

	if (number > s->inboxes_count)
		TRACE_ADD(s, inboxes);
	return &s->inboxes[number - 1];
}

static struct channel *channel_of(struct lap_sends *s, uint32_t src, uint32_t dst, uint32_t comm)
{
	uint32_t number = messages_number_of(&s->channel_numbers, (uint64_t)src << 32 | dst, comm);

	if (number > s->channels_count) {
		struct channel *new = TRACE_ADD(s, channels);
		uint32_t *inbox = inbox_of(s, dst, comm);

		*new = (struct channel){ .src = src, .dst = dst, .comm = comm, .next = *inbox };
		*inbox = number;
	}
	return &s->channels[number - 1];
}

void lap_send(struct lap *l, const struct lap_comm *c, const struct messages_record *r)
{
	struct channel *channel = channel_of(l->sends, l->now.number, (uint32_t)r->peer, c->name);

	*TRACE_ADD(channel, all) = (struct message){ .sent_us = l->now.ended_us - l->now.begun_us,
						     .bytes = r->bytes,
						     .tag = r->tag };
}

void lap_sends_restart(struct lap *l, uint32_t rank)
{
	struct lap_sends *s = l->sends;

	for (size_t i = 0; i < s->channels_count; i++)
		if (s->channels[i].dst == rank) {
			s->channels[i].first = 0;
			for (size_t j = 0; j < s->channels[i].all_count; j++)
				s->channels[i].all[j].is_received = false;
		}
}

static struct message *first_fit(struct channel *c, int32_t tag)
{
	while (c->first < c->all_count && c->all[c->first].is_received)
		c->first++;
	for (size_t i = c->first; i < c->all_count; i++)
		if (!c->all[i].is_received && (tag < 0 || c->all[i].tag == tag))
			return &c->all[i];
	return NULL;
}

bool lap_match(struct lap *l, const struct lap_comm *c, struct messages_record *r)
{
	struct lap_sends *s = l->sends;
	struct message *found = NULL;

	if (r->peer != MESSAGES_ANY) {
		found = first_fit(channel_of(s, (uint32_t)r->peer, l->now.number, c->name), r->tag);
	} else {
		uint32_t next = *inbox_of(s, l->now.number, c->name);

		for (; next; next = s->channels[next - 1].next) {
			struct message *m = first_fit(&s->channels[next - 1], r->tag);

			if (m && (!found || m->sent_us < found->sent_us))
				found = m;
		}
	}
	if (!found)
		return false;
	found->is_received = true;
	r->tag = found->tag;
	r->bytes = found->bytes;
	return true;
}
