"""A small capture that stalls."""

from support.synthetic import MS, US, Conversation, pcap_bytes


def stalled(
    exchanges: int = 20, client: tuple[str, int] = ("10.0.0.1", 40000), server: tuple[str, int] = ("10.0.0.2", 80),
    t0_ns: int = 1_700_000_000_000_000_000, close: bool = True,
) -> Conversation:  # fmt: skip
    """A connection whose server holds the second write of each reply until the client's delayed ACK."""
    c = Conversation(client, server, t0_ns=t0_ns)
    c.handshake()
    for number in range(exchanges):
        c.client_sends(100)
        c.server_sends(238, after_ns=200 * US)
        c.client_acks(after_ns=(40 + number % 4) * MS)
        c.server_sends(615, after_ns=20 * US)
        c.client_acks()
        c.pause(5 * MS)
    if close:
        c.close()
    return c


STALLED = pcap_bytes(stalled().segments)
