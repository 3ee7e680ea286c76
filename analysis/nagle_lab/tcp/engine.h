/* The rows the engine produces, declared once: machine.c fills them in, and layout.py reads this file, segment.h and
 * records.h for the Python twin. Every field stands on a line of its own; times and durations are in ns; frames count from 1.
 * The two sides of a connection are 0, the end that opened it (the SYN's sender, else who sent the first packet
 * captured), and 1. */
#ifndef NAGLE_LAB_ENGINE_H
#define NAGLE_LAB_ENGINE_H

#include <stdint.h>

/* A segment, its ACK, and the data that followed: a stall, if the proof says that the ACK was late and released it.
 * */
typedef struct {
    int64_t connection;
    int64_t trigger_frame;
    int64_t ack_frame;       /* 0: the capture lacks the ACK, or has it later; the release's timestamp shows it */
    int64_t release_frame;
    int64_t at;              /* time of the release */
    int64_t trigger_to_ack;  /* or to release where the capture lacks the ACK; from full ones behind it that it acknowledges */
    int64_t ack_to_release;
    int64_t gap;             /* the idle gap that the ACK ended, or the release if ack_frame is 0; 0 none */
    int64_t ahead;           /* the release's TSecr less TSval, modulo 2**32; else NO_TIMESTAMPS (events.py) or OPTIONS_CUT (segment.py) */
    int64_t under_way;       /* how long the trigger had surely not arrived: until the peer's last segment that did not
                                acknowledge it, plus the serialization delay of the bytes that the ACK covers; 0: no such one */
    int32_t since_host_busy; /* to the release from what its host did last: the ACK, data it sent, an ACK it got */
    int32_t arrival;         /* another connection, whose data arrived at the releasing host in between; -1 none */
    int32_t since_data;      /* to the trigger from the data segment that its sender sent before it; -1 none */
    int32_t exchange;        /* from 0 */
    int32_t trigger_bytes;
    int32_t released_bytes;
    int32_t beyond_full;     /* bytes that the ACK acknowledges beyond a full segment; see beyond_full in waited.py */
    int8_t side;             /* the side that sent trigger and release */
    uint8_t pure;            /* the ACK carried no data */
    int8_t echo;             /* see Echo in events.py */
    uint8_t kept_by;         /* see KeptBy in events.py */
    int8_t gap_ended_by;     /* as in the row of that gap; so are the next two */
    uint8_t gap_small;
    uint8_t gap_reply;
    uint8_t trigger_not_held; /* it was a small segment sent behind an unacknowledged small one */
    int32_t since_full;      /* to the release from the full segment before it, behind the trigger; -1 none is there */
    uint32_t ack_clock;      /* the ACK's TSval less its time in ms, or the trigger's if it is not captured; modulo 2**32 */
    uint32_t release_clock;  /* the same of the release, less its own time; both 0 without timestamps */
    uint32_t trigger_end;    /* the sequence number behind it */
    uint32_t release_seq;    /* that of the release: both are the same at each capture point, whatever offload merges */
} candidate;

/* Data that did not wait: it was sent while the segment before it was unacknowledged, SHORT or longer after it. */
typedef struct {
    int64_t connection;
    int64_t release_frame;
    int64_t trigger_to_release;
    int32_t trigger_bytes;
    int32_t released_bytes;
    int8_t side;             /* that sent both */
    int8_t echo;             /* see Echo in events.py */
    uint8_t pushed;          /* both have PSH, which ends a write */
    uint8_t owed;            /* its sender is a BSD, and owed the ACK in it: waiting data leaves with such an ACK */
    uint32_t release_seq;    /* sequence number */
} no_wait;

/* How long an end took to react to its peer's latest segment: some of each kind, on connections with candidates. */
typedef struct {
    int64_t connection;
    int32_t ns;
    int8_t side;
    int8_t kind;             /* see Reaction in events.py */
    uint16_t unused;
} reaction;

/* A pure ACK that came at least DELAYED after what it acknowledges. */
typedef struct {
    int64_t connection;
    int32_t wait;            /* at most what the type holds, two seconds */
    int32_t side;            /* the side that sent the ACK */
} delayed_ack;

/* Nothing was on the wire for IDLE or longer, on a connection that had sent data. */
typedef struct {
    int64_t gap;
    int32_t connection;
    int8_t side;             /* that ended it */
    int8_t ended_by;         /* see EndedBy in events.py */
    uint8_t small;           /* what ended it was less than a full segment */
    uint8_t reply;           /* the packet before it came from the other side */
} idle_gap;

/* A request and its answer. Durations are -1 where the capture does not show one end. */
typedef struct {
    int64_t connection;
    int64_t asked;           /* time of the request's first segment */
    int64_t to_ack;          /* from the request's last segment to its acknowledgement */
    int64_t to_response;     /* from the request's last segment to the answer's first */
    int64_t total;           /* from the request's first segment to the answer's last */
    int64_t number;          /* from 0 on each connection */
} exchange;

/* A connection that is over. */
typedef struct {
    int64_t number;          /* in order of appearance, from 0 */
    int64_t first_frame;
    int64_t first_ts;
    int64_t last_ts;         /* of its last segment */
    int64_t packets[2];      /* sent by each side */
    int64_t segments[2];     /* the same, packets made by segmentation offload counted in parts */
    int64_t payload[2];
    int64_t wire[2];
    int64_t fastest_ack[2];  /* shortest time from a segment of the peer to this side's ACK of it; -1 none */
    int64_t handshake;       /* from a SYN sent once to its sender's first ACK, if its answer came in between; -1 not captured */
    int64_t syn[2];          /* sequence number; -1 not captured */
    int64_t next_seq[2];     /* sequence number behind the last one captured; -1 none */
    int64_t ahead[2];        /* TSecr less TSval, modulo 2**32, at its fastest; -1 none */
    int64_t tsval_clock[2];  /* TSval less the time in ms, modulo 2**32, of the segment least long under way; -1 none */
    int64_t first_not_held[2]; /* frame of the first in not_held; 0 none */
    int64_t held;            /* how long data waited for delayed ACKs; filled in by the diagnosis */
    int64_t round_trips;     /* how long data waited for other ACKs; likewise */
    int32_t not_held[2];     /* small segments sent behind unacknowledged small ones */
    int32_t fin_acks[2];     /* pure ACKs of bare FINs */
    int32_t program[2];      /* at each end, where there are candidates: its address, with its port where it is the
                                server; from 0, else -1 */
    int32_t data_segments[2];
    int32_t lost[2];         /* of these, those after data that is not in the capture */
    int32_t swapped[2];      /* of these, those captured after their acknowledgement */
    int32_t full_waits[2];   /* full segments that waited for an ACK: the congestion window was full */
    int32_t beside_unacked[2]; /* data segments sent while another was unacknowledged: that window holds more than one */
    int32_t full_segment[2]; /* payload of one, by the peer's MSS or learned; 0 not known */
    int32_t least_full_segment; /* payload of a full segment of both */
    int32_t exchanges;       /* exchanges with request and answer */
    int32_t repeat_exchanges; /* those of them that follow another */
    int32_t open_exchange;   /* number of an exchange without an answer; -1 none */
    int32_t stalls;          /* from here on filled in by the diagnosis; the engine writes 0, and -1 for `…_stalled` */
    int32_t stalled_exchanges; /* exchanges with a stall */
    int32_t unresolved;      /* candidates that cannot be decided */
    int32_t first_stalled;   /* number of the first exchange with one; -1 none */
    int32_t last_stalled;
    int32_t delayed_acks[2];
    int32_t acks_before_timer[2]; /* of these, sent sooner than a delayed-ACK timer fires */
    int32_t stale_echoes[2]; /* ACKs whose timestamp is older than the one segment they acknowledge */
    int32_t followed;        /* small data within SHORT of small data, after its pure ACK; the diagnosis adds later ones */
    uint16_t port[2];
    uint8_t address[32];     /* of side 0, then of side 1 */
    uint8_t answers_as[16];  /* the address in segments of side 1 if it is not its own: this host translates */
    int32_t answers_as_port; /* and their port; otherwise both 0 */
    int32_t late_without_stall; /* data after a late ACK that had not held it; filled in by the diagnosis */
    int8_t client;           /* its side */
    uint8_t syns;            /* both are in the capture */
    uint8_t server_first;    /* exchange 0 has no request: the server spoke first */
    uint8_t left_out;        /* filled in by the diagnosis: another connection seen elsewhere, before or after NAT, or
                                one that nobody asked for */
    uint8_t kernel[2];       /* what the SYN of each side looks like; see Kernel in segment.py */
    uint8_t timestamp_step[2];   /* of its timestamps, ms: see timestamp_step in learned.py; 0 not known */
    int32_t clock_step;      /* of the clock that stamped it, if packets show that it is coarse; otherwise 0 */
} connection;

/* What an engine has counted so far. */
typedef struct {
    int64_t frames;
    int64_t segments;
    int64_t copies;
    int64_t pure_acks;
    int64_t connections;
    int64_t first_ts;
    int64_t last_ts;
    int64_t resolution;      /* of the clock that stamped the segments */
    int64_t total[3];        /* of the durations to_ack, to_response, total */
} counters;

#endif
