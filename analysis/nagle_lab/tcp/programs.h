/* Numbers of programs, by address and port, from 0 in the order of their first connection with candidates. */
#ifndef NAGLE_LAB_PROGRAMS_H
#define NAGLE_LAB_PROGRAMS_H

#include "live.h"

typedef struct {
    uint8_t (*key)[18];
    int32_t *number; /* -1: an empty slot */
    int32_t (*sampled)[2][REACTIONS]; /* rows of each program's own reactions, and of its peers' */
    int64_t slots;
    int32_t used;
} programs;

/* The number of one, new or not; -1: memory ran out. */
int32_t program_of(programs *p, const uint8_t *address, uint16_t port);
int programs_pass(programs *p, snapshot *s);
void programs_free(programs *p);

#endif
