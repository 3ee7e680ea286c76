/* What the parts of the compiled engine know of each other: capture/records.c, packet/segment.c, tcp/machine.c. */
#ifndef NAGLE_LAB_ENGINE_INTERNAL_H
#define NAGLE_LAB_ENGINE_INTERNAL_H

#include "engine.h"

/* In the order of TABLES in native.py. */
enum { CANDIDATE, LATE_ACK, IDLE_GAP, EXCHANGE, CONNECTION, SEGMENT, TABLES };
enum { TO_ACK, TO_RESPONSE, TOTAL, DURATIONS };

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

enum { STRAY = 8 }; /* see capture/clock.py */

typedef struct { /* how far the time of one interface has come; _Interface in capture/clock.py */
    int64_t high;
    int64_t ahead[STRAY + 1]; /* a ring, `latest` the newest of them */
    int64_t behind[STRAY + 1];
    int64_t first_behind;
    int32_t latest;
    int32_t n_ahead;
    int32_t n_behind;
} watched;

typedef struct {
    watched **interfaces; /* by number, from `first` on; NULL: nothing was captured there */
    int64_t first;
    int64_t room;
    int64_t last_ts;
    int has_last;
    int in_file; /* a packet of this file was seen */
} clock_state;

typedef struct flow flow; /* a live connection; see machine.c */

typedef struct { /* numbers of programs, by address and port */
    uint8_t (*key)[18];
    int32_t *number; /* -1: an empty slot */
    int64_t slots;
    int32_t used;
} programs;

typedef struct {
    counters counters;
    int failed; /* memory ran out */
    int list_exchanges;
    int collecting;
    int any_ends;
    uint8_t ends[36]; /* address and address, port and port, as on the wire */
    int64_t first_frame;
    int64_t last_frame;
    clock_state clock;
    table tables[TABLES];
    counted durations[DURATIONS];
    counted not_decoded;
    programs programs;
    flow **blocks; /* of live connections */
    int64_t n_blocks;
    uint32_t *slots; /* of the table of live connections: number in the blocks plus 1; 0 empty */
    int64_t n_slots;
    int64_t live;
    uint32_t free_list;
    uint32_t oldest; /* of the live ones, in order of appearance */
    uint32_t newest;
    int64_t until_sweep;
} engine;

/* records.c */
void clock_new_file(clock_state *clock);
int64_t take_pcap(engine *e, const uint8_t *buffer, int64_t at, int64_t end, int big_endian, int64_t header,
                  const interface_ *interface);
int64_t take_pcapng(engine *e, const uint8_t *buffer, int64_t at, int64_t end, int big_endian,
                    const interface_ *interfaces, int64_t count);

/* segment.c: the TCP segment in a packet; returns -1, or the kind of what there is instead */
int64_t decode(const uint8_t *buffer, int64_t at, int64_t captured, int64_t original, int32_t link_type, segment *s);

/* machine.c */
void machine_init(engine *e);
void machine_free(engine *e);
int machine_follow(engine *e, const segment *s);
int machine_finish(engine *e);

/* engine.c */
int table_add(engine *e, int which, const void *row, int64_t size);
int counted_add(counted *c, int64_t key, int64_t count);
uint64_t mix(uint64_t x);

#endif
