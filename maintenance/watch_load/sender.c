/* Sends the frames of a pcap file through an interface at a rate, for so many seconds: sender FILE INTERFACE PER_S SECONDS.
 * Prints how many it sent, and in how many µs. Frames that were cut are filled up with zeros. */
#define _GNU_SOURCE
#include <arpa/inet.h>
#include <fcntl.h>
#include <linux/if_packet.h>
#include <net/if.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

enum { HEAD = 24, RECORD = 16, BATCH = 32, LONGEST = 1514 };

static int64_t now(void)
{
    struct timespec at;
    clock_gettime(CLOCK_MONOTONIC, &at);
    return at.tv_sec * 1000000000LL + at.tv_nsec;
}

static int fail(const char *what)
{
    perror(what);
    return 1;
}

int main(int count, char **words)
{
    if (count != 5) return fputs("sender FILE INTERFACE PER_S SECONDS\n", stderr), 2;
    int file = open(words[1], O_RDONLY), out = socket(AF_PACKET, SOCK_RAW, 0), yes = 1;
    struct stat about;
    if (file < 0 || fstat(file, &about)) return fail(words[1]);
    const uint8_t *all = mmap(NULL, about.st_size, PROT_READ, MAP_PRIVATE | MAP_POPULATE, file, 0);
    struct sockaddr_ll to = {.sll_family = AF_PACKET, .sll_ifindex = if_nametoindex(words[2])};
    if (all == MAP_FAILED || out < 0 || bind(out, (void *)&to, sizeof to)) return fail(words[2]);
    setsockopt(out, SOL_PACKET, PACKET_QDISC_BYPASS, &yes, sizeof yes);

    static uint8_t frames[BATCH][LONGEST];
    struct iovec parts[BATCH];
    struct mmsghdr messages[BATCH] = {0};
    for (int i = 0; i < BATCH; i++) {
        parts[i].iov_base = frames[i];
        messages[i].msg_hdr.msg_iov = &parts[i];
        messages[i].msg_hdr.msg_iovlen = 1;
    }
    int64_t rate = atoll(words[3]), began = now(), until = began + atoll(words[4]) * 1000000000LL, sent = 0;
    off_t at = HEAD;
    while (now() < until) {
        while (sent > (now() - began) / 1000 * rate / 1000000) { /* ahead of the rate */ }
        int filled = 0;
        for (; filled < BATCH && at + RECORD <= about.st_size; filled++) {
            uint32_t sizes[2];
            memcpy(sizes, all + at + 8, sizeof sizes); /* captured, on the wire */
            size_t length = sizes[1] < LONGEST ? sizes[1] : LONGEST;
            memset(frames[filled], 0, length);
            memcpy(frames[filled], all + at + RECORD, sizes[0] < length ? sizes[0] : length);
            parts[filled].iov_len = length;
            at += RECORD + sizes[0];
        }
        if (!filled) break;
        for (int done = 0; done < filled;) {
            int some = sendmmsg(out, messages + done, filled - done, 0);
            if (some < 0) return fail("sendmmsg");
            done += some;
        }
        sent += filled;
    }
    printf("%lld %lld\n", (long long)sent, (long long)((now() - began) / 1000));
    return 0;
}
