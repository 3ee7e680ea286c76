/* The TCP machine: the twin of machine.py, function for function: see there for what each does. */
#include "machine.h"

#include <stdlib.h>
#include <string.h>

enum { FIN = 0x01, SYN = 0x02, RST = 0x04, PSH = 0x08, ACK = 0x10, CONTROL = SYN | FIN | RST };
enum { LEAST_MSS = 536, USUAL_FULL_SIZE = 1448, TIMESTAMPS_OPTION = 12, LARGEST_SCALE = 14 };
enum { LEAST_LEARNED = 500, RECENT = 4, SAMPLES = 8, MOST_SAMPLES = 4096, EPHEMERAL = 32768 };
enum { SWEEP = 1 << 15, MANY = 1 << 15, BLOCK = 1 << 10 };
enum { ACKNOWLEDGEMENT, ANSWER, CONTINUATION, RETRANSMISSION, WINDOW, OTHER }; /* EndedBy */
enum { UNKNOWN = -1, BEFORE = 0, AFTER = 1 };      /* Echo */
static const int64_t SHORT = 1000000, FULL_WAIT = 5000000, RIDDEN_RELEASE = 1000000, COPY = 5000000;
static const int64_t LATE = 20000000, IDLE = 20000000, PROBE = 200000000;
static const int64_t TIME_WAIT = 60000000000, FIRST_NUMBER = (int64_t)1 << 32, NEVER = INT64_MAX;

typedef struct { /* Sent */
    int64_t number;
    int64_t ts;
    int64_t frame;
    int64_t start;
    int64_t end;
    int64_t edge;
    int32_t length;
    int32_t epoch;
    int32_t exchange;
    uint16_t flags;
    uint8_t is_new;
} sent;

typedef struct { /* PureAck */
    int64_t number;
    int64_t ts;
    int64_t frame;
    int64_t ack;
    int64_t acked_before;
    int64_t idle;
    int64_t tsval; /* -1 none */
    int64_t tsval_before;
    uint16_t window;
    uint8_t had_room;
    uint8_t is_echoed;
} pure_ack;

typedef struct { /* of a segment, to tell a copy of it */
    int64_t ts;
    uint32_t seq;
    uint32_t ack;
    uint32_t tsval;
    int32_t length;
    uint16_t flags;
    uint16_t window;
    uint16_t ip_id;
} identity;

typedef struct { /* Half */
    int64_t seq;
    int64_t snd_nxt;
    int64_t ack;
    int64_t acked;
    int64_t window;
    int64_t reaction;
    int64_t packets;
    int64_t segments;
    int64_t payload;
    int64_t wire;
    sent data;
    pure_ack pure_ack;
    pure_ack data_ack;
    int64_t tsval;
    int64_t ahead;
    int32_t reactions[REACTIONS][2 * SAMPLES];
    int64_t reacted[REACTIONS];
    identity recent[RECENT];
    uint64_t kept; /* how many there have been */
    int32_t data_segments;
    int32_t lost;
    int32_t swapped;
    int32_t full_waits;
    int32_t full_size;
    int32_t learning;
    int32_t largest;
    sent control; /* the latest SYN or FIN without data: with `data`, Half.consuming */
    int64_t syn;
    int64_t syn_window;
    int64_t is_small_below;
    int32_t nagle_off;
    int32_t fin_acks;
    uint16_t mss;
    int8_t scale;
    uint8_t shift;
    uint8_t timestamps;
    uint8_t closed;
    uint8_t pushes;
} half;

struct flow { /* Connection */
    uint8_t address[32];
    uint16_t port[2];
    uint32_t self; /* number in the blocks */
    uint32_t older; /* live neighbours in order of appearance; NONE */
    uint32_t newer;
    int64_t number;
    int64_t first_frame;
    int64_t first_ts;
    int64_t last_ts;
    int64_t packets;
    int64_t syn;
    int64_t syn_ts;
    int64_t handshake;
    int64_t request[2]; /* times of first and last segment */
    int64_t response[2];
    int64_t asked;
    int32_t full_size;
    int32_t exchange;
    int32_t answered;
    int32_t repeat;
    int8_t latest_data; /* side that sent data last; -1 none */
    int8_t opener;
    int8_t sender; /* side of the last packet; -1 none */
    uint8_t asking;
    uint8_t greeted;
    uint8_t has_candidates;
    uint8_t is_copied;
    half halves[2];
};

#define NONE UINT32_MAX

static inline int64_t least(int64_t a, int64_t b) { return a < b ? a : b; }

static inline int64_t most(int64_t a, int64_t b) { return a > b ? a : b; }

static inline flow *flow_at(const machine *m, uint32_t i) { return &m->blocks[i / BLOCK][i % BLOCK]; }

static inline int client_of(const flow *f)
{
    if (f->halves[0].syn >= 0 || f->halves[1].syn >= 0)
        return 0;
    int one = f->port[0] >= EPHEMERAL, two = f->port[1] >= EPHEMERAL;
    return one != two ? two : f->opener > 0 ? f->opener : 0;
}

static inline const sent *consuming(const half *x) { return x->control.number > x->data.number ? &x->control : &x->data; }

static inline int64_t unwrapped(uint32_t wire, int64_t near) { return near + (int32_t)(wire - (uint32_t)near); }

/* ------------------------------------------------------------------------------------------------- exchanges */

static inline int64_t duration(int64_t begin, int64_t end) { return end >= begin ? end - begin : -1; }

static int count_duration(machine *m, int which, int64_t ns)
{
    if (ns < 0)
        return 0;
    int64_t steps = ns / 1000, rest = ns % 1000;
    steps += 2 * rest > 1000 || (2 * rest == 1000 && steps % 2 == 1);
    m->counters.total[which] = least(m->counters.total[which] + ns, (int64_t)1 << 62);
    return counted_add(&m->durations[which], steps, 1);
}

/* Whether it has request and answer; -1 where memory ran out. */
static int end_exchange(machine *m, flow *f)
{
    int64_t asked = f->request[0], asked_last = f->request[1], acked = f->asked;
    int64_t answered = f->response[0], answered_last = f->response[1];
    f->request[0] = f->response[0] = NEVER;
    f->request[1] = f->response[1] = -1;
    f->asked = -1;
    if (asked == NEVER) {
        f->greeted |= f->exchange == 0;
        return 0;
    }
    if (answered == NEVER)
        return 0;
    f->answered++;
    f->repeat += f->exchange > 0;
    exchange row = {f->number, asked, duration(asked_last, acked), duration(asked_last, answered),
                    duration(asked, answered_last), f->exchange};
    if (count_duration(m, TO_ACK, row.to_ack) || count_duration(m, TO_RESPONSE, row.to_response) ||
        count_duration(m, TOTAL, row.total))
        return -1;
    if (m->list_exchanges && table_add(m, EXCHANGE, &row, sizeof row))
        return -1;
    return 1;
}

/* The number of the exchange that new data belongs to; -2 where memory ran out. */
static int32_t exchange_of(machine *m, flow *f, int side, int64_t ts)
{
    if (f->opener < 0)
        f->opener = (int8_t)side;
    int asks = side == client_of(f);
    if (f->exchange < 0 || (asks && !f->asking)) {
        if (end_exchange(m, f) < 0)
            return -2;
        f->exchange++;
    }
    f->asking = (uint8_t)asks;
    int64_t *times = asks ? f->request : f->response;
    times[0] = least(times[0], ts);
    times[1] = most(times[1], ts);
    return f->exchange;
}

/* ----------------------------------------------------------------------------------------------- connections */

static inline uint64_t hash_end(const uint8_t *address, uint16_t port)
{
    uint64_t hi, lo;
    memcpy(&hi, address, 8);
    memcpy(&lo, address + 8, 8);
    return mix(lo ^ hi * 0xC2B2AE3D27D4EB4Full ^ (uint64_t)port << 48 ^ port);
}

/* The same for both directions. */
static inline uint64_t hash_ends(const uint8_t *one, uint16_t port, const uint8_t *other, uint16_t other_port)
{
    uint64_t a = hash_end(one, port), b = hash_end(other, other_port);
    return mix(a + b) ^ a ^ b;
}

static inline uint64_t hash_flow(const flow *f) { return hash_ends(f->address, f->port[0], f->address + 16, f->port[1]); }

/* Which side of a connection sent the segment; -1: it is another connection's. */
static inline int side_of(const flow *f, const segment *s)
{
    if (s->sport == f->port[0] && s->dport == f->port[1] && !memcmp(f->address, s->src, 16) &&
        !memcmp(f->address + 16, s->dst, 16))
        return 0;
    if (s->sport == f->port[1] && s->dport == f->port[0] && !memcmp(f->address, s->dst, 16) &&
        !memcmp(f->address + 16, s->src, 16))
        return 1;
    return -1;
}

static int grow_slots(machine *m)
{
    int64_t n = m->n_slots ? 2 * m->n_slots : 1 << 10;
    uint32_t *slots = calloc((size_t)n, sizeof *slots);
    if (!slots)
        return -1;
    for (int64_t i = 0; i < m->n_slots; i++) {
        if (!m->slots[i])
            continue;
        uint64_t at = hash_flow(flow_at(m, m->slots[i] - 1)) & (uint64_t)(n - 1);
        while (slots[at])
            at = (at + 1) & (uint64_t)(n - 1);
        slots[at] = m->slots[i];
    }
    free(m->slots);
    m->slots = slots;
    m->n_slots = n;
    return 0;
}

static void remove_slot(machine *m, const flow *f)
{
    uint64_t mask = (uint64_t)m->n_slots - 1, at = hash_flow(f) & mask;
    while (m->slots[at] != f->self + 1)
        at = (at + 1) & mask;
    uint64_t hole = at;
    for (;;) { /* what follows moves up, unless it is before its own place then */
        m->slots[hole] = 0;
        do {
            at = (at + 1) & mask;
            if (!m->slots[at])
                return;
        } while (((at - hash_flow(flow_at(m, m->slots[at] - 1))) & mask) < ((at - hole) & mask));
        m->slots[hole] = m->slots[at];
        hole = at;
    }
}

/* A place in the blocks; NONE where memory ran out. */
static uint32_t new_place(machine *m)
{
    if (m->free_list == NONE) {
        flow **blocks = realloc(m->blocks, (size_t)(m->n_blocks + 1) * sizeof *blocks);
        if (!blocks)
            return NONE;
        m->blocks = blocks;
        if (!(blocks[m->n_blocks] = malloc(BLOCK * sizeof(flow))))
            return NONE;
        for (uint32_t i = 0; i < BLOCK; i++) {
            flow *f = &blocks[m->n_blocks][i];
            f->self = (uint32_t)(m->n_blocks * BLOCK + i);
            f->newer = i + 1 < BLOCK ? f->self + 1 : NONE;
        }
        m->free_list = blocks[m->n_blocks++][0].self;
    }
    uint32_t place = m->free_list;
    m->free_list = flow_at(m, place)->newer;
    return place;
}

static void programs_free(programs *p)
{
    free(p->key);
    free(p->number);
    free(p->sampled);
}

/* Whether memory ran out. */
static int program_of(machine *m, const uint8_t *address, uint16_t port, int32_t *number)
{
    programs *p = &m->programs;
    uint8_t key[18];
    memcpy(key, address, 16);
    memcpy(key + 16, &port, 2);
    if (2 * (int64_t)(p->used + 1) > p->slots) {
        programs grown = {NULL, NULL, NULL, p->slots ? 2 * p->slots : 64, p->used};
        grown.key = malloc((size_t)grown.slots * 18);
        grown.number = malloc((size_t)grown.slots * 4);
        grown.sampled = calloc((size_t)grown.slots / 2, sizeof *grown.sampled);
        if (!grown.key || !grown.number || !grown.sampled) {
            programs_free(&grown);
            return -1;
        }
        memset(grown.number, 0xFF, (size_t)grown.slots * 4);
        if (p->used)
            memcpy(grown.sampled, p->sampled, (size_t)p->used * sizeof *grown.sampled);
        for (int64_t i = 0; i < p->slots; i++) {
            if (p->number[i] < 0)
                continue;
            uint16_t its_port;
            memcpy(&its_port, p->key[i] + 16, 2);
            uint64_t at = hash_end(p->key[i], its_port) & (uint64_t)(grown.slots - 1);
            while (grown.number[at] >= 0)
                at = (at + 1) & (uint64_t)(grown.slots - 1);
            memcpy(grown.key[at], p->key[i], 18);
            grown.number[at] = p->number[i];
        }
        programs_free(p);
        *p = grown;
    }
    uint64_t at = hash_end(address, port) & (uint64_t)(p->slots - 1);
    while (p->number[at] >= 0 && memcmp(p->key[at], key, 18))
        at = (at + 1) & (uint64_t)(p->slots - 1);
    if (p->number[at] < 0) {
        memcpy(p->key[at], key, 18);
        p->number[at] = p->used++;
    }
    *number = p->number[at];
    return 0;
}

static inline int32_t full_segment(const half *x) { return x->largest ? x->largest : x->full_size; }

/* The samples of a connection whose ends are those programs. */
static int add_reactions(machine *m, const flow *f, const int32_t *program)
{
    for (int side = 0; side < 2; side++) {
        const half *x = &f->halves[side];
        int32_t *own = m->programs.sampled[program[side]][0], *of_peers = m->programs.sampled[program[1 - side]][1];
        for (int kind = 0; kind < REACTIONS; kind++) {
            int64_t count = least(x->reacted[kind], 2 * SAMPLES);
            if (own[kind] >= MOST_SAMPLES && of_peers[kind] >= MOST_SAMPLES)
                continue;
            own[kind] += (int32_t)count;
            of_peers[kind] += (int32_t)count;
            for (int64_t i = 0; i < count; i++) {
                reaction row = {f->number, x->reactions[kind][i], (int8_t)side, (int8_t)kind, 0};
                if (table_add(m, REACTION, &row, sizeof row))
                    return -1;
            }
        }
    }
    return 0;
}

static int close_connection(machine *m, flow *f)
{
    const half *one = &f->halves[0], *two = &f->halves[1];
    int32_t number = f->exchange;
    int is_full = end_exchange(m, f), client = client_of(f);
    if (is_full < 0)
        return -1;
    connection row = {
        .number = f->number, .first_frame = f->first_frame, .first_ts = f->first_ts, .packets = {one->packets, two->packets},
        .segments = {one->segments, two->segments}, .payload = {one->payload, two->payload},
        .wire = {one->wire, two->wire},
        .reaction = {one->reaction == NEVER ? -1 : one->reaction, two->reaction == NEVER ? -1 : two->reaction},
        .handshake = f->handshake, .syn = {one->syn, two->syn}, .ahead = {one->ahead, two->ahead}, .nagle_off = {one->nagle_off, two->nagle_off},
        .fin_acks = {one->fin_acks, two->fin_acks}, .program = {-1, -1},
        .data_segments = {one->data_segments, two->data_segments}, .lost = {one->lost, two->lost},
        .swapped = {one->swapped, two->swapped},
        .full_waits = {one->full_waits, two->full_waits}, .full_segment = {full_segment(one), full_segment(two)},
        .full_size = f->full_size,
        .answered = f->answered, .repeat = f->repeat, .open = is_full ? -1 : number, .first_stalled = -1,
        .last_stalled = -1, .followed = (int32_t)(one->reacted[RELEASE] + two->reacted[RELEASE]), .port = {f->port[0], f->port[1]}, .client = (int8_t)client,
        .syns = one->syn >= 0 && two->syn >= 0, .greeted = f->greeted,
    };
    memcpy(row.address, f->address, 32);
    if ((f->has_candidates || one->nagle_off || two->nagle_off) &&
        (program_of(m, f->address, client ? f->port[0] : 0, &row.program[0]) ||
                              program_of(m, f->address + 16, client ? 0 : f->port[1], &row.program[1])))
        return -1;
    if (f->has_candidates && add_reactions(m, f, row.program))
        return -1;
    return table_add(m, CONNECTION, &row, sizeof row);
}

static int forget(machine *m, flow *f)
{
    remove_slot(m, f);
    if (f->older != NONE)
        flow_at(m, f->older)->newer = f->newer;
    else
        m->oldest = f->newer;
    if (f->newer != NONE)
        flow_at(m, f->newer)->older = f->older;
    else
        m->newest = f->older;
    m->live--;
    int failed = close_connection(m, f);
    f->newer = m->free_list;
    m->free_list = f->self;
    return failed;
}

/* Makes it the newest of the live ones; there is room among the slots. */
static void enlist(machine *m, flow *f, uint32_t place)
{
    f->self = place;
    f->older = m->newest;
    f->newer = NONE;
    if (m->newest != NONE)
        flow_at(m, m->newest)->newer = place;
    else
        m->oldest = place;
    m->newest = place;
    m->live++;
    uint64_t at = hash_flow(f) & (uint64_t)(m->n_slots - 1);
    while (m->slots[at])
        at = (at + 1) & (uint64_t)(m->n_slots - 1);
    m->slots[at] = place + 1;
}

static flow *open_connection(machine *m, const segment *s)
{
    if (2 * (m->live + 1) > m->n_slots && grow_slots(m))
        return NULL;
    uint32_t place = new_place(m);
    if (place == NONE)
        return NULL;
    flow *f = flow_at(m, place);
    memset(f, 0, sizeof *f);
    int is_answer = (s->flags & (SYN | ACK)) == (SYN | ACK);
    memcpy(f->address + 16 * is_answer, s->src, 16);
    memcpy(f->address + 16 * !is_answer, s->dst, 16);
    f->port[is_answer] = s->sport;
    f->port[!is_answer] = s->dport;
    f->number = m->counters.connections++;
    f->first_frame = s->frame;
    f->first_ts = f->last_ts = s->ts;
    f->syn = f->handshake = f->asked = -1;
    f->syn_ts = (s->flags & (SYN | ACK | RST)) == SYN ? s->ts : -1;
    f->request[0] = f->response[0] = NEVER;
    f->request[1] = f->response[1] = -1;
    f->full_size = USUAL_FULL_SIZE;
    f->exchange = -1;
    f->latest_data = f->opener = f->sender = -1;
    for (int side = 0; side < 2; side++) {
        half *x = &f->halves[side];
        x->seq = x->ack = x->syn = x->syn_window = -1;
        x->reaction = NEVER;
        x->tsval = x->ahead = -1;
        x->data.number = x->control.number = x->pure_ack.number = x->data_ack.number = -1;
        x->data.epoch = x->control.epoch = x->data.exchange = x->control.exchange = -1;
        x->data.edge = x->control.edge = -1;
        x->scale = -1;
        x->shift = LARGEST_SCALE;
        x->is_small_below = LEAST_MSS;
    }
    enlist(m, f, place);
    return f;
}

static inline int is_closed(const flow *f) { return f->halves[0].closed && f->halves[1].closed; }

static inline int is_over(const flow *f)
{
    const half *one = &f->halves[0], *two = &f->halves[1];
    return (one->closed || !one->packets) && (two->closed || !two->packets);
}

static inline int is_one_way(const flow *f) { return !f->halves[0].packets || !f->halves[1].packets; }

static int begins_anew(const flow *f, const segment *s)
{
    if ((s->flags & (SYN | ACK | RST)) == SYN)
        return s->seq != f->syn;
    return is_closed(f) && s->ts - f->last_ts > TIME_WAIT;
}

static int by_age(const void *one, const void *other)
{
    const flow *a = *(flow *const *)one, *b = *(flow *const *)other;
    if (a->last_ts != b->last_ts)
        return a->last_ts < b->last_ts ? -1 : 1;
    return a->number < b->number ? -1 : 1;
}

static int sweep(machine *m, int64_t now)
{
    m->until_sweep = SWEEP;
    for (uint32_t i = m->oldest, next; i != NONE; i = next) {
        flow *f = flow_at(m, i);
        next = f->newer;
        if (is_over(f) && now - f->last_ts > TIME_WAIT && forget(m, f))
            return -1;
    }
    int64_t too_many = m->live - MANY, n = 0;
    if (too_many <= 0)
        return 0;
    flow **idle = malloc((size_t)m->live * sizeof *idle);
    if (!idle)
        return -1;
    for (uint32_t i = m->oldest; i != NONE; i = flow_at(m, i)->newer)
        if (is_over(flow_at(m, i)) || is_one_way(flow_at(m, i)))
            idle[n++] = flow_at(m, i);
    qsort(idle, (size_t)n, sizeof *idle, by_age);
    int failed = 0;
    for (int64_t i = 0; i < n && i < too_many && !failed; i++)
        failed = forget(m, idle[i]);
    free(idle);
    return failed;
}

/* ----------------------------------------------------------------------------------------------- one segment */

static int is_copy(const segment *s, const flow *f, int side)
{
    const half *x = &f->halves[side];
    for (uint64_t i = x->kept; i && x->kept - i < RECENT; i--) {
        const identity *before = &x->recent[(i - 1) % RECENT];
        if (s->seq != before->seq || s->ack != before->ack || s->flags != before->flags || s->length != before->length ||
            s->window != before->window || s->tsval != before->tsval)
            continue;
        if (s->ip_id && before->ip_id) {
            if (s->ip_id == before->ip_id)
                return 1;
        } else if (s->timestamps && s->ts >= before->ts && s->ts - before->ts <= COPY &&
                   (s->length || s->flags & SYN || f->is_copied)) {
            return 1;
        }
    }
    return 0;
}

/* Half.recent */
static inline void remember(half *x, const segment *s)
{
    x->recent[x->kept++ % RECENT] =
        (identity){s->ts, s->seq, s->ack, s->tsval, s->length, s->flags, s->window, s->ip_id};
}

static inline int is_after(uint32_t one, uint32_t other) { return (int32_t)(one - other) > 0; }

static int window_shift(const flow *f, int side)
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

static void learn_full_size(flow *f)
{
    const half *one = &f->halves[0], *two = &f->halves[1];
    int64_t lesser = least(one->mss, two->mss), mss = lesser ? lesser : most(one->mss, two->mss);
    int64_t options = one->timestamps && two->timestamps ? TIMESTAMPS_OPTION : 0;
    int64_t surely_full = mss ? most(mss - options, 1) : LEAST_MSS;
    f->full_size = (int32_t)(mss ? surely_full : USUAL_FULL_SIZE);
    for (int side = 0; side < 2; side++) {
        half *x = &f->halves[side];
        const half *y = &f->halves[1 - side];
        int64_t its_mss = y->mss ? y->mss : mss, window = y->syn_window;
        x->full_size = (int32_t)(its_mss ? most(its_mss - options, 1) : 0);
        int64_t half_window = window > LEAST_MSS ? window / 2 : window;
        x->is_small_below = window >= 0 ? least(surely_full, half_window) : surely_full;
    }
}

static void learn_full_segment(half *x, const segment *s)
{
    int32_t length = s->length;
    if (s->flags & PSH) {
        x->pushes = 1;
        return;
    }
    if (length < LEAST_LEARNED || length <= x->largest || (x->full_size && length > x->full_size))
        return;
    if (length == x->learning)
        x->largest = length;
    x->learning = length;
}

static void learn_clock(half *x, const segment *s)
{
    uint32_t ahead = s->tsecr - s->tsval;
    if (x->ahead < 0 || is_after(ahead, (uint32_t)x->ahead))
        x->ahead = ahead;
}

static void keep_sample(half *x, int kind, int64_t ns)
{
    int64_t count = x->reacted[kind]++;
    x->reactions[kind][count < 2 * SAMPLES ? count : SAMPLES + count % SAMPLES] = (int32_t)least(most(ns, 0), INT32_MAX);
}

static void learn_syn(flow *f, int side, const segment *s)
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
    for (int i = 0; i < 2; i++)
        f->halves[i].shift = (uint8_t)window_shift(f, i);
    learn_full_size(f);
}

static int64_t acknowledged(flow *f, int side, const segment *s)
{
    half *x = &f->halves[side], *y = &f->halves[1 - side];
    if (y->seq < 0)
        y->seq = FIRST_NUMBER + s->ack;
    return unwrapped(s->ack, x->ack >= 0 ? x->ack : y->seq);
}

static int ended_by(const flow *f, int side, const segment *s, int64_t start, int64_t ack)
{
    const half *x = &f->halves[side], *y = &f->halves[1 - side];
    if (!s->length) {
        if (x->ack >= 0 && x->window == 0)
            return WINDOW;
        return s->flags & ACK && ack > x->acked ? ACKNOWLEDGEMENT : OTHER;
    }
    if (y->ack >= 0 && x->data.number >= 0 && x->snd_nxt >= y->ack + y->window)
        return WINDOW;
    if (start < x->snd_nxt)
        return RETRANSMISSION;
    return x->data.number > y->data.number ? CONTINUATION : ANSWER;
}

static int is_small_behind_small(const flow *f, const half *x, const segment *s, const sent *before)
{
    int64_t limit = x->is_small_below, full_size = f->full_size;
    int64_t tail = limit == full_size ? before->length % full_size : before->length;
    int is_whole = before->flags & PSH || !x->pushes;
    return is_whole && s->length < limit && 0 < tail && tail < limit && !(s->flags & FIN) &&
           s->ts - before->ts < PROBE;
}

static int is_released_by(const half *x, const half *y, const sent *trigger, const pure_ack *ack, const segment *s)
{
    return ack->acked_before < trigger->end && trigger->end <= ack->ack && ack->ack == x->snd_nxt && ack->had_room &&
           (trigger->edge < 0 || trigger->edge >= trigger->end + s->length) &&
           (y->shift != LARGEST_SCALE || ack->window != trigger->length);
}

static int is_full_segment_waiting(const half *x, const half *y, const segment *s, const sent *before, const pure_ack *ack)
{
    int has_waited = ack->number > before->number && ack->ts - before->ts >= FULL_WAIT && s->ts - ack->ts < SHORT;
    return has_waited && is_released_by(x, y, before, ack, s);
}

static int64_t arrived_since(const machine *m, int64_t ts, const uint8_t *host, int64_t number)
{
    for (uint64_t i = m->n_passed; i && m->n_passed - i < LATEST; i--) {
        const passed *p = &m->latest[(i - 1) % LATEST];
        if (p->ts <= ts)
            break;
        if (p->has_data && p->connection != number && !memcmp(p->hosts + 16, host, 16))
            return p->connection;
    }
    return -1;
}

static int64_t busy_since(const machine *m, int64_t ts, const uint8_t *host)
{
    for (uint64_t i = m->n_passed; i && m->n_passed - i < LATEST; i--) {
        const passed *p = &m->latest[(i - 1) % LATEST];
        if (p->ts <= ts)
            break;
        if (!memcmp(p->has_data ? p->hosts : p->hosts + 16, host, 16))
            return p->ts;
    }
    return ts;
}

static uint8_t is_announced(const sent *trigger, const segment *s)
{
    return trigger->flags & PSH && !(s->flags & PSH);
}

static int not_waited(machine *m, flow *f, int side, const segment *s, const sent *before, int32_t number)
{
    const half *y = &f->halves[1 - side];
    int echo = UNKNOWN;
    f->has_candidates = 1;
    if (s->timestamps && y->tsval >= 0) {
        echo = BEFORE;
        if (is_after(s->tsecr, (uint32_t)y->tsval)) {
            candidate row = {f->number, before->frame, 0, s->frame, s->ts, s->ts - before->ts, 0, 0, 0, -1, -1, number,
                             before->length, s->length, (int8_t)side, 1, AFTER, is_announced(before, s)};
            return table_add(m, CANDIDATE, &row, sizeof row);
        }
    }
    if (s->ts - before->ts >= PROBE)
        return 0;
    unheld row = {f->number, before->frame, s->frame, s->ts - before->ts, before->length, s->length, (int8_t)side,
                  (int8_t)echo, 0, 0};
    return table_add(m, UNHELD, &row, sizeof row);
}

static int waited(machine *m, flow *f, int side, const segment *s, const pure_ack *ack, int is_pure, int32_t number)
{
    const half *x = &f->halves[side];
    const sent *trigger = &x->data;
    if (!is_released_by(x, &f->halves[1 - side], trigger, ack, s))
        return 0;
    int echo = UNKNOWN;
    if (s->timestamps && ack->tsval_before >= 0 && ack->tsval != ack->tsval_before)
        echo = s->tsecr == ack->tsval ? AFTER : ack->is_echoed && s->tsecr == ack->tsval_before ? BEFORE : UNKNOWN;
    f->has_candidates = 1;
    candidate row = {f->number, trigger->frame, ack->frame, s->frame, s->ts, ack->ts - trigger->ts, s->ts - ack->ts,
                     ack->idle, s->ts - busy_since(m, ack->ts, s->src), arrived_since(m, ack->ts, s->src, f->number),
                     s->timestamps ? (int64_t)(uint32_t)(s->tsecr - s->tsval) : -1, number, trigger->length, s->length,
                     (int8_t)side, (uint8_t)is_pure, (int8_t)echo, is_announced(trigger, s)};
    return table_add(m, CANDIDATE, &row, sizeof row);
}

static int64_t path_of(const flow *f) { return least(most(f->handshake, 0), TIME_WAIT) * 9 / 8; }

static int new_data(machine *m, flow *f, int side, const segment *s, int64_t start, int32_t number)
{
    half *x = &f->halves[side], *y = &f->halves[1 - side];
    const sent *before = &x->data;
    x->data_segments++;
    x->swapped += start + s->length <= y->acked;
    x->lost += x->seq >= 0 && start > x->snd_nxt;
    learn_full_segment(x, s);
    if (before->number < 0 || !before->is_new || before->epoch != s->epoch || start != x->snd_nxt)
        return 0;
    if (y->acked < before->end && is_small_behind_small(f, x, s, before))
        x->nagle_off++;
    if ((before->flags | s->flags) & CONTROL)
        return 0;
    int is_acked = y->pure_ack.number > before->number && y->data.number < y->pure_ack.number;
    if (s->ts - before->ts < SHORT) {
        if (is_acked && is_released_by(x, y, before, &y->pure_ack, s))
            keep_sample(x, RELEASE, s->ts - y->pure_ack.ts);
        return 0;
    }
    if (x->full_size && s->length >= x->full_size) {
        x->full_waits += is_full_segment_waiting(x, y, s, before, &y->pure_ack);
        return 0;
    }
    if (y->acked < before->end)
        return not_waited(m, f, side, s, before, number);
    if (is_acked)
        return waited(m, f, side, s, &y->pure_ack, 1, number);
    if (y->data_ack.number > before->number && s->ts - y->data_ack.ts < RIDDEN_RELEASE + path_of(f))
        return waited(m, f, side, s, &y->data_ack, 0, number);
    return 0;
}

static int answer(machine *m, flow *f, int side, const segment *s, const sent *answered, int is_pure)
{
    half *x = &f->halves[side];
    int64_t wait = s->ts - answered->ts;
    x->reaction = least(x->reaction, most(wait, 0));
    if ((answered->flags | s->flags) & SYN)
        keep_sample(x, HANDSHAKE, wait);
    else if (is_pure)
        keep_sample(x, BY_ACK, wait);
    else if (s->length)
        keep_sample(x, BY_DATA, wait);
    if (is_pure && wait >= LATE) {
        late_ack row = {f->number, (int32_t)least(wait, INT32_MAX), side};
        if (table_add(m, LATE_ACK, &row, sizeof row))
            return -1;
    } else if (is_pure && answered->flags & FIN && !answered->length) {
        x->fin_acks++;
    }
    int asks = answered->length && 1 - side == client_of(f);
    if (asks && answered->exchange >= 0 && answered->exchange == f->exchange && s->ts > f->asked)
        f->asked = s->ts;
    return 0;
}

static int acknowledge(machine *m, flow *f, int side, const segment *s, int64_t ack, int64_t idle, int64_t start)
{
    half *x = &f->halves[side], *y = &f->halves[1 - side];
    int is_pure = (s->flags & (CONTROL | ACK)) == ACK && !s->length;
    if (ack > x->acked) {
        const sent *answered = consuming(y);
        if (answered->end == ack && answered->is_new && answered->epoch == s->epoch &&
            answer(m, f, side, s, answered, is_pure))
            return -1;
    }
    if (is_pure || s->length) {
        uint8_t had_room = s->window > 0 && (x->ack < 0 || x->window > 0);
        pure_ack *this = is_pure ? &x->pure_ack : &x->data_ack;
        *this = (pure_ack){f->packets, s->ts, s->frame, ack, x->acked, idle, s->timestamps ? (int64_t)s->tsval : -1,
                           x->tsval, s->window, had_room, start <= y->acked};
    }
    if (f->syn_ts >= 0 && side == 0 && !(s->flags & SYN)) {
        f->handshake = s->ts - f->syn_ts;
        f->syn_ts = -1;
    }
    return 0;
}

static int take(machine *m, flow *f, int side, const segment *s)
{
    half *x = &f->halves[side], *y = &f->halves[1 - side];
    int flags = s->flags;
    int64_t length = s->length, ts = s->ts;
    int64_t start = x->seq >= 0 ? unwrapped(s->seq, x->seq) : FIRST_NUMBER + s->seq;
    int64_t end = start + length + !!(flags & SYN) + !!(flags & FIN);
    int64_t ack = flags & ACK ? acknowledged(f, side, s) : -1;
    int64_t idle = ts - f->last_ts;
    if (idle >= IDLE && f->latest_data >= 0 && (length || !(flags & CONTROL))) {
        idle_gap row = {idle, (int32_t)f->number, (int8_t)side, (int8_t)ended_by(f, side, s, start, ack),
                        length % f->full_size != 0, f->sender != side};
        if (table_add(m, IDLE_GAP, &row, sizeof row))
            return -1;
    }
    int32_t number = -1;
    if (length) {
        if (end > x->snd_nxt && (number = exchange_of(m, f, side, ts)) == -2)
            return -1;
        if (start >= x->snd_nxt && new_data(m, f, side, s, start, number))
            return -1;
    }
    if (s->timestamps && flags & ACK && !(flags & SYN))
        learn_clock(x, s);
    if (flags & ACK) {
        if (acknowledge(m, f, side, s, ack, idle, start))
            return -1;
        x->ack = ack;
        x->window = flags & SYN ? s->window : (int64_t)s->window << x->shift;
        x->acked = most(x->acked, ack);
    }
    if (end > start) {
        sent *now = length ? &x->data : &x->control;
        *now = (sent){f->packets, ts, s->frame, start, end, y->ack >= 0 ? y->ack + y->window : -1, s->length,
                      s->epoch, number, s->flags, start >= x->snd_nxt};
        if (length) {
            f->latest_data = (int8_t)side;
            if (f->opener < 0)
                f->opener = (int8_t)side;
        }
    }
    x->seq = start;
    x->snd_nxt = most(x->snd_nxt, end);
    if (s->timestamps)
        x->tsval = s->tsval;
    if (flags & (FIN | RST)) {
        x->closed = 1;
        y->closed |= !!(flags & RST);
    }
    x->packets++;
    x->segments += length > f->full_size ? (length + f->full_size - 1) / f->full_size : 1;
    x->payload += length;
    x->wire += s->wire;
    f->packets++;
    f->last_ts = ts;
    f->sender = (int8_t)side;
    return 0;
}

/* -------------------------------------------------------------------------------------------------- machine */

void machine_init(machine *m)
{
    m->free_list = m->oldest = m->newest = NONE;
    m->until_sweep = SWEEP;
    m->counters.first_ts = -1;
}

void machine_free(machine *m)
{
    for (int64_t i = 0; i < m->n_blocks; i++)
        free(m->blocks[i]);
    free(m->blocks);
    free(m->slots);
    programs_free(&m->programs);
    for (int i = 0; i < DURATIONS; i++)
        counted_free(&m->durations[i]);
    for (int i = 0; i < TABLES; i++)
        free(m->tables[i].bytes);
}

static int64_t common_divisor(int64_t a, int64_t b)
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

/* Machine.follow */
int machine_follow(machine *m, const segment *s)
{
    if (!m->counters.segments++)
        m->counters.first_ts = m->counters.last_ts = s->ts;
    if (m->counters.step != 1)
        m->counters.step = common_divisor(m->counters.step, s->ts - m->counters.last_ts);
    m->counters.last_ts = s->ts;
    flow *f = NULL;
    int side = -1;
    uint64_t mask = (uint64_t)m->n_slots - 1;
    uint64_t at = m->n_slots ? hash_ends(s->src, s->sport, s->dst, s->dport) & mask : 0;
    while (m->n_slots && m->slots[at]) {
        f = flow_at(m, m->slots[at] - 1);
        if ((side = side_of(f, s)) >= 0)
            break;
        at = (at + 1) & mask;
    }
    if (side < 0 || begins_anew(f, s)) {
        if (side >= 0 && forget(m, f))
            return -1;
        if (!(f = open_connection(m, s)))
            return -1;
        side = side_of(f, s);
    }
    if (is_copy(s, f, side)) {
        m->counters.copies++;
        f->is_copied |= s->length || s->flags & SYN;
        return 0;
    }
    remember(&f->halves[side], s);
    if (s->flags & SYN)
        learn_syn(f, side, s);
    if (take(m, f, side, s))
        return -1;
    passed *p = &m->latest[m->n_passed++ % LATEST];
    p->ts = s->ts;
    p->connection = f->number;
    p->has_data = s->length > 0;
    memcpy(p->hosts, s->src, 16);
    memcpy(p->hosts + 16, s->dst, 16);
    return --m->until_sweep ? 0 : sweep(m, s->ts);
}

int machine_finish(machine *m)
{
    while (m->oldest != NONE)
        if (forget(m, flow_at(m, m->oldest)))
            return -1;
    return 0;
}

/* ------------------------------------------------------------------------------------------------- snapshots */

static int pass_programs(machine *m, snapshot *s)
{
    const programs *p = &m->programs;
    int64_t used = p->used;
    if (snapshot_pass(s, &used, sizeof used) || used < 0 || used > INT32_MAX)
        return -1;
    uint8_t(*keys)[18] = calloc((size_t)used + 1, 18); /* in the order of their numbers */
    if (!keys)
        return -1;
    for (int64_t i = 0; s->to && i < p->slots; i++)
        if (p->number[i] >= 0)
            memcpy(keys[p->number[i]], p->key[i], 18);
    int failed = snapshot_pass(s, keys, used * 18);
    for (int64_t i = 0; !failed && !s->to && i < used; i++) {
        uint16_t port;
        int32_t number;
        memcpy(&port, keys[i] + 16, 2);
        failed = program_of(m, keys[i], port, &number);
    }
    free(keys);
    return failed || (used && snapshot_pass(s, p->sampled, used * (int64_t)sizeof *p->sampled)) ? -1 : 0;
}

/* The live connections, in order of appearance. */
static int pass_flows(machine *m, snapshot *s)
{
    int64_t live = m->live;
    if (snapshot_pass(s, &live, sizeof live))
        return -1;
    for (uint32_t at = m->oldest; s->to && at != NONE; at = flow_at(m, at)->newer)
        if (snapshot_pass(s, flow_at(m, at), sizeof(flow)))
            return -1;
    for (; !s->to && live > 0; live--) {
        if (2 * (m->live + 1) > m->n_slots && grow_slots(m))
            return -1;
        uint32_t place = new_place(m);
        if (place == NONE || snapshot_pass(s, flow_at(m, place), sizeof(flow)))
            return -1;
        enlist(m, flow_at(m, place), place);
    }
    return 0;
}

/* Machine.state: all but the rows that wait to be taken; a machine that reads it is new. */
int machine_pass(machine *m, snapshot *s)
{
    if (snapshot_pass(s, &m->counters, sizeof m->counters) || snapshot_pass(s, &m->until_sweep, sizeof m->until_sweep) ||
        snapshot_pass(s, &m->n_passed, sizeof m->n_passed) || snapshot_pass(s, m->latest, sizeof m->latest))
        return -1;
    for (int i = 0; i < DURATIONS; i++)
        if (counted_pass(&m->durations[i], s))
            return -1;
    return pass_programs(m, s) || pass_flows(m, s) ? -1 : 0;
}
