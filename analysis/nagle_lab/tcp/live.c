/* The live connections: an open-addressed hash table of places in blocks, which never move. */
#include "live.h"

#include <stdlib.h>
#include <string.h>

enum { BLOCK = 1 << 10 };
/* A slot's mark: its connection is found there by the ends that answers_as gives it. */
static const uint32_t AS_ANSWERS = (uint32_t)1 << 31;

flow *live_at(const live *l, uint32_t place) { return &l->blocks[place / BLOCK][place % BLOCK]; }

void live_init(live *l) { l->free_list = l->oldest = l->newest = NONE; }

void live_free(live *l)
{
    for (int64_t i = 0; i < l->n_blocks; i++)
        free(l->blocks[i]);
    free(l->blocks);
    free(l->slots);
}

/* ----------------------------------------------------------------------------------------------- by its ends */

uint64_t hash_end(const uint8_t *address, uint16_t port)
{
    uint64_t hi, lo;
    memcpy(&hi, address, 8);
    memcpy(&lo, address + 8, 8);
    return mix(lo ^ hi * 0xC2B2AE3D27D4EB4Full ^ (uint64_t)port << 48 ^ port);
}

/* The same for both directions. */
static uint64_t hash_ends(const uint8_t *one, uint16_t port, const uint8_t *other, uint16_t other_port)
{
    uint64_t a = hash_end(one, port), b = hash_end(other, other_port);
    return mix(a + b) ^ a ^ b;
}

static uint64_t hash_flow(const flow *f) { return hash_ends(f->address, f->port[0], f->address + 16, f->port[1]); }

static uint64_t hash_as_answers(const flow *f)
{
    return hash_ends(f->address, f->port[0], f->answers_as, f->answers_as_port);
}

static flow *flow_in(const live *l, uint32_t slot) { return live_at(l, (slot & ~AS_ANSWERS) - 1); }

static uint64_t hash_slot(const live *l, uint32_t slot)
{
    const flow *f = flow_in(l, slot);
    return slot & AS_ANSWERS ? hash_as_answers(f) : hash_flow(f);
}

/* Whether address and port are those that segments of its side 1 carry, to those of its side 0. */
static int are_as_answers(const flow *f, const uint8_t *from, uint16_t port, const uint8_t *to, uint16_t to_port)
{
    return port == f->answers_as_port && to_port == f->port[0] && !memcmp(from, f->answers_as, 16) &&
           !memcmp(to, f->address, 16);
}

int side_of(const flow *f, const segment *s)
{
    if (s->sport == f->port[0] && s->dport == f->port[1] && !memcmp(f->address, s->src, 16) &&
        !memcmp(f->address + 16, s->dst, 16))
        return 0;
    if (s->sport == f->port[1] && s->dport == f->port[0] && !memcmp(f->address, s->dst, 16) &&
        !memcmp(f->address + 16, s->src, 16))
        return 1;
    return -1;
}

flow *live_find(const live *l, const segment *s, int *side)
{
    if (!l->n_slots)
        return NULL;
    uint64_t mask = (uint64_t)l->n_slots - 1, at = hash_ends(s->src, s->sport, s->dst, s->dport) & mask;
    for (; l->slots[at]; at = (at + 1) & mask) {
        flow *f = flow_in(l, l->slots[at]);
        if (l->slots[at] & AS_ANSWERS)
            *side = are_as_answers(f, s->src, s->sport, s->dst, s->dport) ? 1 : -1;
        else
            *side = side_of(f, s);
        if (*side >= 0)
            return f;
    }
    return NULL;
}

static int grow_slots(live *l)
{
    int64_t n = l->n_slots ? 2 * l->n_slots : 1 << 10;
    uint32_t *slots = calloc((size_t)n, sizeof *slots);
    if (!slots)
        return -1;
    for (int64_t i = 0; i < l->n_slots; i++) {
        if (!l->slots[i])
            continue;
        uint64_t at = hash_slot(l, l->slots[i]) & (uint64_t)(n - 1);
        while (slots[at])
            at = (at + 1) & (uint64_t)(n - 1);
        slots[at] = l->slots[i];
    }
    free(l->slots);
    l->slots = slots;
    l->n_slots = n;
    return 0;
}

static int has_room(live *l) { return 2 * (l->count + l->n_as_answers + 1) <= l->n_slots || !grow_slots(l); }

static void add_slot(live *l, uint32_t slot)
{
    uint64_t mask = (uint64_t)l->n_slots - 1, at = hash_slot(l, slot) & mask;
    while (l->slots[at])
        at = (at + 1) & mask;
    l->slots[at] = slot;
}

static void remove_slot(live *l, uint32_t slot)
{
    uint64_t mask = (uint64_t)l->n_slots - 1, at = hash_slot(l, slot) & mask;
    while (l->slots[at] != slot)
        at = (at + 1) & mask;
    uint64_t hole = at;
    for (;;) { /* later entries move up, unless that puts them before their own place */
        l->slots[hole] = 0;
        do {
            at = (at + 1) & mask;
            if (!l->slots[at])
                return;
        } while (((at - hash_slot(l, l->slots[at])) & mask) < ((at - hole) & mask));
        l->slots[hole] = l->slots[at];
        hole = at;
    }
}

static int find_as_answers(live *l, flow *f)
{
    if (!has_room(l))
        return -1;
    f->is_found_there = 1;
    l->n_as_answers++;
    add_slot(l, (f->self + 1) | AS_ANSWERS);
    return 0;
}

static void find_as_answers_no_more(live *l, flow *f)
{
    remove_slot(l, (f->self + 1) | AS_ANSWERS);
    l->n_as_answers--;
    f->is_found_there = 0;
}

/* A connection found by the ends of this one, in either direction, although they are not its own; or NULL. */
static flow *found_by_ends_of(const live *l, const flow *f)
{
    uint64_t mask = (uint64_t)l->n_slots - 1, at = hash_flow(f) & mask;
    for (; l->n_as_answers && l->slots[at]; at = (at + 1) & mask) {
        flow *other = flow_in(l, l->slots[at]);
        if (l->slots[at] & AS_ANSWERS &&
            (are_as_answers(other, f->address, f->port[0], f->address + 16, f->port[1]) ||
             are_as_answers(other, f->address + 16, f->port[1], f->address, f->port[0])))
            return other;
    }
    return NULL;
}

int live_answers_as(live *l, flow *f, const segment *s)
{
    memcpy(f->answers_as, s->src, 16);
    f->answers_as_port = s->sport;
    f->answers_elsewhere = 1;
    return find_as_answers(l, f);
}

/* -------------------------------------------------------------------------------------------------- by order */

static int grow_blocks(live *l)
{
    flow **blocks = realloc(l->blocks, (size_t)(l->n_blocks + 1) * sizeof *blocks);
    if (!blocks)
        return -1;
    l->blocks = blocks;
    flow *block = malloc(BLOCK * sizeof(flow));
    if (!block)
        return -1;
    for (uint32_t i = 0; i < BLOCK; i++) {
        block[i].self = (uint32_t)(l->n_blocks * BLOCK + i);
        block[i].newer = i + 1 < BLOCK ? block[i].self + 1 : NONE;
    }
    l->free_list = block[0].self;
    blocks[l->n_blocks++] = block;
    return 0;
}

flow *live_new(live *l)
{
    if (!has_room(l))
        return NULL;
    if (l->free_list == NONE && grow_blocks(l))
        return NULL;
    uint32_t place = l->free_list;
    flow *f = live_at(l, place);
    l->free_list = f->newer;
    memset(f, 0, sizeof *f);
    f->self = place;
    return f;
}

void live_list(live *l, flow *f)
{
    f->older = l->newest;
    f->newer = NONE;
    if (l->newest != NONE)
        live_at(l, l->newest)->newer = f->self;
    else
        l->oldest = f->self;
    l->newest = f->self;
    l->count++;
    for (flow *other; (other = found_by_ends_of(l, f));)
        find_as_answers_no_more(l, other);
    add_slot(l, f->self + 1);
}

void live_remove(live *l, flow *f)
{
    remove_slot(l, f->self + 1);
    if (f->is_found_there)
        find_as_answers_no_more(l, f);
    if (f->older != NONE)
        live_at(l, f->older)->newer = f->newer;
    else
        l->oldest = f->newer;
    if (f->newer != NONE)
        live_at(l, f->newer)->older = f->older;
    else
        l->newest = f->older;
    l->count--;
    f->newer = l->free_list;
    l->free_list = f->self;
}

int live_pass(live *l, snapshot *s)
{
    int64_t count = l->count;
    if (snapshot_pass(s, &count, sizeof count))
        return -1;
    for (uint32_t at = l->oldest; s->to && at != NONE; at = live_at(l, at)->newer)
        if (snapshot_pass(s, live_at(l, at), sizeof(flow)))
            return -1;
    for (; !s->to && count > 0; count--) {
        flow *f = live_new(l);
        uint32_t place = f ? f->self : NONE;
        if (!f || snapshot_pass(s, f, sizeof *f))
            return -1;
        f->self = place;
        live_list(l, f);
        if (f->is_found_there && find_as_answers(l, f))
            return -1;
    }
    return 0;
}
