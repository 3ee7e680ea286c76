/* One end of a recorded case, with lwIP's TCP on the device tap0 (liblwip-dev of Debian). The driver is our own, for the
 * library's overruns its buffers when a frame is larger than 592 bytes.
 * lwip-peer server|client nagle|nodelay - CONNECTIONS EXCHANGES STEP...; see stack_cases.py.
 * lwIP acknowledges on a tick of 250 ms, set when it is compiled: the third argument says nothing. */

#include <fcntl.h>
#include <linux/if.h>
#include <linux/if_tun.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <time.h>
#include <unistd.h>

#include "lwip/api.h"
#include "lwip/etharp.h"
#include "lwip/tcp.h"
#include "lwip/tcpip.h"

#define PORT 7000
#define LARGEST 8192 /* bytes of one write */
#define FRAME 1514

static int tap;
static char data[LARGEST];
static struct netbuf *unread; /* what has arrived of the connection, */
static int used;              /* and how much of that has been read */

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

/* The stack's frame goes to the device. */
static err_t send_frame(struct netif *interface, struct pbuf *packet)
{
    char frame[FRAME];
    u16_t length = pbuf_copy_partial(packet, frame, sizeof frame, 0);

    (void)interface;
    return write(tap, frame, length) == length ? ERR_OK : ERR_IF;
}

/* The device's frames go to the stack, until the program ends. */
static void receive_frames(void *interface)
{
    char frame[FRAME];
    ssize_t length;

    while ((length = read(tap, frame, sizeof frame)) > 0) {
        struct pbuf *packet = pbuf_alloc(PBUF_RAW, length, PBUF_RAM);
        pbuf_take(packet, frame, length);
        if (tcpip_input(packet, interface) != ERR_OK)
            pbuf_free(packet);
    }
    check("read from tap0", 1);
}

static err_t open_tap(struct netif *interface)
{
    struct ifreq request = {.ifr_name = "tap0", .ifr_flags = IFF_TAP | IFF_NO_PI};

    tap = open("/dev/net/tun", O_RDWR);
    if (tap < 0 || ioctl(tap, TUNSETIFF, &request))
        return ERR_IF;
    interface->mtu = 1500;
    interface->hwaddr_len = ETH_HWADDR_LEN;
    memcpy(interface->hwaddr, "\2\0\0\0\0\2", ETH_HWADDR_LEN);
    interface->flags = NETIF_FLAG_BROADCAST | NETIF_FLAG_ETHARP | NETIF_FLAG_ETHERNET;
    interface->output = etharp_output;
    interface->linkoutput = send_frame;
    sys_thread_new("tap0", receive_frames, interface, 0, 0);
    return ERR_OK;
}

static void start_stack(void)
{
    static struct netif interface;
    ip4_addr_t ours, mask, gateway;

    tcpip_init(NULL, NULL);
    IP4_ADDR(&ours, 10, 78, 0, 2);
    IP4_ADDR(&mask, 255, 255, 255, 0);
    IP4_ADDR(&gateway, 10, 78, 0, 1);
    LOCK_TCPIP_CORE();
    check("tap0", !netif_add(&interface, &ours, &mask, &gateway, NULL, open_tap, tcpip_input));
    netif_set_default(&interface);
    netif_set_up(&interface);
    netif_set_link_up(&interface);
    UNLOCK_TCPIP_CORE();
}

/* Read so many bytes, or with 0 until the other end has closed. */
static void read_bytes(struct netconn *connection, int size)
{
    int left = size;

    while (left || !size) {
        if (!unread) {
            err_t error = netconn_recv(connection, &unread);
            if (error == ERR_CLSD && !size)
                return;
            check("recv", error);
            used = 0;
        }
        int has = netbuf_len(unread) - used;
        int taken = size && left < has ? left : has;
        left -= taken;
        used += taken;
        if (taken == has) {
            netbuf_delete(unread);
            unread = NULL;
        }
    }
}

/* All exchanges of one connection; prints its log of writes as JSON. */
static void converse(struct netconn *connection, int exchanges, char **steps)
{
    long sent = 0;

    printf("[");
    for (; exchanges--;)
        for (char **step = steps; *step; step++) {
            int size = atoi(*step + 1);
            if (**step == 'w') {
                printf("%s[%ld,%d,%lld]", sent ? "," : "", sent + size, size, now_ns());
                sent += size;
                check("write", netconn_write(connection, data, size, NETCONN_COPY));
            } else if (**step == 'r') {
                read_bytes(connection, size);
            } else {
                sleep_ms(size);
            }
        }
    printf("]");
}

int main(int count, char **arguments)
{
    if (count < 7)
        return 2;
    int server = !strcmp(arguments[1], "server"), nagle = !strcmp(arguments[2], "nagle");
    int connections = atoi(arguments[4]), exchanges = atoi(arguments[5]);
    struct netconn *listener = NULL;

    start_stack();
    if (server) {
        listener = netconn_new(NETCONN_TCP);
        check("bind", netconn_bind(listener, NULL, PORT));
        check("listen", netconn_listen(listener));
    }
    printf("ready\n");
    fflush(stdout);
    for (int i = 0; i < connections; i++) {
        struct netconn *connection;
        ip_addr_t address = IPADDR4_INIT_BYTES(10, 78, 0, 1);
        u16_t port;

        if (server) {
            check("accept", netconn_accept(listener, &connection));
        } else {
            connection = netconn_new(NETCONN_TCP);
            check("connect", netconn_connect(connection, &address, PORT));
        }
        if (!nagle)
            tcp_nagle_disable(connection->pcb.tcp);
        check("address", netconn_getaddr(connection, &address, &port, !server)); /* the client's */
        printf("%s{\"port\":%u,\"writes\":", i ? "," : "[", port);
        converse(connection, exchanges, arguments + 6);
        if (server)
            read_bytes(connection, 0); /* the client closes first */
        printf("}");
        netconn_close(connection);
        netconn_delete(connection);
    }
    printf("]\n");
    fflush(stdout);
    sleep_ms(600); /* the last ACKs */
    return 0;
}
