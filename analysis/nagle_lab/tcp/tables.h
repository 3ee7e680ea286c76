/* Packed rows that wait to be taken, counts by key, and snapshots. -1 is returned where memory ran out. */
#ifndef NAGLE_LAB_TABLES_H
#define NAGLE_LAB_TABLES_H

#include <stdint.h>

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

typedef struct { /* the state between two files: written to a table, or read */
    table *to; /* NULL: it is read */
    const uint8_t *from;
    int64_t size; /* of what is read */
    int64_t at;
} snapshot;

/* The bits of a key, spread. */
static inline uint64_t mix(uint64_t x)
{
    x = (x ^ x >> 32) * 0x9FB21C651E98DF25ull;
    return (x ^ x >> 29) * 0xD6E8FEB86659FD93ull;
}

int table_add(table *t, const void *row, int64_t size);
int counted_add(counted *c, int64_t key, int64_t count);
int counted_pass(counted *c, snapshot *s);
void counted_free(counted *c);
/* Writes bytes to the snapshot, or reads them from it, in the same order. -1 also at its end. */
int snapshot_pass(snapshot *s, void *bytes, int64_t size);

#endif
