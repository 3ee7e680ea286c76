#include "tables.h"

#include <stdlib.h>
#include <string.h>

int table_add(table *t, const void *row, int64_t size)
{
    if (t->size + size > t->room) {
        int64_t room = t->room ? 2 * t->room : 1 << 16;
        while (t->size + size > room)
            room *= 2;
        uint8_t *bytes = realloc(t->bytes, (size_t)room);
        if (!bytes)
            return -1;
        t->bytes = bytes;
        t->room = room;
    }
    memcpy(t->bytes + t->size, row, (size_t)size);
    t->size += size;
    return 0;
}

int snapshot_pass(snapshot *s, void *bytes, int64_t size)
{
    if (s->to)
        return table_add(s->to, bytes, size);
    if (size < 0 || size > s->size - s->at)
        return -1;
    memcpy(bytes, s->from + s->at, (size_t)size);
    s->at += size;
    return 0;
}

static int counted_grow(counted *c)
{
    int64_t slots = c->slots ? 2 * c->slots : 1 << 8;
    counted grown = {calloc((size_t)slots, 8), calloc((size_t)slots, 8), slots, 0};
    if (!grown.key || !grown.count) {
        counted_free(&grown);
        return -1;
    }
    for (int64_t i = 0; i < c->slots; i++)
        if (c->count[i])
            counted_add(&grown, c->key[i], c->count[i]);
    counted_free(c);
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

int counted_pass(counted *c, snapshot *s)
{
    int64_t used = c->used, entry[2];
    if (snapshot_pass(s, &used, sizeof used))
        return -1;
    if (!s->to) {
        for (; used > 0; used--)
            if (snapshot_pass(s, entry, sizeof entry) || counted_add(c, entry[0], entry[1]))
                return -1;
        return 0;
    }
    for (int64_t i = 0; i < c->slots; i++) {
        entry[0] = c->key[i], entry[1] = c->count[i];
        if (entry[1] && snapshot_pass(s, entry, sizeof entry))
            return -1;
    }
    return 0;
}

void counted_free(counted *c)
{
    free(c->key);
    free(c->count);
}
