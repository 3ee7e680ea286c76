/* Programs: an open-addressed hash table. */
#include "programs.h"

#include <stdlib.h>
#include <string.h>

enum { KEY = sizeof *((programs *)0)->key };

void programs_free(programs *p)
{
    free(p->key);
    free(p->number);
    free(p->sampled);
}

/* The slot of a key, or the empty one where it belongs. */
static uint64_t slot_of(const programs *p, const uint8_t *key)
{
    uint16_t port;
    memcpy(&port, key + 16, sizeof port);
    uint64_t at = hash_end(key, port) & (uint64_t)(p->slots - 1);
    while (p->number[at] >= 0 && memcmp(p->key[at], key, KEY))
        at = (at + 1) & (uint64_t)(p->slots - 1);
    return at;
}

static int grow(programs *p)
{
    programs grown = {NULL, NULL, NULL, p->slots ? 2 * p->slots : 64, p->used};
    grown.key = malloc((size_t)grown.slots * KEY);
    grown.number = malloc((size_t)grown.slots * sizeof *grown.number);
    grown.sampled = calloc((size_t)grown.slots / 2, sizeof *grown.sampled);
    if (!grown.key || !grown.number || !grown.sampled) {
        programs_free(&grown);
        return -1;
    }
    memset(grown.number, 0xFF, (size_t)grown.slots * sizeof *grown.number);
    for (int64_t i = 0; i < p->slots; i++) {
        if (p->number[i] < 0)
            continue;
        uint64_t at = slot_of(&grown, p->key[i]);
        memcpy(grown.key[at], p->key[i], KEY);
        grown.number[at] = p->number[i];
    }
    if (p->used)
        memcpy(grown.sampled, p->sampled, (size_t)p->used * sizeof *grown.sampled);
    programs_free(p);
    *p = grown;
    return 0;
}

int32_t program_of(programs *p, const uint8_t *address, uint16_t port)
{
    uint8_t key[KEY];
    memcpy(key, address, 16);
    memcpy(key + 16, &port, sizeof port);
    if (2 * (int64_t)(p->used + 1) > p->slots && grow(p))
        return -1;
    uint64_t at = slot_of(p, key);
    if (p->number[at] < 0) {
        memcpy(p->key[at], key, KEY);
        p->number[at] = p->used++;
    }
    return p->number[at];
}

int programs_pass(programs *p, snapshot *s)
{
    int64_t used = p->used;
    if (snapshot_pass(s, &used, sizeof used) || used < 0 || used > INT32_MAX)
        return -1;
    uint8_t(*keys)[KEY] = calloc((size_t)used + 1, KEY); /* in the order of their numbers */
    if (!keys)
        return -1;
    for (int64_t i = 0; s->to && i < p->slots; i++)
        if (p->number[i] >= 0)
            memcpy(keys[p->number[i]], p->key[i], KEY);
    int failed = snapshot_pass(s, keys, used * KEY);
    for (int64_t i = 0; !failed && !s->to && i < used; i++) {
        uint16_t port;
        memcpy(&port, keys[i] + 16, sizeof port);
        failed = program_of(p, keys[i], port) != i;
    }
    free(keys);
    return failed || (used && snapshot_pass(s, p->sampled, used * (int64_t)sizeof *p->sampled)) ? -1 : 0;
}
