/* One end of a recorded case, with FreeBSD 9's TCP (libuinet; see build.sh) on the device tap0.
 * freebsd-peer server|client nagle|nodelay ACK_MS CONNECTIONS EXCHANGES STEP...; see stack_cases.py.
 * device.c is the stack's side of the device. */

#include <arpa/inet.h>
#include <fcntl.h>
#include <linux/if.h>
#include <linux/if_tun.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <time.h>
#include <unistd.h>

#include "uinet_api.h"

#define PORT 7000
#define LARGEST 8192 /* bytes of one write */

static int tap;
static char data[LARGEST];

/* End the program when something failed. */
static void check(const char *what, int failed)
{
    if (failed) {
        fprintf(stderr, "%s: %d\n", what, failed);
        exit(1);
    }
}

static void sleep_ms(int ms)
{
    usleep(ms * 1000);
}

/* CLOCK_REALTIME, as in the capture. */
static long long now_ns(void)
{
    struct timespec now;
    clock_gettime(CLOCK_REALTIME, &now);
    return now.tv_sec * 1000000000LL + now.tv_nsec;
}

/* What device.c, which is part of the stack, needs of Linux. */
int device_open(const char *name)
{
    struct ifreq request = {.ifr_flags = IFF_TAP | IFF_NO_PI};

    strncpy(request.ifr_name, name, IFNAMSIZ - 1);
    tap = open("/dev/net/tun", O_RDWR);
    return tap < 0 || ioctl(tap, TUNSETIFF, &request);
}

int device_read(void *frame, int most)
{
    return read(tap, frame, most);
}

int device_write(const void *frame, int size)
{
    return write(tap, frame, size);
}

static void set(struct uinet_socket *socket, int option, int value)
{
    check("option", uinet_sosetsockopt(socket, UINET_IPPROTO_TCP, option, &value, sizeof value));
}

static void set_sysctl(const char *name, int value)
{
    check(name, uinet_sysctlbyname(uinet_instance_default(), name, NULL, NULL, (char *)&value, sizeof value, NULL, 0));
}

/* What the stack itself prints as it starts is thrown away. */
static void start_stack(int ack_ms)
{
    struct uinet_if_cfg device;
    uinet_if_t created;
    uinet_instance_t stack;
    int said = dup(STDOUT_FILENO), nowhere = open("/dev/null", O_WRONLY);

    dup2(nowhere, STDOUT_FILENO);
    check("init", uinet_init(NULL, NULL));
    stack = uinet_instance_default();
    uinet_if_default_config(UINET_IFTYPE_PCAP, &device);
    device.configstr = "tap0";
    check("tap0", uinet_ifcreate(stack, &device, &created));
    check("address", uinet_interface_add_alias(stack, uinet_ifgenericname(created), "10.78.0.2", "10.78.0.255",
                                               "255.255.255.0"));
    check("up", uinet_interface_up(stack, uinet_ifgenericname(created), 0, 0));
    set_sysctl("net.inet.tcp.delacktime", ack_ms);
    fflush(stdout);
    dup2(said, STDOUT_FILENO);
}

static struct uinet_sockaddr_in address(const char *ip)
{
    return (struct uinet_sockaddr_in){.sin_len = sizeof(struct uinet_sockaddr_in), .sin_family = UINET_AF_INET,
                                      .sin_port = htons(PORT), .sin_addr.s_addr = inet_addr(ip)};
}

/* Read or write all of so many bytes; 0 when the other end has closed. */
static int move(int (*call)(struct uinet_socket *, struct uinet_uio *), struct uinet_socket *socket, int size)
{
    while (size) {
        struct uinet_iovec vector = {data, size};
        struct uinet_uio all = {&vector, 1, 0, size};
        check("move", call(socket, &all));
        if (all.uio_resid == size)
            return 0;
        size = all.uio_resid;
    }
    return 1;
}

static int receive(struct uinet_socket *socket, struct uinet_uio *all)
{
    return uinet_soreceive(socket, NULL, all, NULL);
}

static int transmit(struct uinet_socket *socket, struct uinet_uio *all)
{
    return uinet_sosend(socket, NULL, all, 0);
}

/* All exchanges of one connection; prints its log of writes as JSON. */
static void converse(struct uinet_socket *socket, int exchanges, char **steps)
{
    long sent = 0;

    printf("[");
    for (; exchanges--;)
        for (char **step = steps; *step; step++) {
            int size = atoi(*step + 1);
            if (**step == 'w') {
                printf("%s[%ld,%d,%lld]", sent ? "," : "", sent + size, size, now_ns());
                sent += size;
                move(transmit, socket, size);
            } else if (**step == 'r') {
                check("closed", !move(receive, socket, size));
            } else {
                sleep_ms(size);
            }
        }
    printf("]");
}

/* The client's port. */
static int port_of(struct uinet_socket *socket, int server)
{
    struct uinet_sockaddr *found;
    int port;

    check("address", server ? uinet_sogetpeeraddr(socket, &found) : uinet_sogetsockaddr(socket, &found));
    port = ntohs(((struct uinet_sockaddr_in *)found)->sin_port);
    uinet_free_sockaddr(found);
    return port;
}

int main(int count, char **arguments)
{
    if (count < 7)
        return 2;
    int server = !strcmp(arguments[1], "server"), nagle = !strcmp(arguments[2], "nagle");
    int connections = atoi(arguments[4]), exchanges = atoi(arguments[5]);
    struct uinet_sockaddr_in ours = address("10.78.0.2"), theirs = address("10.78.0.1");
    struct uinet_socket *listener = NULL;

    start_stack(atoi(arguments[3]));
    if (server) {
        check("socket", uinet_socreate(uinet_instance_default(), UINET_PF_INET, &listener, UINET_SOCK_STREAM, 0));
        check("bind", uinet_sobind(listener, (struct uinet_sockaddr *)&ours));
        check("listen", uinet_solisten(listener, 5));
    }
    printf("ready\n");
    fflush(stdout);
    for (int i = 0; i < connections; i++) {
        struct uinet_socket *socket;

        if (server) {
            check("accept", uinet_soaccept(listener, NULL, &socket));
        } else {
            check("socket", uinet_socreate(uinet_instance_default(), UINET_PF_INET, &socket, UINET_SOCK_STREAM, 0));
            check("connect", uinet_soconnect(socket, (struct uinet_sockaddr *)&theirs));
        }
        set(socket, UINET_TCP_NODELAY, !nagle);
        printf("%s{\"port\":%u,\"writes\":", i ? "," : "[", port_of(socket, server));
        converse(socket, exchanges, arguments + 6);
        if (server)
            move(receive, socket, LARGEST); /* the client closes first */
        printf("}");
        uinet_soclose(socket);
    }
    printf("]\n");
    fflush(stdout);
    sleep_ms(600); /* the last ACKs */
    return 0;
}
