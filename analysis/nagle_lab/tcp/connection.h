/* One connection, as far as the capture shows it: the twin of connection.py and learned.py, see there. */
#ifndef NAGLE_LAB_CONNECTION_H
#define NAGLE_LAB_CONNECTION_H

#include "../packet/segment.h"
#include "engine.h"

enum { CONTROL = SYN | FIN | RST };
enum { LEAST_MSS = 536, LEAST_USUAL = 1200, USUAL_FULL_SIZE = 1448, TIMESTAMPS_OPTION = 12, LARGEST_SCALE = 14 };
enum { LEAST_LEARNED = 500, RECENT = 4, SAMPLES = 8, EPHEMERAL = 32768, EPHEMERAL_FREEBSD = 10000 };
enum { HANDSHAKE, BY_ACK, BY_DATA, RELEASE, NO_NEW_ACK, REACTIONS }; /* Reaction in events.py */
static const uint8_t V4_MAPPED[12] = {[10] = 0xFF, [11] = 0xFF};
enum { SURELY = 2 }; /* see machine.py */
enum { AT_ONCE = 3, LEAST_STEP = 200000, LEAST_LIFE = 100000000 };
static const int64_t SURELY_COPY = 200000, COPY = 5000000, LATE_COPY = 100000000, SAME_PLACE = 30000, TIME_WAIT = 60000000000;
static const int64_t FIRST_NUMBER = (int64_t)1 << 32, NEVER = INT64_MAX;

typedef struct { /* Sent */
    int64_t number;
    int64_t ts;
    int64_t frame;
    int64_t start;
    int64_t end;
    int64_t edge;
    int64_t tsval; /* -1 none */
    int32_t length;
    int32_t since_data;
    int32_t epoch;
    int32_t exchange;
    uint16_t flags;
    uint8_t is_new;
} sent;

typedef struct { /* Acknowledgement */
    int64_t number;
    int64_t ts;
    int64_t frame;
    int64_t seq;
    int64_t ack;
    int64_t acked_before;
    int64_t edge_before; /* of the window; -1 not known */
    int64_t gap;
    int64_t tsval; /* -1 none */
    int64_t tsval_before;
    int64_t before;
    int64_t paced_since;
    int64_t serialization_delay;
    int32_t beyond_full;
    uint16_t window;
    uint8_t had_room;
    uint8_t is_echoed;
    int8_t gap_ended_by;
    uint8_t gap_small;
    uint8_t gap_reply;
} acknowledgement;

typedef struct { /* of a segment, to recognize a copy of it */
    int64_t ts;
    uint32_t seq;
    uint32_t ack;
    uint32_t tsval;
    int32_t length;
    uint16_t flags;
    uint16_t window;
    uint16_t ip_id;
    uint8_t ttl;
} identity;

typedef struct { /* Half */
    int64_t seq;
    int64_t ack_spacing;
    int64_t newly_acked;
    int64_t snd_una;
    int64_t snd_nxt;
    int64_t rcv_nxt;
    int64_t rcv_wnd;
    int64_t hole;
    int64_t not_held_end;
    int64_t first_not_held;
    int64_t fastest_ack;
    int64_t packets;
    int64_t offloaded;
    int64_t payload;
    int64_t wire;
    int64_t beside_unacked;
    sent data;
    sent small;
    acknowledgement small_ack;
    acknowledgement pure_ack;
    acknowledgement data_ack;
    int64_t last_ts;
    int64_t tsval;
    int64_t first_tsval;
    int64_t first_tsval_ts;
    int64_t tsval_clock;
    int64_t ahead;
    int64_t timestamp_step;
    int32_t reactions[REACTIONS][2 * SAMPLES];
    int64_t reacted[REACTIONS];
    identity recent[RECENT];
    uint64_t kept; /* how many there have been */
    int64_t copied;
    int64_t arrived;
    int32_t data_segments;
    int32_t lost;
    int32_t swapped;
    int32_t full_waits;
    int32_t full_size_by_mss;
    int32_t last_unpushed;
    int32_t full_size_by_data;
    sent control; /* the latest SYN or FIN without data: with `data`, Half.latest_sent */
    int64_t syn;
    int64_t syn_window;
    int64_t surely_small_below;
    int32_t not_held;
    int32_t fin_acks;
    int32_t stale_echoes;
    uint16_t mss;
    int8_t scale;
    uint8_t shift;
    uint8_t timestamps;
    uint8_t closed;
    uint8_t pushes;
    uint8_t kernel;
    uint8_t syn_ttl;
    uint8_t is_ipv6;
} half;

typedef struct { /* Connection */
    uint8_t address[32];
    uint16_t port[2];
    uint32_t self; /* see live.h */
    uint32_t older;
    uint32_t newer;
    int64_t number;
    int64_t first_frame;
    int64_t first_ts;
    int64_t last_ts;
    int64_t packets;
    int64_t at_once;
    int64_t least_apart;
    int64_t syn;
    int64_t syn_ts;
    int64_t handshake;
    int64_t request[2]; /* times of first and last segment */
    int64_t response[2];
    int64_t request_acked;
    int32_t least_full_segment;
    int32_t exchange;
    int32_t exchanges;
    int32_t repeat_exchanges;
    int32_t followed;
    int8_t latest_data; /* side that sent data last; -1 none */
    int8_t opener;
    int8_t shared;
    int8_t sender; /* side of the last packet; -1 none */
    uint8_t asking;
    uint8_t server_first;
    uint8_t needs_programs;
    uint8_t is_copied;
    uint8_t answers_elsewhere; /* Connection.answers_as is not None */
    uint8_t is_found_there;    /* no other connection has these ends: see live.h */
    uint16_t answers_as_port;
    uint8_t answers_as[16];
    half halves[2];
} flow;

static inline int64_t least(int64_t a, int64_t b) { return a < b ? a : b; }

static inline int64_t most(int64_t a, int64_t b) { return a > b ? a : b; }

static inline int64_t common_divisor(int64_t a, int64_t b)
{
    if (b < 0)
        b = -b;
    while (b) {
        int64_t rest = a % b;
        a = b;
        b = rest;
    }
    return a;
}

static inline int side_by_port(const flow *f)
{
    int one = f->port[0] >= EPHEMERAL, two = f->port[1] >= EPHEMERAL;
    if (one == two)
        one = f->port[0] >= EPHEMERAL_FREEBSD, two = f->port[1] >= EPHEMERAL_FREEBSD;
    return one != two ? two : -1;
}

static inline int client_of(const flow *f)
{
    if (f->halves[0].syn >= 0 || f->halves[1].syn >= 0)
        return 0;
    int by_port = side_by_port(f);
    if (by_port >= 0)
        return by_port;
    return f->shared >= 0 ? 1 - f->shared : f->opener > 0 ? f->opener : 0;
}

static inline int32_t clock_step(const flow *f)
{
    int is_coarse = f->at_once >= AT_ONCE && LEAST_STEP <= f->least_apart && f->least_apart < NEVER;
    return is_coarse ? (int32_t)least(f->least_apart, INT32_MAX) : 0;
}

static inline const sent *latest_sent(const half *x) { return x->control.number > x->data.number ? &x->control : &x->data; }

static inline int64_t unwrapped(uint32_t wire, int64_t near) { return near + (int32_t)(wire - (uint32_t)near); }

static inline int64_t round_trip_to(const flow *f, const half *x)
{
    int64_t fastest_ack = x->fastest_ack == NEVER ? 0 : x->fastest_ack;
    return least(f->handshake < 0 ? fastest_ack : f->handshake, TIME_WAIT) * 9 / 8;
}

static inline int32_t full_size_of(const half *x) { return x->full_size_by_data ? x->full_size_by_data : x->full_size_by_mss; }

static inline int32_t full_size_or_least(const flow *f, const half *x)
{
    return full_size_of(x) ? full_size_of(x) : f->least_full_segment;
}

static inline int is_closed(const flow *f) { return f->halves[0].closed && f->halves[1].closed; }

static inline int is_over(const flow *f)
{
    const half *one = &f->halves[0], *two = &f->halves[1];
    return (one->closed || !one->packets) && (two->closed || !two->packets);
}

static inline int is_one_way(const flow *f) { return !f->halves[0].packets || !f->halves[1].packets; }

static inline int is_not_later(const segment *s, const identity *before, int64_t latest)
{
    return s->ts >= before->ts && s->ts - before->ts <= latest;
}

static inline int64_t latest_copy(const segment *s, int copied)
{
    return copied ? (s->timestamps ? LATE_COPY : COPY) : s->timestamps ? COPY : SURELY_COPY;
}

static inline int is_same(const segment *s, const identity *before, int copied)
{
    if (s->seq != before->seq || s->length != before->length || s->flags != before->flags)
        return 0;
    if (s->ip_id && before->ip_id)
        return s->ip_id == before->ip_id;
    int is_sure = s->flags & SYN || s->ttl != before->ttl;
    if (!(is_sure || copied || s->length))
        return 0;
    return is_not_later(s, before, is_sure ? LATE_COPY : latest_copy(s, copied));
}

static inline int is_part(const segment *s, const identity *before)
{
    int is_before = s->length >= before->length; /* the part */
    int32_t part = least(s->length, before->length), whole = most(s->length, before->length);
    uint32_t offset = is_before ? before->seq - s->seq : s->seq - before->seq;
    int64_t rest = (int64_t)whole - part - offset;
    if (!part || part == whole || rest < 0 || (rest && is_before) || (s->flags ^ before->flags) & ~PSH)
        return 0;
    if (s->ip_id && before->ip_id) {
        uint16_t number = is_before ? before->ip_id - s->ip_id : s->ip_id - before->ip_id;
        if ((number ? offset % number : offset) || offset < number * (uint32_t)LEAST_MSS)
            return 0;
    }
    return is_not_later(s, before, latest_copy(s, 1));
}

static inline int is_copy(const segment *s, const flow *f, int side)
{
    const half *x = &f->halves[side];
    for (uint64_t i = x->kept; i && x->kept - i < RECENT; i--) {
        const identity *before = &x->recent[(i - 1) % RECENT];
        if (s->ack != before->ack || s->window != before->window || s->tsval != before->tsval)
            continue;
        if (is_same(s, before, f->is_copied) || (f->is_copied && is_part(s, before)))
            return 1;
    }
    return 0;
}

static inline void note_copy(flow *f, int side, const segment *s)
{
    half *x = &f->halves[side];
    const identity *newest = &x->recent[(x->kept - 1) % RECENT];
    int is_newest = s->seq == newest->seq && s->ack == newest->ack && s->length == newest->length && s->ip_id == newest->ip_id;
    if (is_newest && f->sender == side && s->ts - newest->ts > SAME_PLACE) {
        x->copied = f->packets - 1;
        x->arrived = s->ts - SAME_PLACE;
    }
}

/* Half.arrival_of */
static inline int64_t arrival_of(const half *x, int64_t number, int64_t ts) { return number == x->copied ? x->arrived : ts; }

static inline int leaves_ids_zero(const half *x)
{
    int ids = x->is_ipv6;
    for (uint64_t i = 0; i < x->kept && i < RECENT; i++)
        ids |= x->recent[i].ip_id;
    return !ids;
}

/* Half.recent */
static inline void remember(half *x, const segment *s)
{
    x->recent[x->kept++ % RECENT] =
        (identity){s->ts, s->seq, s->ack, s->tsval, s->length, s->flags, s->window, s->ip_id, s->ttl};
}

static inline int is_after(uint32_t one, uint32_t other) { return (int32_t)(one - other) > 0; }

static inline int window_shift(const flow *f, int side)
{
    const half *x = &f->halves[side], *y = &f->halves[1 - side];
    int is_there = x->syn >= 0, other_is = y->syn >= 0, scale = x->scale < LARGEST_SCALE ? x->scale : LARGEST_SCALE;
    if (x->scale < -1 || y->scale < -1)
        return LARGEST_SCALE;
    if (is_there && other_is)
        return x->scale >= 0 && y->scale >= 0 ? scale : 0;
    if ((is_there || other_is) && x->scale < 0 && y->scale < 0)
        return 0;
    return is_there && side == 1 ? scale : LARGEST_SCALE;
}

static inline void learn_full_size_by_mss(flow *f)
{
    const half *one = &f->halves[0], *two = &f->halves[1];
    int64_t lesser = least(one->mss, two->mss), mss = lesser ? lesser : most(one->mss, two->mss);
    int64_t options = one->timestamps && two->timestamps ? TIMESTAMPS_OPTION : 0;
    int64_t surely_full = mss ? most(mss - options, 1) : LEAST_MSS;
    f->least_full_segment = (int32_t)(mss ? surely_full : USUAL_FULL_SIZE);
    for (int side = 0; side < 2; side++) {
        half *x = &f->halves[side];
        const half *y = &f->halves[1 - side];
        x->full_size_by_mss = (int32_t)(y->mss ? most(y->mss - options, 1) : 0);
        int64_t window = y->syn_window;
        int64_t half_window = window > LEAST_MSS ? window / 2 : window;
        x->surely_small_below = window >= 0 ? least(surely_full, half_window) : surely_full;
    }
}

static inline int is_half_of_window(const half *peer, int64_t length)
{
    return peer->rcv_nxt >= 0 && 2 * length >= peer->rcv_wnd;
}

static inline int echoes_uncaptured(const half *y, const segment *s)
{
    return s->timestamps && y->tsval >= 0 && is_after(s->tsecr, (uint32_t)y->tsval);
}

static inline void learn_full_size_by_data(half *x, const half *y, const segment *s)
{
    int32_t length = s->length;
    if (s->flags & PSH) {
        x->pushes = 1;
        return;
    }
    if (length < LEAST_LEARNED || length <= x->full_size_by_data || (x->full_size_by_mss && length > x->full_size_by_mss))
        return;
    if (is_half_of_window(y, length))
        return;
    if (!x->pushes && (x->snd_una >= x->data.end || echoes_uncaptured(y, s)))
        return;
    if (length == x->last_unpushed)
        x->full_size_by_data = length;
    x->last_unpushed = length;
}

static inline uint32_t clock_of(int64_t tsval, int64_t ts)
{
    return (uint32_t)(tsval - (ts / 1000000 - (ts % 1000000 < 0))); /* rounded down, before 1970, too */
}

static inline void learn_timestamps(half *x, const segment *s)
{
    uint32_t ahead = s->tsecr - s->tsval, clock = clock_of(s->tsval, s->ts);
    if (x->timestamp_step != 1 && x->tsval >= 0)
        x->timestamp_step = common_divisor(x->timestamp_step, s->tsval - x->tsval);
    if (x->tsval < 0) {
        x->first_tsval = s->tsval;
        x->first_tsval_ts = s->ts;
    }
    x->tsval = s->tsval;
    if (x->tsval_clock < 0 || is_after(clock, (uint32_t)x->tsval_clock))
        x->tsval_clock = clock;
    if ((s->flags & (ACK | SYN)) == ACK && (x->ahead < 0 || is_after(ahead, (uint32_t)x->ahead)))
        x->ahead = ahead;
}

static inline uint8_t timestamp_step(const half *x)
{
    int64_t life = x->last_ts - x->first_tsval_ts, moved = (uint32_t)(x->tsval - x->first_tsval);
    int64_t step = x->timestamp_step;
    if (x->tsval >= 0 && life >= LEAST_LIFE) {
        int is_shorter = 2 * (life / 1000000 + 1) < moved && moved <= INT32_MAX;
        step = is_shorter ? UINT8_MAX : most(step, life / 1000000 / (moved + 1));
    }
    return (uint8_t)least(step, UINT8_MAX);
}

static inline void forget_syn_proxy(flow *f, half *x, const segment *s)
{
    if (!x->data_segments && x->syn_ttl && s->ttl != x->syn_ttl) {
        x->fastest_ack = NEVER;
        x->tsval_clock = -1;
        f->handshake = -1;
        x->reacted[HANDSHAKE] = 0;
    }
}

static inline void keep_sample(half *x, int kind, int64_t ns)
{
    int64_t count = x->reacted[kind]++;
    x->reactions[kind][count < 2 * SAMPLES ? count : SAMPLES + count % SAMPLES] = (int32_t)least(most(ns, 0), INT32_MAX);
}

static inline void learn_syn(flow *f, int side, const segment *s)
{
    half *x = &f->halves[side];
    if (!(s->flags & (ACK | RST))) {
        if (side == 0 && f->packets)
            f->syn_ts = -1;
        f->syn = s->seq;
    }
    x->syn = s->seq;
    x->syn_window = s->window;
    x->mss = s->mss;
    x->scale = s->wscale;
    x->timestamps = s->timestamps;
    x->kernel = s->kernel;
    x->syn_ttl = s->ttl;
    for (int i = 0; i < 2; i++)
        f->halves[i].shift = (uint8_t)window_shift(f, i);
    learn_full_size_by_mss(f);
}

#endif
