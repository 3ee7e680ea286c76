/* Records of pcap and packet blocks of pcapng, and the clock they go by: the twin of take.py, pcap.py, pcapng.py and
 * clock.py. A window of the capture is `end` bytes. Only complete, ordinary records are taken; everything else is
 * left to Python, which says what it is. */
#include "records.h"

#include <stdlib.h>
#include <string.h>

enum { LONGEST_PACKET = 1 << 20, SHORTEST_BLOCK = 12, LONGEST_BLOCK = 1 << 24 };
enum { OBSOLETE_PACKET = 2, PACKET = 6, SHORTEST_PACKET_BLOCK = 32, PACKET_HEADER = 28 };
static const int64_t DISORDER = 10000000, SECOND = 1000000000, FARTHEST_NS = (int64_t)1 << 62;

/* ----------------------------------------------------------------------------------------------------- bytes */

typedef struct { /* the window; nothing before 0 and nothing from `end` on is read */
    const uint8_t *buffer;
    int64_t end;
    int big_endian;
} window;

static inline uint32_t u32(const window *w, int64_t at)
{
    if (at < 0 || at + 4 > w->end)
        return 0;
    const uint8_t *b = w->buffer + at;
    return w->big_endian ? (uint32_t)b[0] << 24 | (uint32_t)b[1] << 16 | (uint32_t)b[2] << 8 | b[3]
                         : (uint32_t)b[3] << 24 | (uint32_t)b[2] << 16 | (uint32_t)b[1] << 8 | b[0];
}

/* ----------------------------------------------------------------------------------------------------- clock */

void clock_new_file(clock_state *c)
{
    for (int64_t i = 0; i < c->room; i++)
        free(c->interfaces[i]);
    if (c->room)
        memset(c->interfaces, 0, (size_t)c->room * sizeof *c->interfaces);
    c->first = 0;
    c->so_far.in_file = 0;
}

void clock_free(clock_state *c)
{
    clock_new_file(c);
    free(c->interfaces);
}

/* Lets go of interfaces before `first`: those of sections that are over. */
static void clock_begin_section(clock_state *c, int64_t first)
{
    if (first <= c->first || !c->room)
        return;
    int64_t over = first - c->first < c->room ? first - c->first : c->room;
    for (int64_t i = 0; i < over; i++)
        free(c->interfaces[i]);
    memmove(c->interfaces, c->interfaces + over, (size_t)(c->room - over) * sizeof *c->interfaces);
    memset(c->interfaces + (c->room - over), 0, (size_t)over * sizeof *c->interfaces);
    c->first = first;
}

watched *clock_watched(clock_state *c, int64_t interface, int *is_new)
{
    int64_t place = interface - c->first;
    if (place < 0)
        return NULL;
    if (place >= c->room) {
        int64_t room = 2 * place + 4;
        watched **grown = realloc(c->interfaces, (size_t)room * sizeof *grown);
        if (!grown)
            return NULL;
        memset(grown + c->room, 0, (size_t)(room - c->room) * sizeof *grown);
        c->interfaces = grown;
        c->room = room;
    }
    *is_new = !c->interfaces[place];
    if (*is_new && (c->interfaces[place] = calloc(1, sizeof(watched))))
        c->interfaces[place]->high = -((int64_t)1 << 62);
    return c->interfaces[place];
}

static int64_t lowest(const int64_t *times, int n)
{
    int64_t found = times[0];
    for (int i = 1; i < n; i++)
        found = times[i] < found ? times[i] : found;
    return found;
}

static int64_t highest(const int64_t *times, int n)
{
    int64_t found = times[0];
    for (int i = 1; i < n; i++)
        found = times[i] > found ? times[i] : found;
    return found;
}

/* Clock.note_set_back */
static void note_set_back(clock_so_far *c, int64_t frame, int64_t by)
{
    if (!c->set_back_frame || frame < c->set_back_frame || (frame == c->set_back_frame && by < c->set_back_by)) {
        c->set_back_frame = frame;
        c->set_back_by = by;
    }
}

/* Watched.breaks */
static int breaks(watched *w, clock_so_far *c, int64_t ts, int64_t frame)
{
    if (ts >= w->high - DISORDER) {
        int ended = w->n_behind > 0;
        w->n_behind = 0;
        if (ts > w->high)
            w->high = ts;
        w->latest = w->latest < STRAY ? w->latest + 1 : 0;
        w->ahead[w->latest] = ts;
        w->n_ahead += w->n_ahead <= STRAY;
        return ended;
    }
    int began = w->n_behind == 0;
    if (began)
        w->first_behind = frame;
    w->behind[w->n_behind++] = ts;
    if (w->n_behind > STRAY) {
        if (w->n_ahead > STRAY && lowest(w->ahead, w->n_ahead) - highest(w->behind, w->n_behind) > DISORDER)
            note_set_back(c, w->first_behind, w->ahead[w->latest] - w->behind[0]);
        w->high = highest(w->behind, w->n_behind);
        memcpy(w->ahead, w->behind, sizeof w->ahead);
        w->n_ahead = w->n_behind;
        w->latest = w->n_ahead - 1;
        w->n_behind = 0;
    }
    return began;
}

/* Clock.epoch_of; -1 where memory ran out. */
static int64_t epoch_of(clock_state *c, int64_t ts, int64_t interface, int64_t frame)
{
    clock_so_far *so_far = &c->so_far;
    if (!so_far->in_file)
        so_far->begins_before = so_far->has_last && ts < so_far->last_ts;
    so_far->in_file = 1;
    int is_new = 0;
    watched *w = clock_watched(c, interface, &is_new);
    if (!w)
        return -1;
    if (is_new && so_far->has_last && ts < so_far->last_ts - DISORDER)
        so_far->epoch++;
    if (breaks(w, so_far, ts, frame))
        so_far->epoch++;
    so_far->last_ts = ts;
    so_far->has_last = 1;
    return so_far->epoch;
}

/* --------------------------------------------------------------------------------------------------- records */

static int take(const taker *to, const uint8_t *buffer, int64_t at, int64_t captured, int64_t original, int64_t ts,
                const interface_ *interface)
{
    int64_t frame = ++*to->frames, epoch = epoch_of(to->clock, ts, interface->number, frame);
    if (epoch < 0)
        return -1;
    const record r = {buffer, at, captured, original, frame, ts, epoch, interface};
    return to->take(to->of, &r);
}

int64_t take_pcap(const taker *to, const uint8_t *buffer, int64_t at, int64_t end, int big_endian, int64_t header,
                  const interface_ *interface)
{
    const window w = {buffer, end, big_endian};
    int64_t unit = interface->resolution == 9 ? 1 : 1000;
    while (at + header <= end) {
        int64_t seconds = u32(&w, at), fraction = u32(&w, at + 4), captured = u32(&w, at + 8),
                original = u32(&w, at + 12);
        int64_t packet = at + header;
        if (packet + captured > end || captured > LONGEST_PACKET || (!captured && !original))
            break;
        if (take(to, buffer, packet, captured, original, seconds * SECOND + fraction * unit, interface))
            return -1;
        at = packet + captured;
    }
    return at;
}

/* nanoseconds in pcapng.py */
static int64_t nanoseconds(uint64_t ticks, const interface_ *of)
{
    int exponent = of->resolution & 0x7F;
    __int128 ns;
    if (of->resolution & 0x80) {
        ns = (__int128)((unsigned __int128)ticks * (uint64_t)SECOND >> exponent);
    } else if (exponent <= 9) {
        ns = ticks;
        for (int i = exponent; i < 9; i++)
            ns *= 10;
    } else {
        for (int i = 9; i < exponent && ticks; i++)
            ticks /= 10;
        ns = ticks;
    }
    ns += of->offset_ns;
    return ns > FARTHEST_NS ? FARTHEST_NS : ns < -FARTHEST_NS ? -FARTHEST_NS : (int64_t)ns;
}

int64_t take_pcapng(const taker *to, const uint8_t *buffer, int64_t at, int64_t end, int big_endian,
                    const interface_ *interfaces, int64_t count)
{
    const window w = {buffer, end, big_endian};
    if (count)
        clock_begin_section(to->clock, interfaces[0].number);
    while (at + 8 <= end) {
        int64_t type = u32(&w, at), length = u32(&w, at + 4);
        if (length < SHORTEST_BLOCK || length > LONGEST_BLOCK || at + length > end)
            break;
        if ((type != PACKET && type != OBSOLETE_PACKET) || length < SHORTEST_PACKET_BLOCK || length & 3 ||
            u32(&w, at + length - 4) != length)
            break;
        int64_t number = u32(&w, at + 8), captured = u32(&w, at + 20), original = u32(&w, at + 24);
        uint64_t ticks = (uint64_t)u32(&w, at + 12) << 32 | u32(&w, at + 16);
        if (type == OBSOLETE_PACKET)
            number = big_endian ? number >> 16 : number & 0xFFFF;
        if (captured + SHORTEST_PACKET_BLOCK > length || number >= count)
            break;
        const interface_ *interface = &interfaces[number];
        if (take(to, buffer, at + PACKET_HEADER, captured, original, nanoseconds(ticks, interface), interface))
            return -1;
        at += length;
    }
    return at;
}
