/* The engine's outside: made, fed with windows of a capture, emptied, freed. Python calls these through ctypes
 * (native.py). Returns of -1 mean that memory ran out. */
#include "engine_internal.h"

#include <stdlib.h>
#include <string.h>

#define API __attribute__((visibility("default")))

#ifndef SOURCE
#define SOURCE -1 /* unknown */
#endif

/* The CRC-32 of the sources as they were compiled, from set-up: a library of another day must not be used. */
API int64_t nagle_lab_source(void) { return SOURCE; }

/* How large the structs of engine.h are here, in the order of TABLES, then the interface's and the counters'. */
API int64_t nagle_lab_size_of(int which)
{
    static const int64_t sizes[] = {sizeof(candidate), sizeof(late_ack), sizeof(idle_gap), sizeof(exchange),
                                    sizeof(connection), sizeof(segment), sizeof(interface_), sizeof(counters)};
    return which >= 0 && which < (int)(sizeof sizes / sizeof *sizes) ? sizes[which] : -1;
}

API engine *nagle_lab_new(int list_exchanges)
{
    engine *e = calloc(1, sizeof *e);
    if (!e)
        return NULL;
    e->list_exchanges = list_exchanges;
    machine_init(e);
    return e;
}

API void nagle_lab_free(engine *e)
{
    machine_free(e);
    clock_new_file(&e->clock);
    for (int i = 0; i < TABLES; i++)
        free(e->tables[i].bytes);
    free(e->clock.interfaces);
    free(e);
}

API counters *nagle_lab_counters(engine *e) { return &e->counters; }

API void nagle_lab_new_file(engine *e) { clock_new_file(&e->clock); }

/* From now on no connection is followed; the segments between two ends, or all, leave as they are. */
API void nagle_lab_collect(engine *e, const uint8_t *ends, int64_t first_frame, int64_t last_frame)
{
    e->collecting = 1;
    e->any_ends = ends == NULL;
    if (ends)
        memcpy(e->ends, ends, sizeof e->ends);
    e->first_frame = first_frame;
    e->last_frame = last_frame;
}

API int64_t nagle_lab_pcap(engine *e, const uint8_t *buffer, int64_t at, int64_t end, int big_endian, int64_t header,
                           const interface_ *interface)
{
    return take_pcap(e, buffer, at, end, big_endian, header, interface);
}

API int64_t nagle_lab_pcapng(engine *e, const uint8_t *buffer, int64_t at, int64_t end, int big_endian,
                             const interface_ *interfaces, int64_t count)
{
    return take_pcapng(e, buffer, at, end, big_endian, interfaces, count);
}

API int64_t nagle_lab_finish(engine *e) { return machine_finish(e); }

/* The packed rows of a table that have not been taken. */
API const uint8_t *nagle_lab_rows(engine *e, int which, int64_t *size)
{
    *size = e->tables[which].size;
    return e->tables[which].bytes;
}

API void nagle_lab_taken(engine *e, int which) { e->tables[which].size = 0; }

/* How often each of one kind of duration occurred, or what was not decoded: distinct keys, and the count of each. */
API int64_t nagle_lab_counts(engine *e, int which, int64_t *keys, int64_t *counts, int64_t room)
{
    const counted *from = which < DURATIONS ? &e->durations[which] : &e->not_decoded;
    int64_t n = 0;
    for (int64_t i = 0; i < from->slots; i++) {
        if (!from->count[i])
            continue;
        if (n < room)
            keys[n] = from->key[i], counts[n] = from->count[i];
        n++;
    }
    return n;
}

/* Writes rows of connections to their places: `rows` of them to `part`, whose first row is number `first`. */
API int64_t nagle_lab_place(const uint8_t *rows, int64_t count, uint8_t *part, int64_t first, int64_t last)
{
    for (int64_t i = 0; i < count; i++) {
        connection row;
        memcpy(&row, rows + i * (int64_t)sizeof row, sizeof row);
        if (row.number < first || row.number > last)
            return -1;
        memcpy(part + (row.number - first) * (int64_t)sizeof row, &row, sizeof row);
    }
    return count;
}

/* ----------------------------------------------------------------------------------------------- containers */

int table_add(engine *e, int which, const void *row, int64_t size)
{
    table *t = &e->tables[which];
    if (t->size + size > t->room) {
        int64_t room = t->room ? 2 * t->room : 1 << 16;
        uint8_t *bytes = realloc(t->bytes, (size_t)room);
        if (!bytes) {
            e->failed = 1;
            return -1;
        }
        t->bytes = bytes;
        t->room = room;
    }
    memcpy(t->bytes + t->size, row, (size_t)size);
    t->size += size;
    return 0;
}

uint64_t mix(uint64_t x)
{
    x = (x ^ x >> 32) * 0x9FB21C651E98DF25ull;
    return (x ^ x >> 29) * 0xD6E8FEB86659FD93ull;
}

static int counted_grow(counted *c)
{
    int64_t slots = c->slots ? 2 * c->slots : 1 << 8;
    counted grown = {calloc((size_t)slots, 8), calloc((size_t)slots, 8), slots, 0};
    if (!grown.key || !grown.count) {
        free(grown.key);
        free(grown.count);
        return -1;
    }
    for (int64_t i = 0; i < c->slots; i++)
        if (c->count[i])
            counted_add(&grown, c->key[i], c->count[i]);
    free(c->key);
    free(c->count);
    *c = grown;
    return 0;
}

int counted_add(counted *c, int64_t key, int64_t count)
{
    if (2 * (c->used + 1) > c->slots && counted_grow(c))
        return -1;
    int64_t slot = (int64_t)(mix((uint64_t)key) & (uint64_t)(c->slots - 1));
    while (c->count[slot] && c->key[slot] != key)
        slot = (slot + 1) & (c->slots - 1);
    c->used += !c->count[slot];
    c->key[slot] = key;
    c->count[slot] += count;
    return 0;
}
