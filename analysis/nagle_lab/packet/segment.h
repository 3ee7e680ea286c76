/* TCP segments. Structs that Python reads, too, are declared as in tcp/engine.h. */
#ifndef NAGLE_LAB_SEGMENT_H
#define NAGLE_LAB_SEGMENT_H

#include <stdint.h>

enum { FIN = 0x01, SYN = 0x02, RST = 0x04, PSH = 0x08, ACK = 0x10 };
enum { UNKNOWN_KERNEL, LINUX, WINDOWS, BSD }; /* Kernel in segment.py */

/* One TCP segment as it was captured; see Segment in packet/segment.py. */
typedef struct {
    int64_t frame;
    int64_t ts;
    uint8_t src[16];
    uint8_t dst[16];
    uint32_t seq;
    uint32_t ack;
    int32_t length;
    uint32_t wire;
    uint32_t tsval;
    uint32_t tsecr;
    int32_t epoch;
    int32_t interface;
    uint16_t sport;
    uint16_t dport;
    uint16_t flags;
    uint16_t window;
    uint16_t mss;
    uint16_t ip_id;
    uint8_t kernel;
    uint8_t ttl;
    int8_t wscale;
    uint8_t timestamps;
} segment;

/* The TCP segment in a packet: fills in all fields except frame, time, epoch and interface, and returns -1; or
 * returns the kind of what is there instead (kinds.py). */
int64_t decode(const uint8_t *buffer, int64_t at, int64_t captured, int64_t original, int32_t link_type, segment *s);

#endif
