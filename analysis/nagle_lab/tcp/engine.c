/* The compiled engine: records, decoding and the machine in one pass; made, fed with windows of a capture, emptied and
 * freed by Python through ctypes (compiled.py). Returns of -1 mean that memory ran out. */
#include "../capture/records.h"
#include "machine.h"

#include <stdlib.h>
#include <string.h>

#define API __attribute__((visibility("default")))

#ifndef SOURCE
#define SOURCE -1 /* unknown */
#endif

typedef struct {
    machine machine;
    clock_state clock;
    counted not_decoded;
    int collecting;
    int any_ends;
    flow only; /* otherwise only segments between its ends are collected */
    int64_t first_frame;
} engine;

/* The CRC-32 of the sources as compiled, given by set-up: a library of other sources must not be used. */
API int64_t nagle_lab_source(void) { return SOURCE; }

/* How large the structs of engine.h are here, in the order of TABLES, then the interface's and the counters'. */
API int64_t nagle_lab_size_of(int which)
{
    static const int64_t sizes[] = {sizeof(candidate), sizeof(no_wait), sizeof(reaction), sizeof(delayed_ack), sizeof(idle_gap),
                                    sizeof(exchange), sizeof(connection), sizeof(segment), sizeof(interface_),
                                    sizeof(counters)};
    return which >= 0 && which < (int)(sizeof sizes / sizeof *sizes) ? sizes[which] : -1;
}

API engine *nagle_lab_new(int list_exchanges)
{
    engine *e = calloc(1, sizeof *e);
    if (!e)
        return NULL;
    e->machine.list_exchanges = list_exchanges;
    machine_init(&e->machine);
    return e;
}

API void nagle_lab_free(engine *e)
{
    machine_free(&e->machine);
    clock_free(&e->clock);
    counted_free(&e->not_decoded);
    free(e);
}

API counters *nagle_lab_counters(engine *e) { return &e->machine.counters; }

/* ----------------------------------------------------------------------------------------------------- clock */

API void nagle_lab_new_file(engine *e) { clock_new_file(&e->clock); }

API int64_t nagle_lab_epoch(engine *e) { return e->clock.so_far.epoch; }

/* The frame at which the clock was set back, and by how many ns; 0: it was not. */
API int64_t nagle_lab_set_back(engine *e, int64_t *by)
{
    *by = e->clock.so_far.set_back_by;
    return e->clock.so_far.set_back_frame;
}

/* Whether the file began before the one before it ended; 1 once. */
API int64_t nagle_lab_begins_before(engine *e)
{
    int64_t before = e->clock.so_far.begins_before;
    e->clock.so_far.begins_before = 0;
    return before;
}

/* --------------------------------------------------------------------------------------------------- records */

/* From now on no connection is followed; the segments between two ends, or all, leave as they are. `ends` are two
 * addresses, then two ports. */
API void nagle_lab_collect(engine *e, const uint8_t *ends, int64_t first_frame)
{
    e->collecting = 1;
    e->any_ends = ends == NULL;
    if (ends) {
        memcpy(e->only.address, ends, sizeof e->only.address);
        memcpy(e->only.port, ends + sizeof e->only.address, sizeof e->only.port);
    }
    e->first_frame = first_frame;
}

static int is_collected(const engine *e, const segment *s)
{
    return s->frame >= e->first_frame && (e->any_ends || side_of(&e->only, s) >= 0);
}

/* PlainEngine._take_record */
static int take(void *of, const record *r)
{
    engine *e = of;
    segment s;
    int64_t kind = decode(r->buffer, r->at, r->captured, r->original, r->interface->link_type, &s);
    if (kind >= 0)
        return counted_add(&e->not_decoded, kind, 1);
    s.frame = r->frame;
    s.ts = r->ts;
    s.epoch = (int32_t)r->epoch;
    s.interface = (int32_t)r->interface->number;
    if (!e->collecting)
        return machine_follow(&e->machine, &s);
    return is_collected(e, &s) ? table_add(&e->machine.tables[SEGMENT], &s, sizeof s) : 0;
}

API int64_t nagle_lab_pcap(engine *e, const uint8_t *buffer, int64_t at, int64_t end, int big_endian, int64_t header,
                           const interface_ *interface)
{
    const taker to = {take, e, &e->clock, &e->machine.counters.frames};
    return take_pcap(&to, buffer, at, end, big_endian, header, interface);
}

API int64_t nagle_lab_pcapng(engine *e, const uint8_t *buffer, int64_t at, int64_t end, int big_endian,
                             const interface_ *interfaces, int64_t count)
{
    const taker to = {take, e, &e->clock, &e->machine.counters.frames};
    return take_pcapng(&to, buffer, at, end, big_endian, interfaces, count);
}

API int64_t nagle_lab_finish(engine *e) { return machine_finish(&e->machine); }

/* ------------------------------------------------------------------------------------------------- snapshots */

/* The clock's state for the interfaces of a file: places from `first` on, and whether each has packets. */
static int pass_interfaces(clock_state *c, snapshot *s)
{
    int64_t room = c->room;
    if (snapshot_pass(s, &c->first, sizeof c->first) || snapshot_pass(s, &room, sizeof room) || room < 0)
        return -1;
    for (int64_t i = 0; i < room; i++) {
        uint8_t is_there = s->to && c->interfaces[i];
        int is_new = 0;
        if (snapshot_pass(s, &is_there, sizeof is_there))
            return -1;
        if (!is_there)
            continue;
        watched *w = clock_watched(c, c->first + i, &is_new);
        if (!w || snapshot_pass(s, w, sizeof *w))
            return -1;
    }
    return 0;
}

static int pass(engine *e, snapshot *s)
{
    clock_state *c = &e->clock;
    return machine_pass(&e->machine, s) || counted_pass(&e->not_decoded, s) ||
           snapshot_pass(s, &c->so_far, sizeof c->so_far) || pass_interfaces(c, s);
}

/* Writes what the engine knows to the table SNAPSHOT. */
API int64_t nagle_lab_save(engine *e)
{
    snapshot s = {&e->machine.tables[SNAPSHOT], NULL, 0, 0};
    return pass(e, &s) ? -1 : 0;
}

/* Makes a new engine continue from another one's saved state; -1 also if the snapshot is not complete. */
API int64_t nagle_lab_restore(engine *e, const uint8_t *bytes, int64_t size)
{
    snapshot s = {NULL, bytes, size, 0};
    return pass(e, &s) || s.at != s.size ? -1 : 0;
}

/* ------------------------------------------------------------------------------------------------------ rows */

/* The packed rows of a table that have not been taken. */
API const uint8_t *nagle_lab_rows(engine *e, int which, int64_t *size)
{
    *size = e->machine.tables[which].size;
    return e->machine.tables[which].bytes;
}

API void nagle_lab_taken(engine *e, int which) { e->machine.tables[which].size = 0; }

/* How often each of one kind of duration occurred, or what was not decoded: distinct keys, and the count of each. */
API int64_t nagle_lab_counts(engine *e, int which, int64_t *keys, int64_t *counts, int64_t room)
{
    const counted *from = which < DURATIONS ? &e->machine.durations[which] : &e->not_decoded;
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
