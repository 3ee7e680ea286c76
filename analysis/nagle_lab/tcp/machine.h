/* The machine, and the tables that its rows and counts go to. */
#ifndef NAGLE_LAB_MACHINE_H
#define NAGLE_LAB_MACHINE_H

#include "../packet/segment.h"
#include "engine.h"

/* In the order of TABLES in native.py, and last an engine's snapshot. */
enum { CANDIDATE, UNHELD, REACTION, LATE_ACK, IDLE_GAP, EXCHANGE, CONNECTION, SEGMENT, SNAPSHOT, TABLES };
enum { TO_ACK, TO_RESPONSE, TOTAL, DURATIONS };
enum { HANDSHAKE, BY_ACK, BY_DATA, RELEASE, REACTIONS }; /* Reaction in machine.py */

typedef struct { /* packed rows that wait to be taken */
    uint8_t *bytes;
    int64_t size;
    int64_t room;
} table;

typedef struct { /* how often each key occurred; open addressing, a count of 0 is an empty slot */
    int64_t *key;
    int64_t *count;
    int64_t slots;
    int64_t used;
} counted;

typedef struct flow flow; /* a live connection; see machine.c */

enum { LATEST = 128 };

typedef struct { /* what one host sent to another */
    int64_t ts;
    int64_t connection;
    uint8_t hosts[32];
    int has_data;
} passed;

typedef struct { /* numbers of programs, by address and port */
    uint8_t (*key)[18];
    int32_t *number; /* -1: an empty slot */
    int32_t (*sampled)[2][REACTIONS]; /* of each program: rows of its own reactions, and of its peers' */
    int64_t slots;
    int32_t used;
} programs;

typedef struct {
    counters counters;
    int list_exchanges;
    table tables[TABLES];
    counted durations[DURATIONS];
    programs programs;
    passed latest[LATEST];
    uint64_t n_passed;
    flow **blocks; /* of live connections */
    int64_t n_blocks;
    uint32_t *slots; /* of the table of live connections: number in the blocks plus 1; 0 empty */
    int64_t n_slots;
    int64_t live;
    uint32_t free_list;
    uint32_t oldest; /* of the live ones, in order of appearance */
    uint32_t newest;
    int64_t until_sweep;
} machine;

typedef struct { /* what is known between two files: written to a table, or read */
    table *to; /* NULL: it is read */
    const uint8_t *from;
    int64_t size; /* of what is read */
    int64_t at;
} snapshot;

void machine_init(machine *m);
void machine_free(machine *m);
int machine_follow(machine *m, const segment *s);
int machine_finish(machine *m);
int machine_pass(machine *m, snapshot *s);

/* The bits of a key, spread. */
static inline uint64_t mix(uint64_t x)
{
    x = (x ^ x >> 32) * 0x9FB21C651E98DF25ull;
    return (x ^ x >> 29) * 0xD6E8FEB86659FD93ull;
}

/* tables.c */
int table_add(machine *m, int which, const void *row, int64_t size);
int counted_add(counted *c, int64_t key, int64_t count);
int counted_pass(counted *c, snapshot *s);
void counted_free(counted *c);
int snapshot_pass(snapshot *s, void *bytes, int64_t size);

#endif
