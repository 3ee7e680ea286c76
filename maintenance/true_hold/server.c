/* A server that replies in two writes. Of each trigger it notes the clock right before send(), and the kernel's own
 * software timestamp of the segment that left (SO_TIMESTAMPING), in ns since the epoch: one line each, appended to
 * the file named. */
#include <arpa/inet.h>
#include <errno.h>
#include <linux/errqueue.h>
#include <linux/net_tstamp.h>
#include <netinet/tcp.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <time.h>
#include <unistd.h>

static char buffer[4096];

static long long ns(struct timespec at) { return at.tv_sec * 1000000000LL + at.tv_nsec; }

static long long now(void) {
    struct timespec at;
    clock_gettime(CLOCK_REALTIME, &at);
    return ns(at);
}

/* The latest of the timestamps that wait: that of the trigger, for what is held has not left. 0: none. */
static long long timestamp(int peer) {
    long long found = 0;
    char control[512];
    for (;;) {
        struct msghdr message = {.msg_control = control, .msg_controllen = sizeof control};
        if (recvmsg(peer, &message, MSG_ERRQUEUE | MSG_DONTWAIT) < 0)
            return found;
        for (struct cmsghdr *one = CMSG_FIRSTHDR(&message); one; one = CMSG_NXTHDR(&message, one))
            if (one->cmsg_level == SOL_SOCKET && one->cmsg_type == SCM_TIMESTAMPING) {
                struct scm_timestamping stamps;
                memcpy(&stamps, CMSG_DATA(one), sizeof stamps);
                found = ns(stamps.ts[0]);
            }
    }
}

static void *serve(void *listener) {
    int peer = accept(*(int *)listener, 0, 0);
    FILE *file = fopen(getenv("TIMES"), "a");
    unsigned flags = SOF_TIMESTAMPING_TX_SOFTWARE | SOF_TIMESTAMPING_SOFTWARE | SOF_TIMESTAMPING_OPT_TSONLY;
    if (!file || setsockopt(peer, SOL_SOCKET, SO_TIMESTAMPING, &flags, sizeof flags) != 0)
        exit(1);
    while (read(peer, buffer, 100) == 100) {
        timestamp(peer); /* those of the reply before */
        long long before = now();
        send(peer, buffer, 200, 0);
        long long left = timestamp(peer);
        send(peer, buffer, 600, 0);
        if (left)
            fprintf(file, "%lld %lld\n", before, left);
    }
    fclose(file);
    return 0;
}

int main(int count, char **arguments) {
    struct sockaddr_in at = {AF_INET};
    socklen_t size = sizeof at;
    int exchanges = count > 1 ? atoi(arguments[1]) : 30, one = 1;
    static char answer[4096];
    at.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    int listener = socket(AF_INET, SOCK_STREAM, 0), client = socket(AF_INET, SOCK_STREAM, 0);
    bind(listener, (void *)&at, size);
    listen(listener, 5);
    getsockname(listener, (void *)&at, &size);
    pthread_t thread;
    pthread_create(&thread, 0, serve, &listener);
    setsockopt(client, IPPROTO_TCP, TCP_NODELAY, &one, sizeof one);
    connect(client, (void *)&at, size);
    for (int i = 0; i < exchanges; i++) {
        send(client, answer, 100, 0);
        for (ssize_t got = 0, n; got < 800; got += n)
            if ((n = recv(client, answer, sizeof answer, 0)) <= 0)
                return 1;
    }
    shutdown(client, SHUT_WR);
    pthread_join(thread, 0);
    return 0;
}
