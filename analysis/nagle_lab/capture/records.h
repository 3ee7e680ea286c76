/* Records of a capture. Structs that Python reads, too, are declared as in tcp/engine.h. */
#ifndef NAGLE_LAB_RECORDS_H
#define NAGLE_LAB_RECORDS_H

#include <stdint.h>

/* An interface of a capture: how its records are to be read; see Interface in capture/records.py. */
typedef struct {
    int64_t number;
    int64_t offset_ns;
    int32_t link_type;
    int32_t resolution;
} interface_;

enum { STRAY = 8 }; /* see clock.py */

typedef struct { /* the time of one interface so far; Watched in clock.py */
    int64_t high;
    int64_t ahead[STRAY + 1]; /* a ring; `latest` is the newest */
    int64_t behind[STRAY + 1];
    int64_t first_behind;
    int32_t latest;
    int32_t n_ahead;
    int32_t n_behind;
} watched;

typedef struct { /* the part of Clock that goes into a snapshot as it is */
    int64_t last_ts;
    int64_t epoch;
    int64_t set_back_frame; /* 0: it was not set back */
    int64_t set_back_by;
    int has_last;
    int in_file; /* a packet of this file was seen */
    int begins_before;
} clock_so_far;

typedef struct { /* Clock in clock.py; all zeros at first */
    watched **interfaces; /* by number, from `first` on; NULL: nothing was captured there */
    int64_t first;
    int64_t room;
    clock_so_far so_far;
} clock_state;

typedef struct { /* one captured packet, and where it lies in a window */
    const uint8_t *buffer;
    int64_t at;
    int64_t captured;
    int64_t original;
    int64_t frame;
    int64_t ts;
    int64_t epoch;
    const interface_ *interface;
} record;

typedef struct { /* who takes records, as Taker in take.py */
    int (*take)(void *of, const record *r); /* -1: memory ran out */
    void *of;
    clock_state *clock;
    int64_t *frames; /* so far */
} taker;

void clock_new_file(clock_state *clock);
void clock_free(clock_state *clock);
/* The state of an interface, which may be new; NULL: its section is over, or memory ran out. */
watched *clock_watched(clock_state *clock, int64_t interface, int *is_new);
int64_t take_pcap(const taker *to, const uint8_t *buffer, int64_t at, int64_t end, int big_endian, int64_t header,
                  const interface_ *interface);
int64_t take_pcapng(const taker *to, const uint8_t *buffer, int64_t at, int64_t end, int big_endian,
                    const interface_ *interfaces, int64_t count);

#endif
