/* The machine, and the tables that its rows and counts go to. */
#ifndef NAGLE_LAB_MACHINE_H
#define NAGLE_LAB_MACHINE_H

#include "live.h"
#include "programs.h"

/* In the order of TABLES in layout.py, and last an engine's snapshot. */
enum { CANDIDATE, NO_WAIT, REACTION, DELAYED_ACK, IDLE_GAP, EXCHANGE, CONNECTION, SEGMENT, SNAPSHOT, TABLES };
enum { TO_ACK, TO_RESPONSE, TOTAL, DURATIONS };

enum { REMEMBERED = 128 };

typedef struct { /* what one host sent to another */
    int64_t ts;
    int64_t connection;
    uint8_t hosts[32];
    int has_data;
} passed;

typedef struct {
    counters counters;
    int list_exchanges;
    table tables[TABLES];
    counted durations[DURATIONS];
    programs programs;
    struct { /* Machine._ends, by port */
        int64_t first;
        int64_t count;
        int64_t place; /* of the first in the blocks, while it is live: see live.h; NONE not known */
    } ends[65536];
    passed latest[REMEMBERED];
    uint64_t n_passed;
    live live;
    int64_t until_sweep;
    int64_t latest_asking;
} machine;

void machine_init(machine *m);
void machine_free(machine *m);
int machine_follow(machine *m, const segment *s);
int machine_finish(machine *m);
int machine_pass(machine *m, snapshot *s);

#endif
