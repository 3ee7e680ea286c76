/* The live connections, found by their ends and kept in order of appearance: the dictionaries of Machine in machine.py. */
#ifndef NAGLE_LAB_LIVE_H
#define NAGLE_LAB_LIVE_H

#include "connection.h"
#include "tables.h"

#define NONE UINT32_MAX

typedef struct {
    flow **blocks;
    int64_t n_blocks;
    uint32_t *slots; /* a hash table: number in the blocks plus 1, and AS_ANSWERS or not; 0 empty */
    int64_t n_slots;
    int64_t count;
    int64_t n_as_answers; /* slots */
    uint32_t free_list;
    uint32_t oldest;
    uint32_t newest;
} live;

void live_init(live *l);
void live_free(live *l);
flow *live_at(const live *l, uint32_t place);
/* The connection that a segment is of, and which side sent it; NULL: none. */
flow *live_find(const live *l, const segment *s, int *side);
/* A new one, all zeros, to be filled in and then listed; NULL: memory ran out. */
flow *live_new(live *l);
/* Makes it the newest of the live ones, found by its ends from now on. */
void live_list(live *l, flow *f);
/* From now on segments with this SYN-ACK's addresses and ports belong to its side 1; -1: memory ran out. */
int live_answers_as(live *l, flow *f, const segment *s);
/* It is no longer live; it can be read until the next new one. */
void live_remove(live *l, flow *f);
int live_pass(live *l, snapshot *s);

/* Which side of a connection sent the segment; -1: it is another connection's. */
int side_of(const flow *f, const segment *s);
/* Of an address and a port. */
uint64_t hash_end(const uint8_t *address, uint16_t port);

#endif
