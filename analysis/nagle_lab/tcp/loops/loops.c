/* The loops over every packet, compiled: each does what the function of its name in plain.py does, to the last bit
 * (tests/unit/test_loops.py holds them against each other). Nothing is judged here: what a stall is, is decided in
 * Python, of what these loops leave.
 *
 * C99 without Python's headers, so that any C compiler will do. All memory is the caller's. A table comes as an array
 * of pointers to its columns, in the order of the fields of the Python class; n is its number of rows.
 */
#include <stdint.h>
#include <string.h>

typedef int64_t i64;
typedef uint64_t u64;
typedef uint32_t u32;
typedef uint16_t u16;
typedef uint8_t u8;

#define LOOP __attribute__((visibility("default")))

enum { FIN = 0x01, SYN = 0x02, RST = 0x04, ACK = 0x10 };

struct packets { /* packets.table.Packets */
    i64 *frame, *ts;
    u64 *src_hi, *src_lo, *dst_hi, *dst_lo;
    u16 *sport, *dport;
    u32 *seq, *ack;
    u16 *flags, *window;
    int32_t *length;
    u32 *wire;
    u16 *mss;
    int8_t *wscale;
    u8 *has_ts;
    u32 *tsval, *tsecr;
    u8 *sack;
    u16 *ip_id;
    i64 *stretch;
};

struct records { /* capture.records.Records */
    u8 *buffer;
    i64 *offset, *captured, *original, *ts, *frame;
    u16 *link_type;
    i64 *stretch;
};

struct timeline { /* timeline.Timeline */
    i64 *conn;
    int8_t *side;
    i64 *frame, *ts, *gap, *start, *end, *ack, *length;
    u16 *flags;
    i64 *window, *sent_own, *acked_peer;
    int32_t *exchange;
    u8 *carried;
    i64 *stretch;
};

struct grouped { /* shapes.Grouped */
    i64 *order;
    u64 *sender;
    i64 *start, *size, *place, *segment_size, *carried;
};

struct halves { /* shapes.Halves */
    i64 *seq, *ack, *sent, *told;
    u8 *shift;
    i64 *packets, *segments, *payload, *wire, *last_ts;
    int8_t *opener;
    u8 *closed;
    u64 *origin;
};

struct noticed { /* shapes.Noticed, one after the other */
    i64 *acker, *segment, *took;
    i64 *trigger, *told, *ack, *release;
    i64 *at, *own, *peer, *acking;
    i64 *sent, *before;
    u8 *context;
};

struct exchanges { /* shapes.Exchanges */
    int32_t *number;
    u8 *asking;
    int32_t *full, *repeat;
    u8 *greeted;
    i64 *asked, *asked_last, *acked, *answered, *answered_last;
};

struct ended { /* shapes.Ended */
    i64 *place;
    int32_t *number;
    i64 *asked, *asked_last, *acked, *answered, *answered_last;
};

#ifndef SOURCE
#define SOURCE -1 /* unknown */
#endif

/* The CRC-32 of this file as it was compiled, from set-up: a library of another day must not be used. */
LOOP i64 source(void) { return SOURCE; }

/* ------------------------------------------------------------------------------------------------ bytes */

static inline u16 be16(const u8 *at) { return (u16)(at[0] << 8 | at[1]); }
static inline u32 be32(const u8 *at) { return (u32)at[0] << 24 | (u32)at[1] << 16 | (u32)at[2] << 8 | at[3]; }
static inline u32 le32(const u8 *at) { return (u32)at[3] << 24 | (u32)at[2] << 16 | (u32)at[1] << 8 | at[0]; }
static inline u64 be64(const u8 *at) { return (u64)be32(at) << 32 | be32(at + 4); }

/* Fills `offsets`, tells in `follows` what comes after the last one, and returns how many. */
LOOP i64 walk(const u8 *buffer, i64 start, i64 end, i64 big_endian, i64 length_at, i64 uncounted, i64 shortest,
              i64 longest, i64 *offsets, i64 *follows)
{
    i64 count = 0, last = end - length_at - 4;
    while (start <= last) {
        const u8 *field = buffer + start + length_at;
        i64 size = (i64)(big_endian ? be32(field) : le32(field)) + uncounted;
        if (start + size > end || size < shortest || size > longest)
            break;
        offsets[count++] = start;
        start += size;
    }
    *follows = start;
    return count;
}

/* --------------------------------------------------------------------------------------------- decoding */

enum { ETHERNET = 1, LINUX_COOKED = 113, LINUX_COOKED_2 = 276, IPV4 = 0x0800, IPV6 = 0x86DD, TCP = 6 };
enum { OPTION_END = 0, OPTION_NOP = 1, OPTION_MSS = 2, OPTION_SCALE = 3, OPTION_SACK = 5, OPTION_STAMPS = 8 };
enum { MOST_OPTIONS = 40 };

/* tcp._Options._read, for one segment. */
static void read_options(const u8 *at, const u8 *end, const struct packets *p, i64 row)
{
    for (int round = 0; round < MOST_OPTIONS && at < end && at[0] != OPTION_END; round++) {
        i64 size = at[0] == OPTION_NOP ? 1 : at[1];
        if (size > end - at || (at[0] != OPTION_NOP && size < 2))
            return;
        if (at[0] == OPTION_MSS && size == 4) {
            p->mss[row] = be16(at + 2);
        } else if (at[0] == OPTION_SCALE && size == 3) {
            p->wscale[row] = (int8_t)(at[2] < 127 ? at[2] : 127);
        } else if (at[0] == OPTION_SACK && size > 2) {
            p->sack[row] = 1;
        } else if (at[0] == OPTION_STAMPS && size == 10) {
            p->has_ts[row] = 1;
            p->tsval[row] = be32(at + 2);
            p->tsecr[row] = be32(at + 6);
        }
        at += size;
    }
}

/* Where IP begins in a frame of a usual link layer, and which; NULL for any other. */
static const u8 *ip_of(const u8 *frame, i64 captured, u16 link, u16 *type)
{
    i64 header = link == ETHERNET ? 14 : link == LINUX_COOKED ? 16 : link == LINUX_COOKED_2 ? 20 : 0;
    if (!header || captured < header)
        return NULL;
    *type = be16(frame + (link == LINUX_COOKED_2 ? 0 : header - 2));
    return frame + header;
}

/* The addresses of a usual IP header, before the TCP header returned; NULL where there is anything else. */
static const u8 *tcp_of(const u8 *ip, const u8 *captured_end, u16 type, const struct packets *p, i64 row, i64 *length)
{
    i64 total, header;
    if (type == IPV4) {
        if (captured_end - ip < 20 || ip[0] >> 4 != 4)
            return NULL;
        total = be16(ip + 2), header = (ip[0] & 15) * 4;
        if (header < 20 || total < header || (be16(ip + 6) & 0x1FFF) || ip[9] != TCP)
            return NULL;
        p->src_hi[row] = p->dst_hi[row] = 0;
        p->src_lo[row] = 0xFFFF00000000ull | be32(ip + 12);
        p->dst_lo[row] = 0xFFFF00000000ull | be32(ip + 16);
        p->ip_id[row] = be16(ip + 4);
    } else if (type == IPV6) {
        if (captured_end - ip < 40 || ip[0] >> 4 != 6 || ip[6] != TCP || !be16(ip + 4))
            return NULL;
        total = 40 + be16(ip + 4), header = 40;
        p->src_hi[row] = be64(ip + 8), p->src_lo[row] = be64(ip + 16);
        p->dst_hi[row] = be64(ip + 24), p->dst_lo[row] = be64(ip + 32);
        p->ip_id[row] = 0;
    } else {
        return NULL;
    }
    *length = total - header;
    return ip + header;
}

/* What packets.decode finds in segments that have only a usual link layer and IP header around them: their rows go to
 * `p`, the numbers of their records to `usual`, those of all others to `unusual`. Returns how many are usual. */
LOOP i64 usual_segments(const struct records *of, i64 n, const struct packets *p, i64 *usual, i64 *unusual)
{
    i64 row = 0, others = 0;
    for (i64 i = 0; i < n; i++) {
        const u8 *begin = of->buffer + of->offset[i], *captured_end = begin + of->captured[i];
        u16 type = 0;
        i64 length = 0;
        const u8 *tcp = ip_of(begin, of->captured[i], of->link_type[i], &type);
        tcp = tcp ? tcp_of(tcp, captured_end, type, p, row, &length) : NULL;
        i64 header = tcp && captured_end - tcp >= 20 ? (tcp[12] >> 4) * 4 : 0;
        if (header < 20 || length < header) {
            unusual[others++] = i;
            continue;
        }
        p->frame[row] = of->frame[i], p->ts[row] = of->ts[i], p->stretch[row] = of->stretch[i];
        p->sport[row] = be16(tcp), p->dport[row] = be16(tcp + 2);
        p->seq[row] = be32(tcp + 4), p->ack[row] = be32(tcp + 8);
        p->flags[row] = be16(tcp + 12) & 0xFFF, p->window[row] = be16(tcp + 14);
        p->length[row] = (int32_t)(length - header), p->wire[row] = (u32)of->original[i];
        p->mss[row] = 0, p->wscale[row] = -1, p->sack[row] = p->has_ts[row] = 0;
        p->tsval[row] = p->tsecr[row] = 0;
        read_options(tcp + 20, captured_end - tcp < header ? captured_end : tcp + header, p, row);
        usual[row++] = i;
    }
    return row;
}

/* ------------------------------------------------------------------------------------------ connections */

static inline u64 mix(u64 x)
{
    x = (x ^ x >> 32) * 0x9FB21C651E98DF25ull;
    return x ^ x >> 29;
}

static inline u64 endpoint(u64 hi, u64 lo, u16 port)
{
    return mix(lo ^ hi * 0xC2B2AE3D27D4EB4Full ^ (u64)port << 48 ^ port);
}

LOOP i64 hash_pairs(const struct packets *p, i64 n, u64 *sender, u64 *pair)
{
    for (i64 i = 0; i < n; i++) {
        u64 a = endpoint(p->src_hi[i], p->src_lo[i], p->sport[i]);
        u64 b = endpoint(p->dst_hi[i], p->dst_lo[i], p->dport[i]);
        sender[i] = a;
        pair[i] = mix(a + b) ^ a ^ b;
    }
    return n;
}

LOOP i64 find_keys(const u64 *keys, i64 n, const u64 *table, const i64 *numbers, u64 mask, i64 *found)
{
    for (i64 i = 0; i < n; i++) {
        u64 slot = keys[i] & mask;
        while (numbers[slot] != -1 && (numbers[slot] < 0 || table[slot] != keys[i]))
            slot = (slot + 1) & mask;
        found[i] = numbers[slot];
    }
    return n;
}

/* `place` (below + 1,), all zeros, is room to count in. */
LOOP i64 sort_numbers(const i64 *numbers, i64 n, i64 below, i64 *place, i64 *order)
{
    for (i64 i = 0; i < n; i++) {
        if (numbers[i] < 0 || numbers[i] >= below)
            return -1;
        place[numbers[i] + 1]++;
    }
    for (i64 number = 0; number < below; number++)
        place[number + 1] += place[number];
    for (i64 i = 0; i < n; i++)
        order[place[numbers[i]]++] = i;
    return n;
}

/* Takes copies out of `order`, in place. Returns how many rows are left; `counts` says how many starts and SYNs. */
LOOP i64 by_pair(const struct packets *p, const u64 *sender, const i64 *pair, i64 n, i64 *order, i64 *starts, i64 *syns,
                 i64 *counts)
{
    i64 left = 0, groups = 0, found = 0;
    for (i64 i = 0; i < n; i++) {
        i64 r = order[i], b = left ? order[left - 1] : r;
        int first = !left || pair[r] != pair[b];
        if (!first && p->ip_id[r] && p->ip_id[r] == p->ip_id[b] && sender[r] == sender[b] && p->seq[r] == p->seq[b] &&
            p->ack[r] == p->ack[b] && p->flags[r] == p->flags[b] && p->length[r] == p->length[b] &&
            p->window[r] == p->window[b])
            continue;
        if (first)
            starts[groups++] = left;
        if (p->flags[r] & SYN)
            syns[found++] = left;
        order[left++] = r;
    }
    counts[0] = groups, counts[1] = found;
    return left;
}

static inline i64 step(i64 before, u32 wire) { return before + (int32_t)(wire - (u32)before); }

/* plain._anchor, of the packets [first, last) of one connection, whose side 0 is `origin`. */
static void anchor(const struct packets *p, const struct grouped *by, i64 first, i64 last, u64 origin, i64 *seq, i64 *ack)
{
    const i64 zero = (i64)1 << 32;
    i64 sent[2] = {-1, -1}, told[2] = {-1, -1};
    for (i64 i = last - 1; i >= first; i--) {
        i64 r = by->order[i], s = by->sender[r] != origin;
        sent[s] = r;
        if (p->flags[r] & ACK)
            told[s] = r;
    }
    for (int s = 0; s < 2; s++) {
        if (seq[s] < 0 && sent[s] >= 0)
            seq[s] = zero + p->seq[sent[s]];
        if (seq[s] < 0 && told[1 - s] >= 0)
            seq[s] = zero + p->ack[told[1 - s]];
    }
    for (int s = 0; s < 2; s++)
        if (sent[1 - s] >= 0 && ack[1 - s] < 0 && seq[s] >= 0)
            ack[1 - s] = seq[s];
}

static const i64 MOST = ((i64)1 << 40) - 1; /* plain._BAND: so far a number goes in one window */

static inline i64 least(i64 a, i64 b) { return a < b ? a : b; }

enum { SOON = 8 }; /* rows from now */

/* Has the processor get what unwrap reads of a packet: connections lie between one another, so it cannot guess. */
static inline void fetch(const struct packets *p, const u64 *sender, i64 r)
{
    const void *const read[] = {sender + r,    p->seq + r,  p->ack + r,   p->flags + r, p->window + r,
                                p->length + r, p->wire + r, p->frame + r, p->ts + r,    p->stretch + r};
    for (unsigned i = 0; i < sizeof read / sizeof *read; i++)
        __builtin_prefetch(read[i]);
}

/* The tables are copied first, for what is written to a column might else be a pointer to another. */
LOOP i64 unwrap(const struct packets *packets, const struct grouped *grouped, i64 groups, const struct halves *halves,
                const struct timeline *timeline)
{
    const struct packets p = *packets;
    const struct grouped by = *grouped;
    const struct halves h = *halves;
    const struct timeline t = *timeline;
    const i64 all = groups ? by.start[groups - 1] + by.size[groups - 1] : 0;
    for (i64 g = 0; g < groups; g++) {
        i64 first = by.start[g], last = first + by.size[g], c = by.place[g], before = h.last_ts[c];
        i64 *seq = h.seq + 2 * c, *ack = h.ack + 2 * c, *sent = h.sent + 2 * c, *told = h.told + 2 * c;
        if (seq[0] < 0 || seq[1] < 0 || ack[0] < 0 || ack[1] < 0)
            anchor(&p, &by, first, last, h.origin[c], seq, ack);
        const i64 most_sent[2] = {sent[0] + MOST, sent[1] + MOST}, most_told[2] = {told[0] + MOST, told[1] + MOST};
        for (i64 i = first; i < last; i++) {
            if (i + SOON < all)
                fetch(&p, by.sender, by.order[i + SOON]);
            i64 r = by.order[i], s = by.sender[r] != h.origin[c], half = 2 * c + s, o = i + by.carried[g];
            i64 length = p.length[r], size = by.segment_size[g];
            u16 flags = p.flags[r];
            i64 start = seq[s] = step(seq[s], p.seq[r]);
            i64 end = start + length + !!(flags & SYN) + !!(flags & FIN);
            t.conn[o] = c, t.side[o] = (int8_t)s, t.frame[o] = p.frame[r], t.ts[o] = p.ts[r];
            t.gap[o] = p.ts[r] - before, before = p.ts[r];
            t.start[o] = start, t.end[o] = end, t.length[o] = length, t.flags[o] = flags;
            t.window[o] = flags & SYN ? p.window[r] : (i64)p.window[r] << h.shift[half];
            t.sent_own[o] = sent[s];
            sent[s] = end > sent[s] ? least(end, most_sent[s]) : sent[s];
            t.ack[o] = -1, t.acked_peer[o] = told[s];
            if (flags & ACK) {
                i64 acked = t.ack[o] = ack[s] = step(ack[s], p.ack[r]);
                told[s] = acked > told[s] ? least(acked, most_told[s]) : told[s];
            }
            t.exchange[o] = -1, t.carried[o] = 0, t.stretch[o] = p.stretch[r];
            h.packets[half]++;
            h.segments[half] += length > size ? (length + size - 1) / size : 1;
            h.payload[half] += length;
            h.wire[half] += p.wire[r];
            if (length && h.opener[c] < 0)
                h.opener[c] = (int8_t)s;
            if (flags & (FIN | RST))
                h.closed[half] = 1, h.closed[half ^ 1] |= !!(flags & RST);
        }
        h.last_ts[c] = before;
    }
    return groups;
}

/* --------------------------------------------------------------------------------------------- timeline */

LOOP i64 latest(const i64 *conn, const int8_t *side, const u8 *of_kind, i64 n, i64 *own, i64 *peer)
{
    i64 seen[2] = {-1, -1};
    for (i64 i = 0; i < n; i++) {
        if (i && conn[i] != conn[i - 1])
            seen[0] = seen[1] = -1;
        own[i] = seen[side[i]];
        peer[i] = seen[1 - side[i]];
        if (of_kind[i])
            seen[side[i]] = i;
    }
    return n;
}

/* What came last on the connection of the rows gone through; row numbers, -1 for nothing. */
struct seen {
    i64 data, own_data[2], consuming[2], acking[2], pure_ack[2];
    i64 told;     /* the last with an acknowledgement that its peer had sent before `data` */
    i64 acked[2]; /* the highest acknowledgement of each side */
};

static const struct seen NOTHING = {-1, {-1, -1}, {-1, -1}, {-1, -1}, {-1, -1}, -1, {0, 0}};

static inline void see(struct seen *seen, const struct timeline *t, i64 i)
{
    int8_t side = t->side[i];
    u16 flags = t->flags[i];
    if (t->length[i] > 0)
        seen->data = seen->own_data[side] = i, seen->told = seen->acking[1 - side];
    if (t->end[i] > t->start[i])
        seen->consuming[side] = i;
    if (flags & ACK)
        seen->acking[side] = i, seen->acked[side] = t->ack[i] > t->acked_peer[i] ? t->ack[i] : t->acked_peer[i];
    if ((flags & (SYN | FIN | RST | ACK)) == ACK && t->length[i] == 0)
        seen->pure_ack[side] = i;
}

static inline int is_fresh(const struct timeline *t, i64 i)
{
    return t->end[i] > t->start[i] && t->start[i] >= t->sent_own[i];
}

/* Where the last row of a connection may be looked back at, and what came before it: `keep` these. */
static void keep_last(const struct seen *seen, i64 row, u8 *keep)
{
    keep[row] = 1;
    for (int s = 0; s < 2; s++) {
        const i64 rows[4] = {seen->own_data[s], seen->consuming[s], seen->acking[s], seen->pure_ack[s]};
        for (int kind = 0; kind < 4; kind++)
            if (rows[kind] >= 0)
                keep[rows[kind]] = 1;
    }
}

/* `context` (n,) is all zeros; `counts` tells how many answers, waits, pauses, and rows behind others there are. */
LOOP i64 notice(const struct timeline *timeline, i64 n, i64 least_ns, const struct noticed *noticed, i64 *counts)
{
    const struct timeline t = *timeline;
    const struct noticed to = *noticed;
    i64 answers = 0, waits = 0, pauses = 0, behind = 0;
    struct seen seen = NOTHING;
    for (i64 i = 0; i < n; i++) {
        i64 own = t.side[i], peer = 1 - own, of = seen.consuming[peer];
        if (!t.carried[i]) {
            if (of >= 0 && t.ack[i] > t.acked_peer[i] && t.ack[i] == t.end[of] && t.start[of] >= t.sent_own[of] &&
                t.stretch[i] == t.stretch[of])
                to.acker[answers] = i, to.segment[answers] = of, to.took[answers++] = t.ts[i] - t.ts[of];
            if (t.length[i] > 0 && is_fresh(&t, i)) {
                i64 latest = seen.data, mine = seen.own_data[own], acked = seen.pure_ack[peer];
                if (latest >= 0 && latest == mine && acked > latest && t.ts[i] - t.ts[latest] >= least_ns)
                    to.trigger[waits] = latest, to.told[waits] = seen.told, to.ack[waits] = acked, to.release[waits++] = i;
                if (mine >= 0 && seen.acked[peer] < t.end[mine] && is_fresh(&t, mine))
                    to.sent[behind] = i, to.before[behind++] = mine;
            }
            if (t.gap[i] >= least_ns && seen.data >= 0) {
                to.own[pauses] = seen.own_data[own], to.peer[pauses] = seen.own_data[peer];
                to.acking[pauses] = seen.acking[peer], to.at[pauses++] = i;
            }
        }
        if (i + 1 < n && t.conn[i] == t.conn[i + 1]) {
            see(&seen, &t, i);
        } else {
            keep_last(&seen, i, to.context);
            seen = NOTHING;
        }
    }
    counts[0] = answers, counts[1] = waits, counts[2] = pauses, counts[3] = behind;
    return n;
}

/* `fastest` (places, 2) */
LOOP i64 lower(const struct timeline *t, const i64 *acker, const i64 *wait, i64 n, i64 *fastest)
{
    for (i64 i = 0; i < n; i++) {
        i64 *known = fastest + 2 * t->conn[acker[i]] + t->side[acker[i]], took = wait[i] > 0 ? wait[i] : 0;
        *known = took < *known ? took : *known;
    }
    return n;
}

/* -------------------------------------------------------------------------------------------- exchanges */

/* Ends the open exchange of c; whether it has request and answer. */
static int ends(const struct exchanges *e, i64 c, const struct ended *to, i64 row)
{
    int asked = e->asked[c] < INT64_MAX, full = asked && e->answered[c] < INT64_MAX;
    if (e->number[c] == 0 && !asked)
        e->greeted[c] = 1;
    if (full) {
        e->full[c]++, e->repeat[c] += e->number[c] > 0;
        to->place[row] = c, to->number[row] = e->number[c];
        to->asked[row] = e->asked[c], to->asked_last[row] = e->asked_last[c], to->acked[row] = e->acked[c];
        to->answered[row] = e->answered[c], to->answered_last[row] = e->answered_last[c];
    }
    e->asked[c] = e->answered[c] = INT64_MAX;
    e->asked_last[c] = e->acked[c] = e->answered_last[c] = -1;
    return full;
}

static inline void within(i64 ts, i64 *first, i64 *last)
{
    *first = ts < *first ? ts : *first;
    *last = ts > *last ? ts : *last;
}

LOOP i64 exchanges(const struct timeline *t, i64 n, const int8_t *client, const i64 *acker, const i64 *segment,
                   i64 answers, const struct exchanges *e, const struct ended *to)
{
    i64 count = 0, group = -1, next = 0;
    for (i64 i = 0; i < n; i++) {
        i64 c = t->conn[i];
        group += i == 0 || c != t->conn[i - 1];
        if (t->length[i] > 0 && t->end[i] > t->sent_own[i] && !t->carried[i]) {
            u8 asks = t->side[i] == client[group];
            if (e->number[c] < 0 || (asks && !e->asking[c])) {
                count += ends(e, c, to, count);
                e->number[c]++;
            }
            e->asking[c] = asks;
            t->exchange[i] = e->number[c];
            within(t->ts[i], (asks ? e->asked : e->answered) + c, (asks ? e->asked_last : e->answered_last) + c);
        }
        if (next < answers && acker[next] == i) {
            i64 of = segment[next++];
            if (t->side[of] == client[group] && t->exchange[of] >= 0 && t->exchange[of] == e->number[c] &&
                t->ts[i] > e->acked[c])
                e->acked[c] = t->ts[i];
        }
    }
    return count;
}
