/* The TCP segment in a packet: the twin of headers.py, link.py, wlan.py, ip.py and segment.py, function for function. * Every
 * byte is read through the cursor below, which never goes beyond the captured bytes. */
#include "segment.h"

#include <string.h>

/* kinds.py */
enum {
    IP_PROTOCOL = 0x10000, LINK_TYPE = 0x20000, PPP_PROTOCOL = 0x30000, FAMILY = 0x40000,
    CUT = 0x100000, INCOMPLETE = 0x200000, MALFORMED = 0x300000, FRAGMENT = 0x400000, OPAQUE = 0x500000,
    ENCRYPTED = 0x600000,
};
enum { /* EtherTypes */
    IPV4 = 0x0800, IPV6 = 0x86DD, VLAN_TAG = 0x8100, SERVICE_VLAN_TAG = 0x88A8, OLD_SERVICE_VLAN_TAG = 0x9100,
    MPLS_UNICAST = 0x8847, MPLS_MULTICAST = 0x8848, PPPOE_SESSION = 0x8864, PPP_IN_GRE = 0x880B, ETHERNET_IN_GRE = 0x6558,
    ERSPAN_2 = 0x88BE, ERSPAN_3 = 0x22EB, LLC = 0x0004, FIRST_ETHERTYPE = 0x600,
};
enum {
    BSD_LOOPBACK = LINK_TYPE | 0, ETHERNET = LINK_TYPE | 1, PPP = LINK_TYPE | 9, RAW_IP = LINK_TYPE | 101,
    RAW_IP_12 = LINK_TYPE | 12, RAW_IP_14 = LINK_TYPE | 14, OPENBSD_LOOPBACK = LINK_TYPE | 108,
    LINUX_COOKED = LINK_TYPE | 113, RAW_IPV4 = LINK_TYPE | 228, RAW_IPV6 = LINK_TYPE | 229,
    PKTAP = LINK_TYPE | 258, LINUX_COOKED_2 = LINK_TYPE | 276, PPP_IN_HDLC = LINK_TYPE | 50,
    CISCO_HDLC = LINK_TYPE | 104, WLAN = LINK_TYPE | 105, RADIOTAP = LINK_TYPE | 127, PPI = LINK_TYPE | 192,
    NFLOG = LINK_TYPE | 239,
};
enum {
    HOP_BY_HOP = IP_PROTOCOL | 0, IPV4_IN_IP = IP_PROTOCOL | 4, TCP = IP_PROTOCOL | 6, UDP = IP_PROTOCOL | 17,
    IPV6_IN_IP = IP_PROTOCOL | 41, ROUTING = IP_PROTOCOL | 43, FRAGMENT_HEADER = IP_PROTOCOL | 44,
    GRE = IP_PROTOCOL | 47, AUTHENTICATION = IP_PROTOCOL | 51, DESTINATION = IP_PROTOCOL | 60,
    MOBILITY = IP_PROTOCOL | 135, HIP = IP_PROTOCOL | 139, SHIM6 = IP_PROTOCOL | 140,
};
enum { MOST_LAYERS = 16, ETHERNET_HEADER = 14, IPV4_HEADER = 20, TCP_HEADER = 20, LONGEST = 1 << 30 };
enum { TIMESTAMPS_ALONE = 12, NOP_NOP_TIMESTAMPS = 0x0101080A }; /* the options of nearly every segment */
enum { OPTION_END = 0, OPTION_NOP = 1, OPTION_MSS = 2, OPTION_SCALE = 3, OPTION_TIMESTAMPS = 8 };

typedef struct { /* Packet in headers.py */
    const uint8_t *buffer;
    int64_t at;
    int64_t captured_end;
    int64_t wire_end;
    int64_t end;
    int64_t kind;
    uint8_t src[16];
    uint8_t dst[16];
    uint16_t ip_id;
    uint8_t ttl;
} packet;

static inline int has(packet *p, int64_t count)
{
    if (p->at + count <= p->captured_end)
        return 1;
    p->kind |= p->captured_end < p->wire_end ? CUT : INCOMPLETE;
    return 0;
}

static inline uint32_t u8(const packet *p, int64_t skip)
{
    return p->at + skip < p->captured_end ? p->buffer[p->at + skip] : 0;
}

static inline uint32_t u16(const packet *p, int64_t skip)
{
    if (p->at + skip + 2 > p->captured_end)
        return 0;
    const uint8_t *b = p->buffer + p->at + skip;
    return (uint32_t)b[0] << 8 | b[1];
}

static inline uint32_t u32(const packet *p, int64_t skip)
{
    if (p->at + skip + 4 > p->captured_end)
        return 0;
    const uint8_t *b = p->buffer + p->at + skip;
    return (uint32_t)b[0] << 24 | (uint32_t)b[1] << 16 | (uint32_t)b[2] << 8 | b[3];
}

static inline void copy(const packet *p, int64_t skip, uint8_t *to, int64_t count)
{
    if (p->at + skip + count <= p->captured_end)
        memcpy(to, p->buffer + p->at + skip, (size_t)count);
}

static inline uint32_t little_u16(const packet *p, int64_t skip) { return u8(p, skip + 1) << 8 | u8(p, skip); }

static inline uint32_t little_u32(const packet *p, int64_t skip)
{
    return u8(p, skip + 3) << 24 | u8(p, skip + 2) << 16 | u8(p, skip + 1) << 8 | u8(p, skip);
}

static void typed(packet *p, int64_t header, int64_t type_at)
{
    if (has(p, header)) {
        p->kind = u16(p, type_at);
        p->at += header;
    }
}

static void frame(packet *p, int64_t header, int64_t type_at)
{
    typed(p, header, type_at);
    if (p->kind < FIRST_ETHERTYPE)
        p->kind = LLC;
}

static void always(packet *p, int64_t kind, int64_t header)
{
    if (has(p, header)) {
        p->kind = kind;
        p->at += header;
    }
}

static int64_t by_version(uint32_t version, int64_t other) { return version == 4 ? IPV4 : version == 6 ? IPV6 : other; }

static void raw_ip(packet *p)
{
    if (has(p, 1))
        p->kind = by_version(u8(p, 0) >> 4, p->kind | MALFORMED);
}

static void loopback(packet *p)
{
    if (!has(p, 4))
        return;
    uint32_t family = little_u32(p, 0);
    if (family > 0xFFFF)
        family = u32(p, 0);
    if (family == 2)
        p->kind = IPV4;
    else if (family == 10 || family == 24 || family == 28 || family == 30)
        p->kind = IPV6;
    else
        p->kind = FAMILY | (family < 0xFFFF ? family : 0xFFFF);
    p->at += 4;
}

static void mpls(packet *p)
{
    if (!has(p, 5))
        return;
    if (u8(p, 2) & 1)
        p->kind = by_version(u8(p, 4) >> 4, p->kind | OPAQUE);
    p->at += 4;
}

static void ppp(packet *p)
{
    if (!has(p, 2))
        return;
    if (u16(p, 0) == 0xFF03)
        p->at += 2;
    if (!has(p, 2))
        return;
    uint32_t protocol = u16(p, 0), size = 2;
    if (protocol & 0x0100)
        protocol >>= 8, size = 1;
    p->kind = protocol == 0x21 ? IPV4 : protocol == 0x57 ? IPV6 : (int64_t)(PPP_PROTOCOL | protocol);
    p->at += size;
}

static void pktap(packet *p)
{
    if (!has(p, 108))
        return;
    uint32_t length = little_u32(p, 0), link_type = little_u32(p, 8);
    p->kind = LINK_TYPE | (link_type < 0xFFFF ? link_type : 0xFFFF);
    p->at += length;
}

static void nflog(packet *p)
{
    if (!has(p, 4))
        return;
    p->at += 4;
    while (has(p, 4)) {
        uint32_t length = little_u16(p, 0), attribute = little_u16(p, 2);
        if (attribute == 9) {
            p->kind = RAW_IP;
            p->at += 4;
            return;
        }
        if (length < 4) {
            p->kind |= MALFORMED;
            return;
        }
        p->at += (length + 3) & ~3u;
    }
}

static void radiotap(packet *p)
{
    if (!has(p, 8))
        return;
    p->kind = WLAN;
    p->at += little_u16(p, 2);
}

static void ppi(packet *p)
{
    if (!has(p, 8))
        return;
    uint32_t link_type = little_u32(p, 4);
    p->kind = LINK_TYPE | (link_type < 0xFFFF ? link_type : 0xFFFF);
    p->at += little_u16(p, 2);
}

static void skip_padding(packet *p, int64_t header)
{
    int64_t padding = -header & 3;
    if (padding && p->at + padding + 2 <= p->captured_end && u16(p, 0) != 0xAAAA && u16(p, padding) == 0xAAAA)
        p->at += padding;
}

static void wlan(packet *p)
{
    if (!has(p, 2))
        return;
    uint32_t first = u8(p, 0), flags = u8(p, 1);
    if ((first & 0x0C) != 0x08 || first & 0x40) {
        p->kind |= OPAQUE;
        return;
    }
    int64_t header = (flags & 3) == 3 ? 30 : 24, qos = header;
    if (first & 0x80)
        header += flags & 0x80 ? 6 : 2;
    if (!has(p, header))
        return;
    if (flags & 0x40) {
        p->kind |= ENCRYPTED;
    } else if (u8(p, 22) & 0x0F) {
        p->kind |= FRAGMENT;
    } else if (first & 0x80 && u8(p, qos) & 0x80) {
        p->kind |= OPAQUE;
    } else {
        p->kind = LLC;
        p->at += header;
        skip_padding(p, header);
    }
}

static void llc(packet *p)
{
    if (!has(p, 8))
        return;
    if (u16(p, 0) == 0xAAAA && u16(p, 2) == 0x0300 && !u16(p, 4)) {
        p->kind = u16(p, 6);
        p->at += 8;
    } else {
        p->kind |= OPAQUE;
    }
}

static void erspan_3(packet *p)
{
    if (!has(p, 12))
        return;
    if (u16(p, 10) & 0x7C00) {
        p->kind |= OPAQUE;
        return;
    }
    p->at += u8(p, 11) & 1 ? 20 : 12;
    p->kind = ETHERNET;
}

static const uint8_t V4_MAPPED[12] = {[10] = 0xFF, [11] = 0xFF};

static void ipv4(packet *p)
{
    if (!has(p, 20))
        return;
    int64_t length = u16(p, 2), header = (u8(p, 0) & 15) * 4;
    uint32_t version = u8(p, 0) >> 4, fragment = u16(p, 6), protocol = u8(p, 9);
    p->ip_id = (uint16_t)u16(p, 4);
    p->ttl = (uint8_t)u8(p, 8);
    memcpy(p->src, V4_MAPPED, 12);
    memcpy(p->dst, V4_MAPPED, 12);
    copy(p, 12, p->src + 12, 4);
    copy(p, 16, p->dst + 12, 4);
    if (!length)
        length = p->wire_end - p->at;
    p->end = p->at + length;
    p->at += header;
    if (version != 4 || header < 20 || length < header)
        p->kind = IPV4 | MALFORMED;
    else
        p->kind = fragment & 0x1FFF ? IPV4 | FRAGMENT : (int64_t)(IP_PROTOCOL | protocol);
}

static void ipv6(packet *p)
{
    if (!has(p, 40))
        return;
    uint32_t version = u8(p, 0) >> 4, length = u16(p, 4), following = u8(p, 6);
    uint8_t hop_limit = (uint8_t)u8(p, 7);
    copy(p, 8, p->src, 16);
    copy(p, 24, p->dst, 16);
    p->at += 40;
    p->end = length ? p->at + length : p->wire_end;
    p->ip_id = 0;
    p->ttl = hop_limit;
    p->kind = version == 6 ? (int64_t)(IP_PROTOCOL | following) : (int64_t)(IPV6 | MALFORMED);
}

static void extension(packet *p, int64_t unit)
{
    if (has(p, 8)) {
        p->kind = IP_PROTOCOL | u8(p, 0);
        p->at += u8(p, 1) * unit + 8;
    }
}

static void fragment_header(packet *p)
{
    if (has(p, 8)) {
        p->kind = u16(p, 2) >> 3 ? IPV6 | FRAGMENT : (int64_t)(IP_PROTOCOL | u8(p, 0));
        p->at += 8;
    }
}

static void gre(packet *p)
{
    if (!has(p, 4))
        return;
    uint32_t flags = u16(p, 0), protocol = u16(p, 2), version = flags & 7;
    if (version > 1 || (version == 0 && flags & 0x4000)) {
        p->kind |= OPAQUE;
        return;
    }
    int64_t checksum = flags & 0x8000 ? 4 : 0, key = flags & 0x2000 ? 4 : 0, sequence = flags & 0x1000 ? 4 : 0;
    int64_t acknowledgement = flags & 0x0080 ? 4 : 0;
    p->at += version ? 8 + sequence + acknowledgement : 4 + checksum + key + sequence;
    p->kind = protocol == ERSPAN_2 && !sequence ? ETHERNET : (int64_t)protocol;
}

/* Returns whether all of them were captured. */
static int gtp_extensions(packet *p, uint32_t flags)
{
    if (!has(p, 4))
        return 0;
    uint32_t following = flags & 0x04 ? u8(p, 3) : 0;
    p->at += 4;
    while (following) {
        if (!has(p, 1) || !u8(p, 0) || !has(p, u8(p, 0) * 4))
            return 0;
        uint32_t size = u8(p, 0) * 4;
        following = u8(p, size - 1);
        p->at += size;
    }
    return 1;
}

static void gtp(packet *p)
{
    uint32_t flags = u8(p, 8);
    if ((flags & 0xF0) != 0x30 || u8(p, 9) != 0xFF)
        return;
    p->at += 16;
    if (flags & 0x07 && !gtp_extensions(p, flags))
        return;
    p->kind = RAW_IP;
}

static void l2tp(packet *p)
{
    uint32_t flags = u16(p, 8);
    if (flags & 0x8000 || (flags & 0x000F) != 2)
        return;
    int64_t header = 14 + (flags & 0x4000 ? 2 : 0) + (flags & 0x0800 ? 4 : 0);
    if (flags & 0x0200) {
        if (!has(p, header + 2))
            return;
        header += 2 + u16(p, header);
    }
    p->kind = PPP;
    p->at += header;
}

static void udp(packet *p)
{
    if (!has(p, 8))
        return;
    uint32_t port = u16(p, 2);
    p->kind |= OPAQUE;
    if (p->at + 16 > p->captured_end)
        return;
    if ((port == 4789 || port == 8472) && u8(p, 8) & 0x08) {
        p->kind = ETHERNET;
        p->at += 16;
    } else if (port == 6081 && u8(p, 8) >> 6 == 0) {
        p->kind = u16(p, 10);
        p->at += 16 + (u8(p, 8) & 0x3F) * 4;
    } else if (port == 2152) {
        gtp(p);
    } else if (port == 1701) {
        l2tp(p);
    }
}

/* Removes one header. Returns whether the next header has a layer here. */
static int peel(packet *p)
{
    switch (p->kind) {
    case ETHERNET: frame(p, 14, 12); return 1;
    case LINUX_COOKED: typed(p, 16, 14); return 1;
    case LINUX_COOKED_2: typed(p, 20, 0); return 1;
    case PKTAP: pktap(p); return 1;
    case NFLOG: nflog(p); return 1;
    case RADIOTAP: radiotap(p); return 1;
    case PPI: ppi(p); return 1;
    case WLAN: wlan(p); return 1;
    case LLC: llc(p); return 1;
    case CISCO_HDLC: typed(p, 4, 2); return 1;
    case BSD_LOOPBACK:
    case OPENBSD_LOOPBACK: loopback(p); return 1;
    case RAW_IP:
    case RAW_IP_12:
    case RAW_IP_14: raw_ip(p); return 1;
    case RAW_IPV4:
    case IPV4_IN_IP: always(p, IPV4, 0); return 1;
    case RAW_IPV6:
    case IPV6_IN_IP: always(p, IPV6, 0); return 1;
    case VLAN_TAG:
    case SERVICE_VLAN_TAG:
    case OLD_SERVICE_VLAN_TAG: frame(p, 4, 2); return 1;
    case MPLS_UNICAST:
    case MPLS_MULTICAST: mpls(p); return 1;
    case PPPOE_SESSION: always(p, PPP, 6); return 1;
    case PPP_IN_GRE: always(p, PPP, 0); return 1;
    case PPP:
    case PPP_IN_HDLC: ppp(p); return 1;
    case ETHERNET_IN_GRE: always(p, ETHERNET, 0); return 1;
    case ERSPAN_2: always(p, ETHERNET, 8); return 1;
    case ERSPAN_3: erspan_3(p); return 1;
    case IPV4: ipv4(p); return 1;
    case IPV6: ipv6(p); return 1;
    case HOP_BY_HOP:
    case ROUTING:
    case DESTINATION:
    case MOBILITY:
    case HIP:
    case SHIM6: extension(p, 8); return 1;
    case AUTHENTICATION: extension(p, 4); return 1;
    case FRAGMENT_HEADER: fragment_header(p); return 1;
    case GRE: gre(p); return 1;
    case UDP: udp(p); return 1;
    default: return 0;
    }
}

/* Removes Ethernet and IPv4 at once, if nothing else comes before TCP, as in most packets by far. */
static int take_usual(packet *p)
{
    int64_t ip = p->at + ETHERNET_HEADER;
    if (ip + IPV4_HEADER > p->captured_end)
        return 0;
    const uint8_t *b = p->buffer + p->at;
    int64_t length = b[16] << 8 | b[17];
    if (b[12] != 0x08 || b[13] != 0x00 || b[14] != 0x45 || length < IPV4_HEADER || (b[20] & 0x1F) || b[21] || b[23] != 6)
        return 0;
    p->src[10] = p->src[11] = p->dst[10] = p->dst[11] = 0xFF;
    memcpy(p->src + 12, b + 26, 4);
    memcpy(p->dst + 12, b + 30, 4);
    p->ip_id = (uint16_t)(b[18] << 8 | b[19]);
    p->ttl = b[22];
    p->at = ip + IPV4_HEADER;
    p->end = ip + length;
    p->kind = TCP;
    return 1;
}

static void peel_all(packet *p)
{
    for (int layers = 0; layers < MOST_LAYERS; layers++)
        if (!peel(p))
            return;
    packet one_more = *p;
    if (peel(&one_more))
        p->kind |= OPAQUE;
}

static int kernel_of(uint32_t order, uint8_t ttl, int64_t window, int64_t mss)
{
    if (32 < ttl && ttl <= 64) {
        if (order == 0x2483 || order == 0x243 || order == 0x248)
            return mss > 12 && (!(window % mss) || !(window % (mss - 12)) || !(window % 1460) || !(window % 1448))
                       ? LINUX : UNKNOWN_KERNEL;
        return order == 0x2384 || order == 0x2348 ? BSD : UNKNOWN_KERNEL;
    }
    return 64 < ttl && ttl <= 128 && (order == 0x234 || order == 0x2348) ? WINDOWS : UNKNOWN_KERNEL;
}

/* The options of the next `size` bytes. Returns the kinds of all except padding, a hexadecimal digit each. */
static uint32_t read_options(const packet *p, int64_t size, segment *s)
{
    int64_t skip = 0;
    uint32_t order = 0;
    if (size == TIMESTAMPS_ALONE && u32(p, 0) == NOP_NOP_TIMESTAMPS) {
        s->timestamps = 1;
        s->tsval = u32(p, 4);
        s->tsecr = u32(p, 8);
        return OPTION_TIMESTAMPS;
    }
    while (skip < size && u8(p, skip) != OPTION_END) {
        uint32_t kind = u8(p, skip);
        if (kind == OPTION_NOP) {
            skip++;
            continue;
        }
        int64_t length = skip + 1 < size ? u8(p, skip + 1) : 0;
        if (length < 2 || skip + length > size)
            return 0;
        order = order << 4 | (kind & 15);
        if (kind == OPTION_MSS && length == 4) {
            s->mss = (uint16_t)u16(p, skip + 2);
        } else if (kind == OPTION_SCALE && length == 3) {
            s->wscale = (int8_t)(u8(p, skip + 2) < 127 ? u8(p, skip + 2) : 127);
        } else if (kind == OPTION_TIMESTAMPS && length == 10) {
            s->timestamps = 1;
            s->tsval = u32(p, skip + 2);
            s->tsecr = u32(p, skip + 6);
        }
        skip += length;
    }
    return order;
}

int64_t decode(const uint8_t *buffer, int64_t at, int64_t captured, int64_t original, int32_t link_type, segment *s)
{
    packet whole = {buffer, at, at + captured, at + original, at + original, LINK_TYPE | link_type, {0}, {0}, 0};
    packet *p = &whole;
    if (p->kind != ETHERNET || !take_usual(p))
        peel_all(p);
    if (p->kind != TCP || !has(p, TCP_HEADER))
        return p->kind;
    int64_t header = (int64_t)(u8(p, 12) >> 4) * 4, length = p->end - p->at - header;
    if (header < TCP_HEADER || length < 0 || length > LONGEST)
        return p->kind | MALFORMED;
    memcpy(s->src, p->src, 16);
    memcpy(s->dst, p->dst, 16);
    s->sport = (uint16_t)u16(p, 0);
    s->dport = (uint16_t)u16(p, 2);
    s->seq = u32(p, 4);
    s->ack = u32(p, 8);
    s->flags = (uint16_t)(u16(p, 12) & 0xFFF);
    s->window = (uint16_t)u16(p, 14);
    s->length = (int32_t)length;
    s->wire = (uint32_t)original;
    s->ip_id = p->ip_id;
    s->ttl = p->ttl;
    s->mss = 0, s->tsval = s->tsecr = 0, s->timestamps = 0, s->kernel = 0, s->wscale = -1;
    int64_t header_end = p->at + header, options_end = header_end < p->captured_end ? header_end : p->captured_end;
    p->at += TCP_HEADER;
    uint32_t order = options_end > p->at ? read_options(p, options_end - p->at, s) : 0;
    if (s->flags & SYN && options_end == header_end)
        s->kernel = (uint8_t)kernel_of(order, p->ttl, s->window, s->mss);
    if (s->wscale < 0 && options_end < header_end)
        s->wscale = -2;
    return -1;
}
