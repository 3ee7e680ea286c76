/* The device of FreeBSD's stack: takes the place of libuinet's uinet_if_pcap.c, whose frames leave through a thread of
 * their own, all as long as its buffer. Here whoever has a frame sends it, as a kernel does.
 * Compiled as part of the stack, with its headers; what it needs of Linux is in main.c. */

#include <sys/param.h>
#include <sys/kernel.h>
#include <sys/kthread.h>
#include <sys/malloc.h>
#include <sys/mbuf.h>
#include <sys/proc.h>
#include <sys/socket.h>
#include <sys/sockio.h>

#include <net/ethernet.h>
#include <net/if.h>
#include <net/if_types.h>
#include <net/if_var.h>

#include "uinet_if.h"
#include "uinet_if_netmap.h"
#include "uinet_if_pcap.h"
#include "uinet_internal.h"

int device_open(const char *name);
int device_read(void *frame, int most);
int device_write(const void *frame, int size);

static void no_settings(union uinet_if_type_cfg *settings)
{
    (void)settings;
}

static struct uinet_if_type_info type = {UINET_IFTYPE_PCAP, "pcap", no_settings};
UINET_IF_REGISTER_TYPE(PCAP, &type);

static int send_frame(struct ifnet *interface, struct mbuf *packet)
{
    char frame[ETHER_MAX_LEN];
    int size = packet->m_pkthdr.len, sent = 0;

    if (size <= (int)sizeof frame) {
        m_copydata(packet, 0, size, frame);
        sent = device_write(frame, size) == size;
    }
    m_freem(packet);
    return sent ? 0 : ENOBUFS;
}

/* The device's frames go to the stack, until the program ends. */
static void receive_frames(void *argument)
{
    struct ifnet *interface = argument;

    for (;;) {
        struct mbuf *packet = m_getcl(M_WAITOK, MT_DATA, M_PKTHDR);
        int size = device_read(mtod(packet, void *), MCLBYTES);
        if (size <= 0)
            return;
        packet->m_len = packet->m_pkthdr.len = size;
        packet->m_pkthdr.rcvif = interface;
        interface->if_input(interface, packet);
    }
}

static void start(void *argument)
{
    struct ifnet *interface = argument;

    if (interface->if_drv_flags & IFF_DRV_RUNNING)
        return;
    interface->if_drv_flags |= IFF_DRV_RUNNING;
    kthread_add(receive_frames, interface, NULL, NULL, 0, 0, "receive");
}

static int control(struct ifnet *interface, u_long command, caddr_t data)
{
    if (command != SIOCSIFFLAGS)
        return ether_ioctl(interface, command, data);
    if (interface->if_flags & IFF_UP)
        start(interface);
    return 0;
}

int if_pcap_attach(struct uinet_if *device)
{
    struct ifnet *interface = if_alloc(IFT_ETHER);

    if (device_open(device->configstr))
        return ENXIO;
    snprintf(device->name, sizeof device->name, "%s", device->configstr);
    if_initname(interface, device->name, IF_DUNIT_NONE);
    interface->if_flags = IFF_BROADCAST | IFF_SIMPLEX | IFF_MULTICAST;
    interface->if_softc = interface;
    interface->if_init = start;
    interface->if_ioctl = control;
    interface->if_transmit = send_frame;
    ether_ifattach(interface, "\2\0\0\0\0\2");
    uinet_if_attach(device, interface, interface);
    return 0;
}

int if_pcap_detach(struct uinet_if *device)
{
    return 0;
}

/* Of libuinet's other device, which is left out. */
uint32_t if_netmap_num_extra_bufs;

int if_netmap_attach(struct uinet_if *device)
{
    return ENXIO;
}

int if_netmap_detach(struct uinet_if *device)
{
    return ENXIO;
}
