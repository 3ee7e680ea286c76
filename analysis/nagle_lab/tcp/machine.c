/* The TCP machine: the twin of machine.py and waited.py, rule for rule; see there for what each does. */
#include "machine.h"

#include <stdlib.h>
#include <string.h>

enum { HEADERS = 66, MOST_SAMPLES = 4096, SWEEP = 1 << 15, MANY = 1 << 15, ASKING = 128 };
enum { ACKNOWLEDGEMENT, ANSWER, CONTINUATION, RETRANSMISSION, WINDOW, OTHER, READING }; /* EndedBy */
enum { KEPT_BY_NOTHING, KEPT_BY_MSG_MORE, KEPT_BY_WINDOW };       /* KeptBy */
enum { UNKNOWN = -1, BEFORE = 0, AFTER = 1 };      /* Echo */
enum { NO_TIMESTAMPS = -1 };                       /* of `ahead`; or OPTIONS_CUT, then also the value of `wscale` */
static const int64_t SHORT = 1000000, FULL_WAIT = 5000000, PIGGYBACKED_RELEASE = 1000000, INITIAL_WINDOW = 10;
static const int64_t DELAYED = 20000000, IDLE = 20000000, PROBE = 200000000, PROBE_JIFFIES = 2000000;
static const int64_t MOST = (int64_t)1 << 62; /* durations.py */

/* ------------------------------------------------------------------------------------------------- exchanges */

static inline int64_t duration(int64_t begin, int64_t end) { return end >= begin ? end - begin : -1; }

static int count_duration(machine *m, int which, int64_t ns)
{
    if (ns < 0)
        return 0;
    int64_t steps = ns / 1000, rest = ns % 1000;
    steps += 2 * rest > 1000 || (2 * rest == 1000 && steps % 2 == 1);
    int64_t room = MOST - m->counters.total[which];
    m->counters.total[which] += least(ns, room);
    return counted_add(&m->durations[which], steps, 1);
}

/* Returns whether it has request and answer; -1 if memory ran out. */
static int end_exchange(machine *m, flow *f)
{
    int64_t request_began = f->request[0], request_ended = f->request[1], acked = f->request_acked;
    int64_t response_began = f->response[0], response_ended = f->response[1];
    f->request[0] = f->response[0] = NEVER;
    f->request[1] = f->response[1] = -1;
    f->request_acked = -1;
    if (request_began == NEVER) {
        f->server_first |= f->exchange == 0;
        return 0;
    }
    if (response_began == NEVER)
        return 0;
    f->exchanges++;
    f->repeat_exchanges += f->exchange > 0;
    exchange row = {f->number, request_began, duration(request_ended, acked), duration(request_ended, response_began),
                    duration(request_began, response_ended), f->exchange};
    if (count_duration(m, TO_ACK, row.to_ack) || count_duration(m, TO_RESPONSE, row.to_response) ||
        count_duration(m, TOTAL, row.total))
        return -1;
    if (m->list_exchanges && table_add(&m->tables[EXCHANGE], &row, sizeof row))
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
                if (table_add(&m->tables[REACTION], &row, sizeof row))
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
    int is_complete = end_exchange(m, f), client = client_of(f);
    if (is_complete < 0)
        return -1;
    int64_t next_seq[2];
    for (int side = 0; side < 2; side++)
        next_seq[side] = f->halves[side].seq >= 0 ? (int64_t)(uint32_t)f->halves[side].seq : -1;
    connection row = {
        .number = f->number, .first_frame = f->first_frame, .first_ts = f->first_ts, .last_ts = f->last_ts,
        .packets = {one->packets, two->packets},
        .segments = {one->packets + one->offloaded, two->packets + two->offloaded}, .payload = {one->payload, two->payload},
        .wire = {one->wire, two->wire},
        .fastest_ack = {one->fastest_ack == NEVER ? -1 : one->fastest_ack,
                        two->fastest_ack == NEVER ? -1 : two->fastest_ack},
        .handshake = f->handshake, .syn = {one->syn, two->syn}, .ahead = {one->ahead, two->ahead},
        .next_seq = {next_seq[0], next_seq[1]}, .tsval_clock = {one->tsval_clock, two->tsval_clock},
        .first_not_held = {one->first_not_held, two->first_not_held}, .not_held = {one->not_held, two->not_held},
        .fin_acks = {one->fin_acks, two->fin_acks}, .program = {-1, -1},
        .data_segments = {one->data_segments, two->data_segments}, .lost = {one->lost, two->lost},
        .swapped = {one->swapped, two->swapped},
        .full_waits = {one->full_waits, two->full_waits},
        .beside_unacked = {(int32_t)least(one->beside_unacked, INT32_MAX),
                           (int32_t)least(two->beside_unacked, INT32_MAX)},
        .full_segment = {full_size_of(one), full_size_of(two)},
        .least_full_segment = f->least_full_segment,
        .exchanges = f->exchanges, .repeat_exchanges = f->repeat_exchanges, .open_exchange = is_complete ? -1 : number,
        .first_stalled = -1, .last_stalled = -1, .followed = f->followed,
        .stale_echoes = {one->stale_echoes, two->stale_echoes}, .port = {f->port[0], f->port[1]},
        .answers_as_port = f->answers_as_port, .client = (int8_t)client,
        .syns = one->syn >= 0 && two->syn >= 0, .server_first = f->server_first, .kernel = {one->kernel, two->kernel},
        .timestamp_step = {timestamp_step(one), timestamp_step(two)},
        .clock_step = clock_step(f),
    };
    memcpy(row.address, f->address, 32);
    memcpy(row.answers_as, f->answers_as, 16);
    if (f->needs_programs || one->not_held || two->not_held) {
        row.program[0] = program_of(&m->programs, f->address, client ? f->port[0] : 0);
        row.program[1] = program_of(&m->programs, f->address + 16, client ? 0 : f->port[1]);
        if (row.program[0] < 0 || row.program[1] < 0)
            return -1;
    }
    if (f->needs_programs && add_reactions(m, f, row.program))
        return -1;
    return table_add(&m->tables[CONNECTION], &row, sizeof row);
}

static int forget(machine *m, flow *f)
{
    live_remove(&m->live, f);
    return close_connection(m, f);
}

/* Machine._compare_ends */
static void compare_ends(const machine *m, flow *f)
{
    int64_t one = m->ends[f->port[0]].count, two = m->ends[f->port[1]].count;
    if (one != two)
        f->shared = two > one;
}

/* Machine._note_end */
static void note_end(machine *m, const flow *f, int side, int count)
{
    int64_t before = m->ends[f->port[side]].count, place = m->ends[f->port[side]].place;
    if (!before) {
        m->ends[f->port[side]].first = f->number;
        m->ends[f->port[side]].place = f->self;
    }
    m->ends[f->port[side]].count = before + count;
    if (before != 1 || place == NONE)
        return;
    flow *first = live_at(&m->live, (uint32_t)place);
    if (first->number == m->ends[f->port[side]].first) /* no other connection has its place now */
        compare_ends(m, first);
}

static void learn_server(machine *m, flow *f, const segment *s)
{
    if (s->flags & SYN) {
        note_end(m, f, 1, SURELY);
    } else if (side_by_port(f) < 0) {
        note_end(m, f, 0, 1);
        note_end(m, f, 1, 1);
        compare_ends(m, f);
    }
}

static flow *open_connection(machine *m, const segment *s)
{
    flow *f = live_new(&m->live);
    if (!f)
        return NULL;
    int is_answer = (s->flags & (SYN | ACK)) == (SYN | ACK);
    memcpy(f->address + 16 * is_answer, s->src, 16);
    memcpy(f->address + 16 * !is_answer, s->dst, 16);
    f->port[is_answer] = s->sport;
    f->port[!is_answer] = s->dport;
    f->number = m->counters.connections++;
    f->first_frame = s->frame;
    f->first_ts = f->last_ts = s->ts;
    f->least_apart = NEVER;
    f->syn = f->handshake = f->request_acked = -1;
    f->syn_ts = -1;
    if ((s->flags & (SYN | ACK | RST)) == SYN) {
        f->syn_ts = s->ts;
        m->latest_asking = f->number;
    }
    f->request[0] = f->response[0] = NEVER;
    f->request[1] = f->response[1] = -1;
    f->least_full_segment = USUAL_FULL_SIZE;
    f->exchange = -1;
    f->latest_data = f->opener = f->shared = f->sender = -1;
    for (int side = 0; side < 2; side++) {
        half *x = &f->halves[side];
        x->seq = x->hole = x->not_held_end = x->rcv_nxt = x->syn = x->syn_window = x->copied = -1;
        x->fastest_ack = NEVER;
        x->last_ts = s->ts;
        x->tsval = x->tsval_clock = x->ahead = -1;
        x->data.number = x->control.number = x->pure_ack.number = x->data_ack.number = -1;
        x->small.number = x->small_ack.number = -1;
        x->data.epoch = x->control.epoch = x->data.exchange = x->control.exchange = -1;
        x->data.edge = x->control.edge = x->data.tsval = x->control.tsval = -1;
        x->scale = -1;
        x->shift = LARGEST_SCALE;
        x->surely_small_below = LEAST_MSS;
        x->is_ipv6 = !!memcmp(f->address + 16 * side, V4_MAPPED, sizeof V4_MAPPED);
    }
    live_list(&m->live, f);
    learn_server(m, f, s);
    return f;
}

static int is_answer_to(const flow *f, const segment *s) { return s->ack == (uint32_t)(f->syn + 1); }

static int begins_anew(const flow *f, const segment *s)
{
    if ((s->flags & (SYN | ACK | RST)) == SYN)
        return s->seq != f->syn;
    if (f->answers_elsewhere && (s->flags & (SYN | ACK)) == (SYN | ACK) && !is_answer_to(f, s))
        return 1;
    return is_closed(f) && s->ts - f->last_ts > TIME_WAIT;
}

/* Machine._asked_by */
static flow *asked_by(const machine *m, const segment *s)
{
    int64_t first = m->counters.connections - ASKING;
    if (m->latest_asking < first)
        return NULL;
    for (uint32_t at = m->live.newest; at != NONE;) {
        flow *f = live_at(&m->live, at);
        if (f->number < first)
            return NULL;
        if (f->port[0] == s->dport && f->syn >= 0 && is_answer_to(f, s) && !memcmp(f->address, s->dst, 16) &&
            !f->halves[1].packets)
            return f;
        at = f->older;
    }
    return NULL;
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
    for (uint32_t i = m->live.oldest, next; i != NONE; i = next) {
        flow *f = live_at(&m->live, i);
        next = f->newer;
        if (is_over(f) && now - f->last_ts > TIME_WAIT && forget(m, f))
            return -1;
    }
    int64_t too_many = m->live.count - MANY, n = 0;
    if (too_many <= 0)
        return 0;
    flow **idle = malloc((size_t)m->live.count * sizeof *idle);
    if (!idle)
        return -1;
    for (uint32_t i = m->live.oldest; i != NONE; i = live_at(&m->live, i)->newer)
        if (is_over(live_at(&m->live, i)) || is_one_way(live_at(&m->live, i)))
            idle[n++] = live_at(&m->live, i);
    qsort(idle, (size_t)n, sizeof *idle, by_age);
    int failed = 0;
    for (int64_t i = 0; i < n && i < too_many && !failed; i++)
        failed = forget(m, idle[i]);
    free(idle);
    return failed;
}

/* ----------------------------------------------------------------------------------------------- one segment */

static int64_t acknowledged(flow *f, int side, const segment *s)
{
    half *x = &f->halves[side], *y = &f->halves[1 - side];
    if (y->seq < 0)
        y->seq = FIRST_NUMBER + s->ack;
    return unwrapped(s->ack, x->rcv_nxt >= 0 ? x->rcv_nxt : y->seq);
}

static int echoes_older(const half *y, const segment *s, const sent *answered)
{
    int is_one = answered->start == y->snd_una && answered->tsval >= 0 && s->timestamps;
    return is_one && is_after((uint32_t)answered->tsval, s->tsecr);
}

static int32_t beyond_full(const half *x, const half *y, int64_t ack)
{
    if (x->kernel == BSD || (x->syn < 0 && leaves_ids_zero(x)))
        return 0;
    int64_t full = most(y->full_size_by_mss, y->full_size_by_data);
    if (!full && y->data.length >= LEAST_USUAL && y->data.start > y->snd_una)
        full = y->data.length;
    return full && x->rcv_nxt >= 0 ? (int32_t)most(ack - y->snd_una - full, 0) : 0;
}

static int64_t serialization_delay(const half *x, int64_t newly_acked)
{
    if (!x->newly_acked)
        return 0;
    int64_t bytes = least(most(newly_acked, 0), INT32_MAX);
    return least(x->ack_spacing * (bytes + HEADERS) / (x->newly_acked + HEADERS), INT32_MAX);
}

static int64_t time_under_way(const sent *trigger, const acknowledgement *ack)
{
    int64_t way = most(ack->before - trigger->ts, 0);
    if (way && ack->paced_since >= trigger->ts)
        way += ack->serialization_delay;
    return least(way, most(ack->ts - trigger->ts, 0));
}

static int ended_without_data(const half *x, const half *y, const segment *s, int64_t ack)
{
    if (x->rcv_nxt >= 0 && (x->rcv_wnd == 0 || y->snd_nxt >= x->rcv_nxt + x->rcv_wnd))
        return WINDOW;
    if (!(s->flags & ACK && ack > y->snd_una))
        return OTHER;
    return beyond_full(x, y, ack) ? READING : ACKNOWLEDGEMENT;
}

static int ended_by(const flow *f, int side, const segment *s, int64_t start, int64_t ack, int64_t idle)
{
    const half *x = &f->halves[side], *y = &f->halves[1 - side];
    if (!s->length)
        return ended_without_data(x, y, s, ack);
    if (y->rcv_nxt >= 0 && x->data.number >= 0 && x->snd_nxt >= y->rcv_nxt + y->rcv_wnd)
        return WINDOW;
    if (start < x->snd_nxt)
        return RETRANSMISSION;
    if (x->data.number <= y->data.number)
        return ANSWER;
    int is_probe = idle >= PROBE && 0 < x->snd_una && x->snd_una < x->data.end && !echoes_uncaptured(y, s);
    return is_probe ? RETRANSMISSION : CONTINUATION;
}

/* waited.may_be_probe */
static int may_be_probe(const flow *f, const half *x, const segment *s, const sent *before)
{
    int64_t took = s->ts - before->ts;
    int are_several = before->end - x->snd_una > full_size_or_least(f, x);
    return took >= PROBE || (are_several && took >= 2 * round_trip_to(f, x) + PROBE_JIFFIES);
}

static int is_small_behind_small(const flow *f, const half *x, const segment *s, const sent *before)
{
    int is_unknown = !x->full_size_by_mss && x->pushes && s->flags & PSH;
    int64_t limit = is_unknown ? LEAST_USUAL : x->surely_small_below, full_size = f->least_full_segment;
    int64_t tail = limit == full_size ? before->length % full_size : before->length;
    int is_whole = before->flags & PSH || !x->pushes;
    return is_whole && s->length < limit && 0 < tail && tail < limit;
}

static int is_sooner_than_reactions(const half *x, const half *y, int64_t ts, const acknowledgement *ack)
{
    return x->fastest_ack != NEVER && ts - arrival_of(y, ack->number, ack->ts) < x->fastest_ack - x->fastest_ack / 8;
}

static int is_released_by(const half *x, const sent *trigger, const acknowledgement *ack, const segment *s)
{
    return ack->acked_before < trigger->end && trigger->end <= ack->ack && ack->ack <= x->snd_nxt && ack->had_room &&
           (trigger->edge < 0 || most(trigger->edge, ack->edge_before) >= x->snd_nxt + s->length);
}

static int is_behind_small(const flow *f, const half *x, const half *y, const segment *s)
{
    const sent *small = &x->small, *before = &x->data;
    const acknowledgement *ack = &x->small_ack, *latest = &y->pure_ack;
    if (small->number == before->number || !small->is_new || small->epoch != s->epoch || ack->number <= small->number)
        return 0;
    if (x->snd_nxt - small->end > (INITIAL_WINDOW - 2) * full_size_or_least(f, x) || y->data.number > ack->number)
        return 0;
    if (before->number > ack->number && !is_sooner_than_reactions(x, y, before->ts, ack))
        return 0;
    int is_all_acked = latest->ack == x->snd_nxt && latest->number > before->number;
    return !is_all_acked || latest->ts - ack->ts < SHORT || is_sooner_than_reactions(x, y, s->ts, latest);
}

static int is_full_segment_waiting(const half *x, const segment *s, const sent *before, const acknowledgement *ack)
{
    int has_waited = ack->number > before->number && ack->ts - before->ts >= FULL_WAIT && s->ts - ack->ts < SHORT;
    return has_waited && is_released_by(x, before, ack, s);
}

static int32_t arrived_since(const machine *m, int64_t ts, const uint8_t *host, int64_t number)
{
    for (uint64_t i = m->n_passed; i && m->n_passed - i < REMEMBERED; i--) {
        const passed *p = &m->latest[(i - 1) % REMEMBERED];
        if (p->ts <= ts)
            break;
        if (p->has_data && p->connection != number && !memcmp(p->hosts + 16, host, 16))
            return (int32_t)p->connection;
    }
    return -1;
}

static int64_t busy_since(const machine *m, int64_t ts, const uint8_t *host)
{
    for (uint64_t i = m->n_passed; i && m->n_passed - i < REMEMBERED; i--) {
        const passed *p = &m->latest[(i - 1) % REMEMBERED];
        if (p->ts <= ts)
            break;
        if (!memcmp(p->has_data ? p->hosts : p->hosts + 16, host, 16))
            return p->ts;
    }
    return ts;
}

static uint8_t is_announced(const half *x, const half *y, const sent *trigger, const segment *s)
{
    if (s->flags & PSH)
        return 0;
    int sets_it = x->kernel == LINUX && (y->pushes || !y->data_segments);
    return x->pushes || sets_it || trigger->flags & PSH;
}

static uint8_t kept_by(const half *x, const half *y, const sent *trigger, const acknowledgement *ack, const segment *s)
{
    if (is_announced(x, y, trigger, s))
        return KEPT_BY_MSG_MORE;
    if (y->shift != LARGEST_SCALE || x->snd_nxt - ack->ack + s->length > ack->window)
        return KEPT_BY_NOTHING;
    int64_t offered = (ack->edge_before - ack->acked_before) >> LARGEST_SCALE;
    return x->snd_nxt - ack->acked_before == offered ? KEPT_BY_WINDOW : KEPT_BY_NOTHING;
}

static int add_candidate_without_ack(machine *m, flow *f, int side, const segment *s, const sent *before,
                                     const idle_gap *gap, int32_t number)
{
    f->needs_programs = 1;
    candidate row = {
        .connection = f->number, .trigger_frame = before->frame, .release_frame = s->frame, .at = s->ts,
        .trigger_to_ack = s->ts - before->ts, .gap = gap->gap, .gap_ended_by = gap->ended_by, .gap_small = gap->small,
        .gap_reply = gap->reply, .ahead = NO_TIMESTAMPS, .arrival = -1, .since_full = -1, .exchange = number,
        .trigger_bytes = before->length, .released_bytes = s->length, .side = (int8_t)side, .pure = 1,
        .echo = AFTER, .kept_by = is_announced(&f->halves[side], &f->halves[1 - side], before, s), .ack_clock = clock_of(s->tsecr, before->ts),
        .trigger_end = (uint32_t)before->end, .release_seq = s->seq,
    };
    return table_add(&m->tables[CANDIDATE], &row, sizeof row);
}

static int add_no_wait(machine *m, flow *f, int side, const segment *s, const sent *before, int is_owed)
{
    const half *x = &f->halves[side], *y = &f->halves[1 - side];
    f->needs_programs = 1;
    if (may_be_probe(f, x, s, before) || is_half_of_window(y, most(before->length, s->length)))
        return 0;
    no_wait row = {
        .connection = f->number, .release_frame = s->frame,
        .trigger_to_release = s->ts - before->ts, .trigger_bytes = before->length, .released_bytes = s->length,
        .side = (int8_t)side, .echo = (int8_t)(s->timestamps && y->tsval >= 0 ? BEFORE : UNKNOWN),
        .pushed = (before->flags & s->flags & PSH) != 0, .owed = (uint8_t)is_owed,
        .release_seq = s->seq,
    };
    return table_add(&m->tables[NO_WAIT], &row, sizeof row);
}

static int add_candidate(machine *m, flow *f, int side, const segment *s, const sent *trigger, const acknowledgement *ack,
                         int is_pure, int32_t number)
{
    const half *x = &f->halves[side], *y = &f->halves[1 - side];
    int echo = UNKNOWN;
    if (s->timestamps && ack->tsval_before >= 0 && ack->tsval != ack->tsval_before) {
        int is_older = is_after((uint32_t)ack->tsval, s->tsecr);
        echo = s->tsecr == ack->tsval ? AFTER : ack->is_echoed && is_older ? BEFORE : UNKNOWN;
    }
    int64_t acked_at = arrival_of(y, ack->number, ack->ts);
    int64_t since_host_busy = most(s->ts - busy_since(m, acked_at, s->src), 0);
    int64_t since_full = -1, sent_at = arrival_of(x, trigger->number, trigger->ts);
    if (x->data.number != trigger->number) {
        since_full = least(most(s->ts - x->data.ts, 0), INT32_MAX);
        if (ack->ack > trigger->end)
            sent_at = least(x->data.ts, ack->ts);
    }
    f->needs_programs = 1;
    candidate row = {
        .connection = f->number, .trigger_frame = trigger->frame, .ack_frame = ack->frame, .release_frame = s->frame,
        .at = s->ts, .trigger_to_ack = ack->ts - sent_at, .ack_to_release = s->ts - acked_at, .gap = ack->gap,
        .ahead = s->timestamps ? (int64_t)(uint32_t)(s->tsecr - s->tsval) : least(s->wscale, NO_TIMESTAMPS),
        .under_way = time_under_way(trigger, ack),
        .since_host_busy = (int32_t)least(since_host_busy, INT32_MAX), .arrival = arrived_since(m, acked_at, s->src, f->number),
        .since_data = trigger->since_data, .exchange = number, .trigger_bytes = trigger->length,
        .released_bytes = s->length, .beyond_full = ack->beyond_full, .side = (int8_t)side, .pure = (uint8_t)is_pure, .echo = (int8_t)echo,
        .kept_by = kept_by(x, y, trigger, ack, s), .gap_ended_by = ack->gap_ended_by, .gap_small = ack->gap_small,
        .gap_reply = ack->gap_reply,
        .trigger_not_held = trigger->end == x->not_held_end, .since_full = (int32_t)since_full,
        .ack_clock = ack->tsval >= 0 ? clock_of(ack->tsval, ack->ts) : 0,
        .release_clock = s->timestamps ? clock_of(s->tsval, s->ts) : 0,
        .trigger_end = (uint32_t)trigger->end, .release_seq = s->seq,
    };
    return table_add(&m->tables[CANDIDATE], &row, sizeof row);
}

static void note_hole(half *x, int64_t start)
{
    if (x->seq >= 0 && start > x->snd_nxt) {
        x->lost++;
        if (x->hole < x->snd_una)
            x->hole = x->snd_nxt;
    } else if (start == x->hole && start >= x->snd_una) {
        x->lost--;
        x->hole = -1;
    }
}

/* Machine._learn_by_new_data */
static int learn_by_new_data(flow *f, int side, const segment *s, int64_t start, int is_owed)
{
    half *x = &f->halves[side], *y = &f->halves[1 - side];
    const sent *before = &x->data;
    forget_syn_proxy(f, x, s);
    x->data_segments++;
    x->swapped += start + s->length <= x->snd_una;
    learn_full_size_by_data(x, y, s);
    if (before->number < 0 || !before->is_new || before->epoch != s->epoch || start != x->snd_nxt)
        return 0;
    if (x->snd_una < before->end && !may_be_probe(f, x, s, before) && !(s->flags & FIN) && !echoes_uncaptured(y, s)) {
        x->beside_unacked++;
        if (!is_owed && is_small_behind_small(f, x, s, before)) {
            if (!x->not_held++)
                x->first_not_held = s->frame;
            x->not_held_end = before->end + s->length;
        }
    }
    int32_t usual = x->full_size_by_mss ? x->full_size_by_mss : y->full_size_by_mss;
    if (usual && s->length > usual) /* segmentation offload */
        x->beside_unacked += (s->length - 1) / usual;
    return !((before->flags | s->flags) & CONTROL);
}

/* waited.had_received_no_data */
static int had_received_no_data(const half *y, int64_t ack, const acknowledgement *latest)
{
    return y->data.number < latest->number || ack <= latest->seq;
}

static int new_data(machine *m, flow *f, int side, const segment *s, int64_t start, int64_t ack, const idle_gap *gap,
                    int32_t number)
{
    half *x = &f->halves[side], *y = &f->halves[1 - side];
    const sent *before = &x->data;
    int is_owed = x->kernel == BSD && ack > y->snd_una; /* BSD sends waiting data with any ACK that it owes */
    if (!learn_by_new_data(f, side, s, start, is_owed))
        return 0;
    int is_acked = y->pure_ack.number > before->number && had_received_no_data(y, ack, &y->pure_ack);
    if (s->ts - before->ts < SHORT) {
        if (is_acked && is_released_by(x, before, &y->pure_ack, s)) {
            keep_sample(x, RELEASE, s->ts - arrival_of(y, y->pure_ack.number, y->pure_ack.ts));
            f->followed += is_small_behind_small(f, x, s, before);
        }
        return 0;
    }
    if (x->full_size_by_mss && s->length >= x->full_size_by_mss) {
        x->full_waits += is_acked && is_full_segment_waiting(x, s, before, &y->pure_ack); /* no answer to data */
        return 0;
    }
    if (y->snd_nxt < ack) /* an answer to data that the capture lacks, or has only later */
        return 0;
    if (is_behind_small(f, x, y, s) && is_released_by(x, &x->small, &x->small_ack, s))
        return add_candidate(m, f, side, s, &x->small, &x->small_ack, 1, number);
    if (x->snd_una < before->end && echoes_uncaptured(y, s))
        return add_candidate_without_ack(m, f, side, s, before, gap, number);
    if (x->snd_una < before->end)
        return add_no_wait(m, f, side, s, before, is_owed);
    if (is_acked && is_owed && is_sooner_than_reactions(x, y, s->ts, &y->pure_ack))
        return 0;
    if (is_acked)
        return is_released_by(x, before, &y->pure_ack, s) ? add_candidate(m, f, side, s, before, &y->pure_ack, 1, number) : 0;
    if (y->data_ack.number > before->number && s->ts - y->data_ack.ts < PIGGYBACKED_RELEASE + round_trip_to(f, x))
        return is_released_by(x, before, &y->data_ack, s) ? add_candidate(m, f, side, s, before, &y->data_ack, 0, number) : 0;
    if (y->data.number > most(before->number, y->data_ack.number))
        keep_sample(x, NO_NEW_ACK, s->ts - arrival_of(y, y->data.number, y->data.ts));
    return 0;
}

static int answer(machine *m, flow *f, int side, const segment *s, const sent *answered, int is_pure)
{
    half *x = &f->halves[side];
    int64_t wait = s->ts - arrival_of(&f->halves[1 - side], answered->number, answered->ts);
    x->fastest_ack = least(x->fastest_ack, most(wait, 0));
    x->stale_echoes += echoes_older(&f->halves[1 - side], s, answered);
    if ((answered->flags | s->flags) & SYN)
        keep_sample(x, HANDSHAKE, wait);
    else if (is_pure)
        keep_sample(x, BY_ACK, wait);
    else if (s->length)
        keep_sample(x, BY_DATA, wait);
    if (is_pure && wait >= DELAYED) {
        delayed_ack row = {f->number, (int32_t)least(wait, INT32_MAX), side};
        if (table_add(&m->tables[DELAYED_ACK], &row, sizeof row))
            return -1;
    } else if (is_pure && answered->flags & FIN && !answered->length) {
        x->fin_acks++;
    }
    int asks = answered->length && 1 - side == client_of(f);
    if (asks && answered->exchange >= 0 && answered->exchange == f->exchange && s->ts > f->request_acked)
        f->request_acked = s->ts;
    return 0;
}

static int acknowledge(machine *m, flow *f, int side, const segment *s, int64_t ack, const idle_gap *gap, int64_t start)
{
    half *x = &f->halves[side], *y = &f->halves[1 - side];
    int is_pure = (s->flags & (CONTROL | ACK)) == ACK && !s->length;
    m->counters.pure_acks += is_pure;
    if (ack > y->snd_una) {
        const sent *answered = latest_sent(y);
        if (answered->end == ack && answered->is_new && answered->epoch == s->epoch &&
            answer(m, f, side, s, answered, is_pure))
            return -1;
    }
    if (is_pure || (s->length && ack > y->snd_una)) {
        uint8_t had_room = s->window > 0 && (x->rcv_nxt < 0 || x->rcv_wnd > 0);
        int64_t edge_before = x->rcv_nxt >= 0 ? x->rcv_nxt + x->rcv_wnd : -1;
        acknowledgement *this = is_pure ? &x->pure_ack : &x->data_ack;
        *this = (acknowledgement){f->packets, s->ts, s->frame, start, ack, y->snd_una, edge_before, gap->gap,
                           s->timestamps ? (int64_t)s->tsval : -1, x->tsval, x->last_ts,
                           x->last_ts - x->ack_spacing, serialization_delay(x, ack - y->snd_una), beyond_full(x, y, ack), s->window, had_room, start <= x->snd_una, gap->ended_by, gap->small, gap->reply};
        if (is_pure && y->snd_una < y->small.end && y->small.end <= ack)
            y->small_ack = *this;
    }
    if (f->syn_ts >= 0 && side == 0 && !(s->flags & SYN)) {
        if (y->syn >= 0)
            f->handshake = s->ts - f->syn_ts;
        f->syn_ts = -1;
    }
    x->rcv_nxt = ack;
    x->rcv_wnd = s->flags & SYN ? s->window : (int64_t)s->window << x->shift;
    x->ack_spacing = least(most(s->ts - x->last_ts, 0), INT32_MAX);
    x->newly_acked = least(most(ack - y->snd_una, 0), INT32_MAX);
    y->snd_una = most(y->snd_una, ack);
    return 0;
}

static void send_segment(flow *f, int side, const segment *s, int64_t start, int64_t end, int32_t number)
{
    half *x = &f->halves[side];
    const half *y = &f->halves[1 - side];
    sent *now = s->length ? &x->data : &x->control;
    int32_t since = x->data.number >= 0 ? (int32_t)least(most(s->ts - x->data.ts, 0), INT32_MAX) : -1;
    *now = (sent){f->packets, s->ts, s->frame, start, end, y->rcv_nxt >= 0 ? y->rcv_nxt + y->rcv_wnd : -1,
                  s->timestamps ? (int64_t)s->tsval : -1, s->length, since, s->epoch, number, s->flags,
                  start >= x->snd_nxt};
    if (!s->length)
        return;
    if (!(s->flags & CONTROL) && s->length % full_size_or_least(f, x))
        x->small = x->data, x->small_ack.number = -1;
    x->payload += s->length;
    f->latest_data = (int8_t)side;
    if (f->opener < 0)
        f->opener = (int8_t)side;
}

static int take(machine *m, flow *f, int side, const segment *s)
{
    half *x = &f->halves[side], *y = &f->halves[1 - side];
    int flags = s->flags;
    int64_t length = s->length;
    int64_t start = x->seq >= 0 ? unwrapped(s->seq, x->seq) : FIRST_NUMBER + s->seq;
    int64_t end = start + length + !!(flags & SYN) + !!(flags & FIN);
    int64_t ack = flags & ACK ? acknowledged(f, side, s) : -1;
    int64_t idle = s->ts - f->last_ts;
    if (!idle)
        f->at_once += f->packets > 0;
    else if (0 < idle && idle < f->least_apart)
        f->least_apart = idle;
    idle_gap gap = {.ended_by = ACKNOWLEDGEMENT};
    if (idle >= IDLE && f->latest_data >= 0 && (length || !(flags & CONTROL))) {
        gap = (idle_gap){idle, (int32_t)f->number, (int8_t)side, (int8_t)ended_by(f, side, s, start, ack, idle),
                         length % f->least_full_segment != 0, f->sender != side};
        if (table_add(&m->tables[IDLE_GAP], &gap, sizeof gap))
            return -1;
    }
    int32_t number = -1;
    if (length) {
        if (end > x->snd_nxt && (number = exchange_of(m, f, side, s->ts)) == -2)
            return -1;
        note_hole(x, start);
        if (start >= x->snd_nxt && new_data(m, f, side, s, start, ack, &gap, number))
            return -1;
    }
    if (flags & ACK && acknowledge(m, f, side, s, ack, &gap, start))
        return -1;
    if (end > start)
        send_segment(f, side, s, start, end, number);
    x->seq = start;
    x->snd_nxt = most(x->snd_nxt, end);
    if (s->timestamps)
        learn_timestamps(x, s);
    if (flags & (FIN | RST)) {
        x->closed = 1;
        y->closed |= !!(flags & RST);
    }
    x->packets++;
    x->last_ts = s->ts;
    if (length > f->least_full_segment)
        x->offloaded += (length - 1) / f->least_full_segment;
    x->wire += s->wire;
    f->packets++;
    f->last_ts = s->ts;
    f->sender = (int8_t)side;
    return 0;
}

/* -------------------------------------------------------------------------------------------------- machine */

void machine_init(machine *m)
{
    live_init(&m->live);
    m->until_sweep = SWEEP;
    m->latest_asking = m->counters.first_ts = -1;
}

void machine_free(machine *m)
{
    live_free(&m->live);
    programs_free(&m->programs);
    for (int i = 0; i < DURATIONS; i++)
        counted_free(&m->durations[i]);
    for (int i = 0; i < TABLES; i++)
        free(m->tables[i].bytes);
}

/* Machine.follow */
int machine_follow(machine *m, const segment *s)
{
    if (!m->counters.segments++)
        m->counters.first_ts = m->counters.last_ts = s->ts;
    if (m->counters.resolution != 1)
        m->counters.resolution = common_divisor(m->counters.resolution, s->ts - m->counters.last_ts);
    m->counters.last_ts = s->ts;
    int side = -1;
    flow *f = live_find(&m->live, s, &side);
    if (!f || begins_anew(f, s)) {
        if (f && forget(m, f))
            return -1;
        side = 1;
        if ((s->flags & (SYN | ACK)) == (SYN | ACK) && (f = asked_by(m, s))) {
            if (live_answers_as(&m->live, f, s))
                return -1;
        } else {
            if (!(f = open_connection(m, s)))
                return -1;
            side = side_of(f, s);
        }
    }
    segment own;
    if (f->answers_elsewhere && side == 1) { /* with_own_address in machine.py */
        own = *s;
        memcpy(own.src, f->address + 16, 16);
        own.sport = f->port[1];
        s = &own;
    }
    if (is_copy(s, f, side)) {
        m->counters.copies++;
        note_copy(f, side, s);
        f->is_copied |= s->length || s->flags & SYN;
        return 0;
    }
    remember(&f->halves[side], s);
    if (s->flags & SYN)
        learn_syn(f, side, s);
    if (take(m, f, side, s))
        return -1;
    passed *p = &m->latest[m->n_passed++ % REMEMBERED];
    p->ts = s->ts;
    p->connection = f->number;
    p->has_data = s->length > 0;
    memcpy(p->hosts, s->src, 16);
    memcpy(p->hosts + 16, s->dst, 16);
    return --m->until_sweep ? 0 : sweep(m, s->ts);
}

int machine_finish(machine *m)
{
    while (m->live.oldest != NONE)
        if (forget(m, live_at(&m->live, m->live.oldest)))
            return -1;
    return 0;
}

/* ------------------------------------------------------------------------------------------------- snapshots */

/* Connections that were restored have other places. */
static void find_first_ends(machine *m)
{
    for (int port = 0; port < 65536; port++)
        m->ends[port].place = NONE;
    for (uint32_t i = m->live.oldest; i != NONE; i = live_at(&m->live, i)->newer) {
        const flow *f = live_at(&m->live, i);
        for (int side = 0; side < 2; side++)
            if (m->ends[f->port[side]].first == f->number)
                m->ends[f->port[side]].place = f->self;
    }
}

/* Machine.state: everything except the rows that wait to be taken; only a new machine reads it. */
int machine_pass(machine *m, snapshot *s)
{
    if (snapshot_pass(s, &m->counters, sizeof m->counters) || snapshot_pass(s, &m->until_sweep, sizeof m->until_sweep) ||
        snapshot_pass(s, &m->latest_asking, sizeof m->latest_asking) ||
        snapshot_pass(s, &m->n_passed, sizeof m->n_passed) || snapshot_pass(s, m->latest, sizeof m->latest))
        return -1;
    for (int i = 0; i < DURATIONS; i++)
        if (counted_pass(&m->durations[i], s))
            return -1;
    if (programs_pass(&m->programs, s) || snapshot_pass(s, m->ends, sizeof m->ends) || live_pass(&m->live, s))
        return -1;
    if (!s->to)
        find_first_ends(m);
    return 0;
}
