"""What the connections know of each end."""

from itertools import pairwise

import pytest

from nagle_lab.capture import open_capture
from nagle_lab.packet import Tally, decode
from nagle_lab.tcp.connections import Connections
from nagle_lab.tcp.loops import hash_pairs
from support.synthetic import SECOND, Segment, pcap_bytes

# MSS and window in the SYN of the client, then of the server (None: not seen), whether both have timestamps; the
# largest segment, and what is surely smaller than a full one of the client and of the server.
SEGMENTS = [
    ((1460, 64_240), (1460, 65_160), True, 1448, [1448, 1448]),
    ((1460, 64_240), (1400, 65_160), False, 1400, [1400, 1400]),
    ((65_495, 2_000), (65_495, 60_000), False, 65_495, [30_000, 1_000]),  # half of what the other end offered
    ((1460, 500), (1460, 536), False, 1460, [536, 500]),  # not of so small a window
    ((None, 65_535), (None, 65_535), False, 1448, [536, 536]),  # what any host must take
    ((1460, 800), None, True, 1460, [1460, 400]),
    (None, (1460, 800), True, 1460, [400, 1460]),
]


@pytest.mark.parametrize("case", SEGMENTS)
@pytest.mark.parametrize("apart", [False, True], ids=["in one window", "in two"])
def test_how_large_segments_are_is_learned_with_the_handshake(tmp_path, case, apart):
    """RFC 9293 §3.7.1, and tcp_bound_to_half_wnd; a SYN that comes again changes nothing."""
    client, server, stamps, *learned = case
    ends, known, syns = (("10.0.0.1", 4000), ("10.0.0.2", 80)), Connections(), []
    for said, (here, there), flags in ((client, ends, "S"), (server, ends[::-1], "SA")):
        if said is not None:
            of = {"mss": said[0], "window": said[1], "timestamps": (1, 1) if stamps else None}
            again = [Segment(10**9 * SECOND + len(syns), *here, *there, seq=7, flags=flags, **of)] * 2
            syns += again
    path = tmp_path / "syns.pcap"
    path.write_bytes(pcap_bytes(syns))
    with open_capture(path) as capture:
        (packets,) = (decode(records, Tally()) for records in capture)
    for begin, end in pairwise(range(len(packets) + 1) if apart else (0, len(packets))):
        window = packets.take(slice(begin, end))
        known.finish(known.follow(window, hash_pairs(window)))
    (place,) = known.live()
    assert [known.facts.size[place], known.facts.small[place].tolist()] == learned
    known.free(known.live())
    assert [known.facts.size[place], known.facts.small[place].tolist()] == [1448, [536, 536]]
