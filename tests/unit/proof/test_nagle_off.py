"""What shows that TCP_NODELAY is set, on which connection, and since when."""

from dataclasses import replace

import pytest

from nagle_lab.diagnosis.proof import nagle_off
from nagle_lab.diagnosis.proof.outcomes import Obstacle
from support.stories import (
    BODY,
    HEADER,
    LATE,
    RELEASE,
    REQUEST,
    Story,
    nodelay,
    prompt,
    server_held,
    talk,
    two_part_reply,
)
from support.synthetic import MS, SECOND, US, Conversation, Segment, merge


def test_another_connection_with_tcp_nodelay_acquits_nobody(diagnose):
    """One server, one port: a stream that waits for no ACK beside replies that are held."""

    def push(c: Conversation, number: int) -> None:
        sent = c.server_sends(100 + number, after_ns=30 * MS)
        if number % 5 == 4:
            c.client_acks(after_ns=40 * MS)
            c.server_sends(77, at_ns=sent.ts_ns + 41 * MS)
            c.client_acks(after_ns=10 * US)

    def streams(c: Conversation, number: int) -> None:
        c.client_sends(10)
        for turn in range(8):
            push(c, turn + number)

    stream = talk(streams, exchanges=20, client=("10.0.0.5", 50_000)).segments
    result = diagnose(merge(talk(server_held).segments, stream))
    assert (result.verdict, result.summary.stalls) == ("STALL", 19)


def test_a_stream_without_answers_is_clean_where_a_stall_would_have_shown(diagnose):
    """TCP_NODELAY, and ticks as long as the peer's timer: late ACKs, pauses behind them, and data before them."""

    def ticks(c: Conversation, number: int) -> None:
        if number % 3:
            c.client_acks(after_ns=40 * MS)
            c.server_sends(100, after_ns=5 * MS)
        else:
            c.server_sends(100, after_ns=45 * MS)
            c.client_acks(after_ns=10 * US)

    result = diagnose(talk(ticks, exchanges=60).segments)
    assert result.summary.exchanges < 10
    assert (result.verdict, result.summary.stalls) == ("CLEAN", 0)
    assert "followed a late ACK" in result.reason


@pytest.mark.parametrize("chunk", [16, 1 << 16])
def test_however_long_it_goes_on_a_share_of_data_without_ack_acquits_nobody(diagnose, monkeypatch, chunk):
    """TCP_NODELAY for one reply in twelve: candidates are compared with what was sent among them, not with all."""
    monkeypatch.setattr("nagle_lab.tcp.tables.CHUNK", chunk)

    def flushed(c: Conversation, number: int) -> None:
        if number % 12 == 5:
            c.client_sends(REQUEST)
            c.server_sends(HEADER, after_ns=200 * US)
            c.server_sends(300, after_ns=20 * US)
            c.server_sends(BODY, after_ns=30 * MS)
            c.client_acks(after_ns=10 * US)
        else:
            server_held(c, number)

    result = diagnose(talk(flushed, exchanges=240).segments)
    assert (result.verdict, result.summary.stalls) == ("STALL", 219)


def test_where_a_filter_left_out_the_acks_data_need_not_have_been_sent_beside_unacknowledged(diagnose):
    """A first reply in five writes, each acknowledged at once; then replies are held, and three requests come late.

    Without the ACKs the first reply looks as if TCP_NODELAY were set.
    """

    def first(c: Conversation, _: int) -> None:
        c.client_sends(REQUEST)
        for _write in range(5):
            c.server_sends(20, after_ns=10 * US)
            c.client_acks(after_ns=3 * US)

    def exchange(c: Conversation, number: int) -> None:
        if number % 20 == 10:
            c.pause(8 * MS)
        server_held(c, number)

    segments = talk(exchange, exchanges=60, first=first).segments
    result = diagnose([s for s in segments if s.length or s.flags != "A"])
    assert (result.verdict, result.quality.unresolved) == ("INCONCLUSIVE", {Obstacle.CAPTURE_INCOMPLETE: 59})


@pytest.mark.parametrize(
    ("first", "rtt_ms", "after_ms", "is_probe"),
    [
        (HEADER, 0, 205, True),
        (HEADER, 0, 25, False),
        (3_000, 0, 25, True),
        (3_000, 12, 31, True),
        (3_000, 12, 28, False),  # less than two round trips and two jiffies
    ],
)
def test_a_probe_for_a_loss_does_not_show_that_nagle_is_off(diagnose, first, rtt_ms, after_ms, is_probe):
    """TCP sends what it holds when the last segment stays unacknowledged for 200 ms and more (RFC 8985 §7.3).

    If several segments stay unacknowledged, that is after two round trips and two jiffies. They may be one packet.
    """

    def probed(c: Conversation, number: int) -> None:
        if number % 2:
            server_held(c, number)
            return
        c.client_sends(REQUEST)
        c.server_sends(first, after_ns=200 * US)
        c.server_sends(BODY, after_ns=after_ms * MS)
        c.client_acks(after_ns=rtt_ms * MS + 10 * US)

    result = diagnose(talk(probed, exchanges=40, rtt_ns=rtt_ms * MS).segments)
    assert result.connections[0].sent["server"].not_held == (0 if is_probe else 19)
    assert result.summary.stalls == 20 or not is_probe


def test_what_was_held_before_tcp_nodelay_was_set_counts(diagnose):
    """OpenSSH: its key exchange is held twice, and TCP_NODELAY comes with the session."""
    c = Conversation()
    c.handshake()
    for _ in range(2):
        c.client_sends(16)
        c.server_acks(after_ns=LATE)
        c.client_sends(48, after_ns=RELEASE)
        c.server_sends(BODY, after_ns=200 * US)
        c.client_acks(after_ns=10 * US)
    for number in range(12):
        c.client_sends(36, after_ns=20 * MS)
        c.client_sends(36, after_ns=(60 + number) * MS)
        c.server_sends(44, after_ns=200 * US)
        c.client_acks(after_ns=10 * US)
    result = diagnose(c.segments)
    assert (result.verdict, result.summary.stalls, result.summary.grounds) == ("STALL", 2, {"promptness": 2})


def ssh_sessions(count: int, *, greets: bool = True) -> list[Segment]:
    """OpenSSH's server: one segment is held, and later on two leave within 2 ms, in each session."""
    talks = []
    for number in range(count):
        c = Conversation(client=("10.0.0.1", 40_000 + number), t0_ns=(1_700_000_000 + number) * SECOND)
        c.handshake()
        if greets:
            c.server_sends(41, after_ns=5 * MS)
            c.client_acks(after_ns=10 * US)
        c.client_sends(REQUEST)
        c.server_sends(HEADER, after_ns=5 * MS)
        c.client_acks(after_ns=LATE)
        c.server_sends(192, after_ns=RELEASE)
        c.client_acks(after_ns=10 * US)
        c.client_sends(REQUEST)
        c.server_sends(72, after_ns=1 * MS)
        c.server_sends(176, after_ns=2 * MS)
        c.client_acks(after_ns=4 * MS)
        c.close()
        talks.append(c.segments)
    return merge(*talks)


@pytest.mark.parametrize(
    ("sessions", "greets", "verdict", "stalls"),
    [(12, True, "STALL", 12), (12, False, "INCONCLUSIVE", 0), (3, True, "INCONCLUSIVE", 0)],
)
def test_what_each_session_held_before_tcp_nodelay_was_set_counts(diagnose, sessions, greets, verdict, stalls):
    """Of a few it may be chance. Without other data before the trigger, a window that begins with one may hold it."""
    result = diagnose(ssh_sessions(sessions, greets=greets))
    assert (result.verdict, result.summary.stalls) == (verdict, stalls)


def test_of_very_many_sessions_the_first_ones_show_that_it_is_no_chance(diagnose, monkeypatch):
    """Comparing all of them takes a time that grows with their square."""
    looked_at, of_so_many = [], nagle_off._chance_of_so_many

    def chance_of_so_many(times: int, chances: list[float]) -> float:
        looked_at.append(len(chances))
        return of_so_many(times, chances)

    monkeypatch.setattr(nagle_off, "MOST_LOOKED_AT", 20)
    monkeypatch.setattr(nagle_off, "_chance_of_so_many", chance_of_so_many)
    assert diagnose(ssh_sessions(50)).summary.stalls == 50
    assert max(looked_at) == 20


def goes_on(c: Conversation, number: int) -> None:
    """A server with TCP_NODELAY writes its body 25 ms after its header, before any ACK."""
    c.client_sends(REQUEST)
    c.server_sends(HEADER, after_ns=200 * US)
    c.server_sends(BODY, after_ns=25 * MS + number * 100 * US)
    c.client_acks(after_ns=10 * US)


def in_turn(stories: dict[str, Story], parts: str, rtt_ns: int) -> Conversation:
    """One connection with an exchange for each letter of ``parts``."""
    c = Conversation(rtt_ns=rtt_ns)
    c.handshake()
    prompt(c, 0)
    for number, part in enumerate(parts):
        c.pause(2 * MS)
        stories[part](c, number)
    c.close()
    return c


@pytest.mark.parametrize("seen_at", ["server", "client"])
@pytest.mark.parametrize(
    ("parts", "verdict", "stalls"),
    [
        ("h" * 20 + "n" * 9, "STALL", 20),
        ("n" * 9 + "h" * 20, "STALL", 20),
        ("n" * 5 + "h" * 8, "STALL", 8),
        ("hnhhnhhnh" * 4, "INCONCLUSIVE", 0),
    ],
    ids=["set", "cleared", "cleared, a few", "by turns"],
)
def test_an_option_that_changes_splits_its_connection(diagnose, parts, verdict, stalls, seen_at):
    """TCP_NODELAY is set, or cleared, between exchanges; where data waits and does not by turns, it is left open."""
    c = in_turn({"h": server_held, "n": goes_on}, parts, rtt_ns=10 * MS if seen_at == "client" else 0)
    result = diagnose(c.seen_at(seen_at))
    assert (result.verdict, result.summary.stalls) == (verdict, stalls)


def passes_on(c: Conversation, number: int) -> None:
    """A relay with TCP_NODELAY: what comes to it late leaves behind the ACK; most follows 3 ms after the header."""
    if number % 3 == 0:
        two_part_reply(c, ack=LATE + number % 5 * MS, body=(150 + number % 7 * 20) * US)
        return
    c.client_sends(REQUEST)
    c.server_sends(HEADER, after_ns=200 * US)
    c.server_sends(BODY, after_ns=3 * MS + number * 10 * US)
    c.client_acks(after_ns=10 * US)


@pytest.mark.parametrize(
    ("parts", "seen_at", "verdict", "stalls"),
    [
        ("r" * 30, "server", "CLEAN", 0),
        ("r" * 30, "client", "INCONCLUSIVE", 0),
        ("h" * 10 + "s" * 20, "server", "STALL", 10),
        ("h" * 10 + "s" * 20, "client", "STALL", 10),
    ],
)
def test_what_leaves_soon_beside_unacknowledged_data_did_not_wait(diagnose, parts, seen_at, verdict, stalls):
    """Data in between that left much sooner than the ACK shows that TCP_NODELAY is set, too.

    At the client, what a relay passes on follows the ACK as if it had been held.
    """
    stories = {"h": server_held, "r": passes_on, "s": lambda c, number: passes_on(c, 3 * number + 1)}
    c = in_turn(stories, parts, rtt_ns=2 * MS if seen_at == "client" else 0)
    result = diagnose(c.seen_at(seen_at))
    assert (result.verdict, result.summary.stalls) == (verdict, stalls)


@pytest.mark.parametrize("seen_at", ["server", "client"])
@pytest.mark.parametrize("rtt", [0, 10 * MS])
@pytest.mark.parametrize(("number_held", "verdict"), [(2, "INCONCLUSIVE"), (0, "STALL")])
def test_what_leaves_right_behind_unacknowledged_data_shows_that_nothing_holds_it(
    diagnose, rtt, seen_at, number_held, verdict
):
    """TCP_NODELAY; one reply in five waits for the ACK of its header, which the program polls for.

    Where the replies until the first of the others wait, the option may have been set and cleared; away from the
    sender, where more explanations look the same, one reply is too little to say so.
    """

    def reply(c: Conversation, number: int) -> None:
        waits = number % 5 == number_held
        c.client_sends(REQUEST)
        c.server_sends(HEADER, after_ns=200 * US)
        if waits:
            c.client_acks(after_ns=LATE)
        c.server_sends(BODY, after_ns=(30 + number % 3 * 4) * US)
        c.client_acks(after_ns=20 * US)

    result = diagnose(talk(reply, 60, rtt_ns=rtt, first=reply).seen_at(seen_at))
    is_away = rtt and seen_at == "client"
    assert result.verdict == ("INCONCLUSIVE" if is_away else verdict)
    assert result.connections[0].sent["server"].not_held == 48


@pytest.mark.parametrize(
    ("after", "verdict"),
    [
        ((RELEASE,), "STALL"),
        ((40 * US,), "INCONCLUSIVE"),
        ((150 * US, 210 * US), "CLEAN"),
        ((RELEASE, 700 * US), "STALL"),
    ],
)
def test_an_option_that_is_set_for_every_other_reply(diagnose, after, verdict):
    """At the sender: half of the replies wait for no ACK; what leaves right behind the others' ACKs was held, and a
    little later, unless a program was woken."""
    c = Conversation()
    c.handshake()
    for number in range(60):
        c.client_sends(REQUEST, after_ns=5 * MS)
        c.server_acks(after_ns=3 * US)
        c.server_sends(HEADER, after_ns=2 * MS)
        if number % 2:
            c.client_acks(after_ns=LATE + number % 5 * MS)
            c.server_sends(BODY, after_ns=after[number // 2 % len(after)])
        else:
            c.server_sends(BODY, after_ns=25 * MS + number * 100 * US)
        c.client_acks(after_ns=20 * US)
    assert diagnose(c.segments).verdict == verdict


@pytest.mark.parametrize("rtt", [200 * US, 2 * MS, 5 * MS])
@pytest.mark.parametrize("seen_at", ["server", "client"])
@pytest.mark.parametrize("some", [True, False], ids=["some replies", "all"])
def test_the_option_is_set_for_replies_that_pause(diagnose, some, seen_at, rtt):
    """One route of a server streams, with TCP_NODELAY and pauses of any length; what the other one writes is held.

    Where the option is set for all replies, pauses end right behind the ACK as seldom as chance has it.
    """
    c = Conversation(rtt_ns=rtt)
    c.handshake()
    for number in range(80):
        c.client_sends(REQUEST, after_ns=2 * MS)
        header = c.server_sends(HEADER, after_ns=200 * US)
        pause = (30 + number * 7 % 30) * MS + number * 11 * US
        if number % 2 and some:
            c.client_acks(after_ns=LATE + number % 5 * MS)
            c.server_sends(BODY, after_ns=(22 + number % 9) * US)
        elif pause < LATE:
            c.server_sends(BODY, at_ns=header.ts_ns + pause)
        else:
            c.client_acks(after_ns=LATE)
            c.server_sends(BODY, at_ns=header.ts_ns + pause)
        c.client_acks(after_ns=20 * US)
    result = diagnose(c.seen_at(seen_at))
    assert (result.verdict, result.summary.stalls) == ("INCONCLUSIVE" if some else "CLEAN", 0)
    assert sum(result.quality.unresolved.values()) in (range(40, 47) if some else (0,))


@pytest.mark.parametrize(
    ("behind_tick", "held", "rtt", "seen_at", "verdict"),
    [
        (3300 * US, True, 1400 * US, "server", "STALL"),
        (3300 * US, True, 1400 * US, "client", "INCONCLUSIVE"),
        (3300 * US, False, 1400 * US, "client", "INCONCLUSIVE"),  # a slow link may take as long
        (20 * US, False, 1400 * US, "server", "CLEAN"),
    ],
)
def test_pauses_as_long_as_the_timer_hide_no_hold(diagnose, behind_tick, held, rtt, seen_at, verdict):
    """One reply in three is held; the others wait for a timer of the program, with TCP_NODELAY, which ends in a tick
    near that of the late ACK: before it, or so long behind it.

    A program that is woken in the tick of the ACK itself sends a little later or sooner than it.
    """
    c = Conversation(rtt_ns=rtt)
    c.handshake(after_ns=15 * US)
    for number in range(90):
        c.client_sends(REQUEST, after_ns=(2 + number % 3) * MS)
        header = c.server_sends(HEADER, after_ns=60 * US)
        wait, wakes = 40 * MS + number * 7 % 30 * 100 * US, number * 13 % 50 * US - 25 * US
        at = header.ts_ns + wait + rtt
        if held and number % 3 == 0:
            c.client_acks(at_ns=at - rtt // 2)
            c.server_sends(BODY, after_ns=(4 + number % 23) * US)
        elif number % 3 == 1:
            c.server_sends(BODY, at_ns=at + wakes - (700 * US if behind_tick > MS else 0))
        else:
            c.client_acks(at_ns=at - rtt // 2)
            c.server_sends(BODY, at_ns=at + behind_tick + abs(wakes) * (2 if behind_tick > MS else 1))
        c.client_acks(after_ns=20 * US)
    result = diagnose(c.seen_at(seen_at))
    assert result.verdict == verdict
    assert result.summary.stalls in (range(27, 31) if verdict == "STALL" else (0,))


@pytest.mark.parametrize("some", [True, False], ids=["some replies", "all"])
@pytest.mark.parametrize(
    ("rtt", "jitter", "seen_at"),
    [(200 * US, 0, "middle"), (20 * MS, 0, "client"), (20 * MS, 2 * MS, "client")],
)
@pytest.mark.parametrize("step", [1, MS])
def test_few_held_replies_beside_many_that_pause_stay_open(diagnose, some, rtt, jitter, seen_at, step):
    """They stand out where the path is quiet, or as late as that end's other answers; by a coarse clock, too."""
    c = Conversation(rtt_ns=rtt)
    c.handshake()
    every = 3 if jitter or step > 1 else 7
    for number in range(84):
        c.client_sends(REQUEST, after_ns=2 * MS)
        header = c.server_sends(HEADER, after_ns=60 * US)
        pause = 15 * MS + number * 17 % 45 * MS + number * 11 * US
        is_held = some and number % every == 0
        if is_held or pause > LATE:
            c.client_acks(after_ns=LATE + number % 5 * MS)
        c.one_way_ns = rtt // 2 + number * 7 % 10 * jitter // 5
        if is_held:
            c.server_sends(BODY, after_ns=(12 + number % 9) * US)
        else:
            c.server_sends(BODY, at_ns=header.ts_ns + pause)
        c.one_way_ns = rtt // 2
        c.client_acks(after_ns=20 * US)
    result = diagnose([replace(s, ts_ns=s.ts_ns // step * step) for s in c.seen_at(seen_at)])
    assert (result.verdict, result.summary.stalls) == ("INCONCLUSIVE" if some else "CLEAN", 0)


@pytest.mark.parametrize("seen_at", ["server", "client"])
def test_a_few_before_the_option_changed_are_left_open(diagnose, seen_at):
    """As slow as a program that was woken, and too few to tell from chance: not acquitted by what came later."""
    c = Conversation(rtt_ns=2 * MS)
    c.handshake()
    prompt(c, 0)
    for number in range(9):
        c.pause(2 * MS)
        c.client_sends(REQUEST)
        c.server_sends(HEADER, after_ns=200 * US)
        if number < 6:
            c.client_acks(after_ns=LATE)
            c.server_sends(BODY, after_ns=75 * US)
        else:
            c.server_sends(BODY, after_ns=(25 if number == 8 else 12) * MS)
        c.client_acks(after_ns=10 * US)
    result = diagnose(c.seen_at(seen_at))
    assert (result.verdict, result.summary.stalls) == ("INCONCLUSIVE", 0)


@pytest.mark.parametrize("seen_at", ["server", "client"])
@pytest.mark.parametrize(("held", "verdict"), [(2, "INCONCLUSIVE"), (0, "CLEAN")])
def test_two_stalls_beside_a_connection_with_tcp_nodelay_stay_open(diagnose, seen_at, held, verdict):
    """Too few to prove anything, and yet the option of one socket says nothing of another."""

    def sometimes_held(c: Conversation, number: int) -> None:
        (server_held if 5 <= number < 5 + held else prompt)(c, number)

    with_nodelay = talk(goes_on, exchanges=6, rtt_ns=2 * MS)
    without = talk(sometimes_held, exchanges=10, client=("10.0.0.1", 50_000), rtt_ns=2 * MS)
    beside = talk(nodelay, exchanges=30, server=("10.0.0.3", 81), rtt_ns=2 * MS)
    result = diagnose(merge(*(each.seen_at(seen_at) for each in (with_nodelay, without, beside))))
    assert (result.verdict, result.summary.stalls) == (verdict, 0)
    assert result.quality.unresolved == ({"nagle_off_elsewhere": held} if held else {})


@pytest.mark.parametrize(
    ("others", "release", "verdict", "stalls"),
    [
        (7, RELEASE, "STALL", 7),
        (4, RELEASE, "INCONCLUSIVE", 0),
        (7, 40 * US, "INCONCLUSIVE", 0),
        (7, 80 * US, "CLEAN", 0),
    ],
)
def test_tcp_nodelay_on_one_connection_of_a_pool(diagnose, others, release, verdict, stalls):
    """The others hold once each; sooner than any woken program, or as soon as one that waits for the ACK, or later.

    Four are too few to tell.
    """

    def held_once(c: Conversation, number: int) -> None:
        if number != 1:
            prompt(c, number)
            return
        two_part_reply(c, ack=LATE, body=release)

    talks = [talk(goes_on, exchanges=4, rtt_ns=2 * MS)]
    talks += [
        talk(held_once, exchanges=2, client=("10.0.0.1", 50_000 + number), rtt_ns=2 * MS) for number in range(others)
    ]
    result = diagnose(merge(*(each.seen_at("server") for each in talks)))
    assert (result.verdict, result.summary.stalls) == (verdict, stalls)


@pytest.mark.parametrize(("lost", "verdict", "stalls"), [(False, "INCONCLUSIVE", 0), (True, "STALL", 8)])
def test_an_ack_that_the_capture_lost_is_no_sign_of_tcp_nodelay(diagnose, lost, verdict, stalls):
    """Data that follows data after 3 ms did not wait; but where data is lost, too, the ACK in between may be."""
    c = Conversation(timestamps=False)
    c.handshake()
    for number in range(30):
        (server_held if number % 3 == 1 else passes_on)(c, 1)
    segments = c.segments
    if lost:
        segments = [segment for at, segment in enumerate(segments) if not (segment.length and at % 40 == 7)]
    result = diagnose(segments)
    assert (result.verdict, result.summary.stalls) == (verdict, stalls)


@pytest.mark.parametrize("first", [0, 3])
def test_small_data_behind_a_full_segment_need_not_wait_though_no_syn_shows_its_size(diagnose, first):
    """In every second exchange the server writes a full segment, and 25 ms later a small one: Linux sends both."""

    def exchange(c: Conversation, number: int) -> None:
        if number % 2:
            server_held(c, number)
            return
        c.client_sends(REQUEST)
        full = c.server_sends(c.full_segment, after_ns=200 * US)
        c.server_sends(300, at_ns=full.ts_ns + 25 * MS)
        c.client_acks(after_ns=10 * US)

    result = diagnose(talk(exchange, exchanges=40).segments[first:])
    assert (result.verdict, result.summary.stalls, result.quality.unresolved) == ("STALL", 20, {})


@pytest.mark.parametrize(("held", "unresolved"), [(True, {"nagle_off_elsewhere": 15}), (False, {})])
def test_on_a_slow_link_what_was_held_in_turn_with_what_did_not_wait_is_left_open(diagnose, held, unresolved):
    """At the client, at 1 Mbit/s: a body passes 8 ms later for its bytes. Or it is written at its own time."""

    def in_turn(c: Conversation, number: int) -> None:
        if number % 2:
            two_part_reply(c, ack=LATE + number % 5 * MS, body=RELEASE if held else 1 * MS + number * 7 % 60 * MS)
        else:
            c.client_sends(REQUEST)
            c.server_sends(HEADER, after_ns=60 * US)
            c.server_sends(BODY, after_ns=40 * US)
            c.client_acks(after_ns=10 * US)

    result = diagnose(talk(in_turn, exchanges=30, rtt_ns=1 * MS, ns_per_byte=8_000).seen_at("client"))
    assert (result.verdict, result.quality.unresolved) == ("INCONCLUSIVE" if held else "CLEAN", unresolved)
