/* Packed rows that wait to be taken, and counts by key. -1 is returned where memory ran out. */
#include "machine.h"

#include <stdlib.h>
#include <string.h>

int table_add(machine *m, int which, const void *row, int64_t size)
{
    table *t = &m->tables[which];
    if (t->size + size > t->room) {
        int64_t room = t->room ? 2 * t->room : 1 << 16;
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

void counted_free(counted *c)
{
    free(c->key);
    free(c->count);
}
