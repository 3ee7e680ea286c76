"""Which ACKs were late: a delayed-ACK timer, not the path, made them so (:func:`late_candidates`)."""

from nagle_lab.diagnosis.observed.candidates import Candidates
from nagle_lab.diagnosis.observed.columns import Column, as_column, highest, lowest, percentile, total
from nagle_lab.diagnosis.observed.enough import A_FEW, COMPARABLE, CONCLUSIVE, HARDLY_ANY, NEARLY_ALL, REPEATED
from nagle_lab.diagnosis.observed.observed import AT_CAPTURE_POINT, NEAR, PATH_JITTER, Observed, late_margin
from nagle_lab.diagnosis.observed.paths import round_trip_bounds
from nagle_lab.diagnosis.observed.programs import Reactions
from nagle_lab.diagnosis.proof.outcomes import Judged, Obstacle, Rejected
from nagle_lab.diagnosis.proof.pauses import PAUSE, spread
from nagle_lab.tcp.events import DELAYED, MS

# A timer's waits differ by a few jiffies; where they differ by more, the path may be what made the ACKs late.
TIMER_SPREAD = 12 * MS
LINUX_TIMER = 38 * MS  # TCP_DELACK_MIN is 40 ms, and clocks differ

# No delayed-ACK timer of Linux fires sooner than this, unless somebody made it shorter (a route's rto_min, 6.8;
# tcp_rto_min_us, 6.11): at HZ=100 one of 40 ms may lack the jiffy it began in. What is late and came sooner was sent
# because a program read its data late (tcp_cleanup_rbuf).
SOONEST_TIMER = 30 * MS

# No delayed ACK may wait for half a second (RFC 1122 §4.2.3.2): what took longer was not a delayed-ACK timer, but the
# network, the capturing machine, or its clock, which was set.
LONGEST_TIMER = 500 * MS  # beyond the fastest reaction
LONGEST_WAIT = LONGEST_TIMER + 50 * MS  # as captured, where the path varies


def late_candidates(c: Candidates, observed: Observed, judged: Judged) -> Candidates:
    """The candidates whose ACK was late: a delayed-ACK timer, not the path, made it so. docs/proof.md, rule 1.

    The others are added to ``judged``: as not late, and those of them that Nagle's algorithm held for a round trip;
    or, if the path may have made pure ACKs late, as unresolved, except those that are surely pauses. Candidates whose
    piggybacked ACKs it may have made late are not added.
    """
    peer_fastest, margin = observed.peer_fastest, late_margin(observed.peer_fastest)
    waits = c.late_by(peer_fastest)
    late = c.only((waits >= margin) & (waits < LONGEST_WAIT))
    held = _held_for_a_round_trip(observed)
    unsure = _may_all_be_late(held, observed)
    judged.leave_open(unsure, Obstacle.NO_HANDSHAKE)
    judged.round_trips.append((held - unsure).row)
    judged.reject(c - late - unsure, Rejected.NOT_LATE)
    pure, piggybacked = late.only(late.pure), late.only(late.pure == 0)
    peers = observed.program.peer_reactions
    round_trips = _round_trips_to_peers(pure, peers)
    is_far = peer_fastest >= NEAR or (len(round_trips) > 0 and percentile(round_trips, 25) >= NEAR)
    all_is_late = _what_no_timer_delays_is_as_late(pure, observed)
    if not is_far and not all_is_late and not _vary_though_linux(pure, observed):
        return late
    if all_is_late or (len(pure) and _is_made_by_the_path(pure, c.only(c.pure), observed)):
        _leave_to_the_path(pure, observed, judged)
        pure = pure.none
    # Data comes when its program likes, so only handshakes and pure ACKs in time show how long it was under way.
    in_time = [ack - peer_fastest for ack in peers.ack if 0 <= ack - peer_fastest < margin]
    others = [*peers.handshake_more, *in_time]
    if len(piggybacked) and others and _all_else_is_as_late(piggybacked.late_by(peer_fastest), others, enough=1):
        piggybacked = piggybacked.none
    return pure | piggybacked


def set_aside_sooner_than_any_timer(held: Candidates, observed: Observed, judged: Judged) -> Candidates:
    """Without those whose ACKs came sooner than a timer of Linux fires, if their host is a Linux, and far or they are
    few.

    Their host was late, or the path was: a radio that sleeps, for example. Many ACKs of a near host show what made
    them late: a timer, or a program that reads late, leaves a gap before them, but a busy host delays by any time. A
    Linux is known by its timestamps, or by its timer. In the second case the sooner ones are set aside if as many
    ACKs came a little sooner still, or some came as much later than the timer.
    """
    waits = held.late_by(observed.peer_fastest)
    sooner = held.only(waits < SOONEST_TIMER)
    if not len(sooner):
        return held
    if len(sooner) == len(held):
        is_few_or_far = len(held) < CONCLUSIVE or observed.peer_fastest >= NEAR
        shows_nothing = is_few_or_far or 2 * _just_in_time(observed.early, observed) >= len(held)
        is_unsure = shows_nothing and 2 * total(held.tsval_delay >= 0) > len(held)
    else:
        is_linux = 2 * total(waits >= LINUX_TIMER) > len(held)
        is_unsure = is_linux and (
            _as_many_came_a_little_sooner(sooner, observed.early, observed)
            or _as_much_beyond_the_timer(sooner.late_by(observed.peer_fastest), waits)
        )
    if not is_unsure:
        return held
    judged.leave_open(sooner, Obstacle.PATH_VARIES)
    return held - sooner


def path_may_have_delayed(piggybacked: Candidates, observed: Observed) -> bool:
    """Whether the path to a peer that is away may have made these piggybacked ACKs late, as it did others.

    Two handshakes, or pure ACKs that came sooner than any timer of Linux fires, are as late, and of many a tenth; or
    the median one, of three or more, is half as late.
    Data acknowledges when its program likes, so the ACKs on data themselves do not show it.
    """
    peer_fastest, peers = observed.peer_fastest, observed.program.peer_reactions
    if peer_fastest < NEAR:
        return False
    soonest = percentile(piggybacked.late_by(peer_fastest), 10) + observed.setting.resolution
    sooner = [ack - peer_fastest for ack in peers.ack if ack - peer_fastest < SOONEST_TIMER]
    others = [*peers.handshake_more, *sooner]
    are_half_as_late = len(others) >= REPEATED and 2 * percentile(others, 50) >= soonest
    as_late = sum(ns >= soonest - PATH_JITTER / 2 for ns in others)
    return are_half_as_late or as_late >= max(2, HARDLY_ANY * len(others))


def _may_all_be_late(held: Candidates, observed: Observed) -> Candidates:
    """Those whose peer does nothing sooner than a delayed-ACK timer fires, and no handshake shows how far away it is.

    A client that thinks for longer than 40 ms, on a connection that began before the capture, acknowledges everything
    by its timer. If its data comes as soon as its ACKs do, and both later than Linux's timer, the path takes that
    long.
    """
    unsure = held.only((held.trigger_to_ack >= LINUX_TIMER) & (held.trigger_to_ack < LONGEST_WAIT))
    if len(unsure):
        unsure = unsure.only(unsure.is_path_known == 0)
    if not len(unsure):
        return unsure
    _, latest = round_trip_bounds(int(unsure.usual_wait))
    as_soon = sum(ns <= latest for ns in observed.program.peer_reactions.data)
    may_think_as_long = unsure.usual_wait <= LINUX_TIMER + TIMER_SPREAD  # a client that polls every 40 ms
    return unsure if may_think_as_long or as_soon < REPEATED else unsure.none


def _held_for_a_round_trip(observed: Observed) -> Candidates:
    """What followed early ACKs at once: Nagle's algorithm held it until these came."""
    early = observed.early
    waits_for_acks = observed.program.sent_without_waiting(by_timestamps=True).total() <= HARDLY_ANY * len(early)
    if len(early) < CONCLUSIVE or not waits_for_acks:
        return early.none
    return early.released_within(*round_trip_bounds(observed.sender_fastest if observed.is_away else 0))


def _leave_to_the_path(pure: Candidates, observed: Observed, judged: Judged) -> None:
    """Leave open what late ACKs may have released; at the sender only what followed before a PAUSE.

    Candidates are rejected instead if their connection had sent small data beside unacknowledged small data before,
    and does so more often than there are candidates: it does not wait, whatever made its ACKs late.
    """
    not_waiting = pure.only((pure.not_held > max(REPEATED, len(pure))) & (pure.trigger_frame > pure.first_not_held))
    judged.reject(not_waiting, Rejected.NAGLE_OFF)
    pure = pure - not_waiting
    unsure = pure if observed.is_away else pure.only(pure.ack_to_release < PAUSE + 2 * observed.setting.resolution)
    judged.leave_open(unsure, Obstacle.PATH_VARIES)
    judged.reject(pure - unsure, Rejected.LATER_RELEASE)


def _round_trips_to_peers(pure: Candidates, peers: Reactions) -> Column:
    """Round trips to the peers, ns: by handshakes; if these are few, by the fastest reactions on connections.

    If there are hardly any handshakes, and all other reactions take alike, by these: a SYN proxy may have answered
    the handshakes.
    """
    others = peers.ack or peers.data
    if len(peers.handshake) >= COMPARABLE:
        return as_column(peers.handshake)
    if len(peers.handshake) < REPEATED and len(others) >= COMPARABLE and spread(as_column(others)) <= PATH_JITTER:
        return as_column(others)
    return pure.peer_fastest_ack


def _is_made_by_the_path(late: Candidates, c: Candidates, observed: Observed) -> bool:
    """Whether the path may have made the pure ACKs of ``late`` late; ``c`` are all candidates with a pure ACK."""
    waits, peers = late.late_by(observed.peer_fastest), observed.program.peer_reactions
    are_few = len(late) <= HARDLY_ANY * len(c)  # of many ACKs a timer delays more
    if _begin_at_linux_timer(waits, observed):
        return False
    takes_as_long = _path_takes_as_long_as_a_timer(c)
    if not (are_few or takes_as_long) and _are_sent_by_a_timer(late, observed):
        return False
    if _was_path_seen_to_delay(late, c, observed):
        return True
    if not takes_as_long and _are_alike_and_alone(waits, c, observed):
        return False
    is_known = len(peers.handshake) >= REPEATED
    more = peers.handshake_more if is_known else [*peers.handshake_more, *peers.data_more]
    return (
        are_few
        or _all_else_is_as_late(waits, more)
        or _follow_those_in_time(waits, c, observed)
        or _waits_differ(waits, observed)
        or _every_ack_is_as_late(waits, observed)
        or _as_many_came_a_little_sooner(late, c, observed)
    )


def _begin_at_linux_timer(waits: Column, observed: Observed) -> bool:
    """Whether hardly any ACK of a trigger came sooner than Linux's timer fires, but some first ACKs did.

    Other first ACKs were as late, so they are of the same time. A path that varies delays all of them by any time.
    """
    acks = [ns - observed.peer_fastest for ns in observed.program.peer_reactions.ack]
    sooner = sum(ns < LINUX_TIMER for ns in acks)
    if len(waits) < CONCLUSIVE or min(sooner, len(acks) - sooner) < max(REPEATED, A_FEW * len(acks)):
        return False
    return percentile(waits, 5) >= LINUX_TIMER and _has_one_time(waits)


def _was_path_seen_to_delay(late: Candidates, c: Candidates, observed: Observed) -> bool:
    """Whether ACKs were under way for so long, by their timestamps, that the data before them may have been, too.

    That is so if others, half as many as the late ones and at least two, would be late if timestamps did not show
    this.
    """
    fastest, margin = observed.peer_fastest, late_margin(observed.peer_fastest)
    by_path = c.only((c.captured_late_by(fastest) >= margin) & (c.late_by(fastest) < margin))
    return len(by_path) > 1 and 2 * len(by_path) >= len(late)


def _path_takes_as_long_as_a_timer(c: Candidates) -> bool:
    """By timestamps, whether most ACKs that were long under way took as long as Linux's timer: data may have, too."""
    long_under_way = c.only(c.ack_delayed >= LINUX_TIMER / 2).ack_delayed
    return 2 * _as_long_as_linux_timer(long_under_way) > len(long_under_way)


def _are_sent_by_a_timer(late: Candidates, observed: Observed) -> bool:
    """By timestamps, whether nearly all were sent when Linux's timer fires or later, and some no later than that.

    Timestamps show how long ACKs were under way, but not the data before them. So False if nothing shows that the
    path has not become longer: neither a quarter of the ACKs in time, nor data that comes sooner.
    """
    peer_fastest, peers = observed.peer_fastest, observed.program.peer_reactions
    when_sent = late.only(late.ack_delayed >= 0)
    if len(when_sent) < REPEATED:
        return False
    in_time = sum(ns - peer_fastest < late_margin(peer_fastest) for ns in peers.ack)
    if in_time < max(A_FEW * len(peers.ack), 1) and not _data_comes_sooner(late.late_by(peer_fastest), observed):
        return False
    waits = when_sent.late_by(peer_fastest)
    are_no_sooner = total(waits >= LINUX_TIMER) > NEARLY_ALL * len(when_sent)
    return are_no_sooner and _as_long_as_linux_timer(waits) > A_FEW * len(when_sent)


def _as_long_as_linux_timer(times: Column) -> int:
    return total((times >= LINUX_TIMER) & (times <= LINUX_TIMER + TIMER_SPREAD))


def _all_else_is_as_late(waits: Column, more: list[int], enough: int = REPEATED) -> bool:
    """Whether a path that varies made ACKs late: everything else from those ends came as late.

    ``more`` is how much later than the fastest that came, ns; ``enough`` is how many such times are enough to tell.
    """
    varies = spread(waits) > TIMER_SPREAD
    if len(more) < enough:
        return varies
    varies = varies or spread(more) > PATH_JITTER / 2
    return varies and percentile(waits, 50) < percentile(more, 75) + PATH_JITTER


def _what_no_timer_delays_is_as_late(late: Candidates, observed: Observed) -> bool:
    """Whether handshakes, or what the ACKs released, took as much longer than the fastest reaction as these ACKs."""
    return len(late) > 0 and (_handshakes_are_as_late(late, observed) or _releases_are_as_late(late, observed))


def _handshakes_are_as_late(late: Candidates, observed: Observed) -> bool:
    """Whether a quarter of an end's handshakes, at least two, are as late as these ACKs.

    Each is compared on its connection. The sender's handshakes count if the peer is away from the capture point: what
    delays one part of a path may delay the other.
    """
    peer_fastest, program = observed.peer_fastest, observed.program
    least = percentile(late.late_by(peer_fastest), 10) - PATH_JITTER / 2 + observed.setting.resolution
    handshakes = [program.peer_reactions.handshake_more]
    if peer_fastest >= AT_CAPTURE_POINT:
        handshakes.append(program.reactions.handshake_more)
    return any(sum(ns >= least for ns in more) >= max(2, A_FEW * len(more)) for more in handshakes)


def _releases_are_as_late(late: Candidates, observed: Observed) -> bool:
    """Whether a tenth of the releases, at least three, are late by as much as the ACKs, if both ends are away."""
    if not observed.is_away or observed.peer_fastest < AT_CAPTURE_POINT:
        return False
    usual = percentile(late.late_by(observed.peer_fastest), 50)
    later = late.ack_to_release - observed.sender_fastest
    as_late = total((later >= usual - PATH_JITTER / 2) & (later <= usual + PATH_JITTER / 2))
    return as_late >= max(REPEATED, HARDLY_ANY * len(late))


def _follow_those_in_time(waits: Column, c: Candidates, observed: Observed) -> bool:
    """Whether ACKs sooner than any timer of Linux fires come right behind those in time: a timer would
    leave a gap.
    """
    before = _just_in_time(c, observed)
    return before >= max(REPEATED, HARDLY_ANY * len(waits)) and percentile(waits, 90) < SOONEST_TIMER


def _just_in_time(c: Candidates, observed: Observed) -> int:
    """How many ACKs were in time, but later than the fastest by at least half of the margin of late ones."""
    margin, waits = late_margin(observed.peer_fastest), c.late_by(observed.peer_fastest)
    return total((waits >= margin / 2) & (waits < margin))


def _waits_differ(waits: Column, observed: Observed) -> bool:
    """Whether ACKs are late by different times, and some by less than Linux's timer: a timer has one time."""
    least = percentile(waits, 10)
    varies = percentile(waits, 90) - least
    has_one_time = _has_one_time(waits)
    if varies <= TIMER_SPREAD or (has_one_time and observed.peer_fastest < NEAR):
        return False
    if varies > 2 * TIMER_SPREAD and len(waits) >= CONCLUSIVE and not has_one_time:
        return True
    return least < LINUX_TIMER and not _data_comes_sooner(waits, observed)


def _has_one_time(waits: Column) -> bool:
    """Whether more than a few waits are as long as Linux's timer, or the median, and few are a little shorter.

    A timer's waits are like that; those of a path that varies have any length.
    """
    for least in (LINUX_TIMER, percentile(waits, 50) - TIMER_SPREAD / 2):
        alike = total((waits >= least) & (waits <= least + TIMER_SPREAD))
        shorter = total((waits >= least - TIMER_SPREAD) & (waits < least))
        if alike > A_FEW * len(waits) and 3 * shorter <= alike:
            return True
    return False


def _vary_though_linux(pure: Candidates, observed: Observed) -> bool:
    """Whether ACKs with timestamps, as Linux sends, are late by times that no timer of Linux produces.

    Then their host sleeps, as a radio does, or is a virtual machine that waits for a processor. lwIP's and smoltcp's
    ACKs are late by their timer's phase, but have no timestamps. The clock's resolution is allowed for.
    """
    if len(pure) < CONCLUSIVE or 2 * total(pure.tsval_delay >= 0) <= len(pure):
        return False
    waits, resolution = pure.late_by(observed.peer_fastest), observed.setting.resolution
    least = percentile(waits, 10)
    varies = percentile(waits, 90) - least - resolution
    if least < LINUX_TIMER - resolution:
        return varies > TIMER_SPREAD
    return varies > 2 * TIMER_SPREAD and not _has_one_time(waits)


def _every_ack_is_as_late(waits: Column, observed: Observed) -> bool:
    """Whether a queue that filled up after the handshakes may delay all ACKs, and no data came sooner.

    If the ACKs are as alike as those of a timer, and as late as Linux's, the soonest data must also come as late.
    """
    peer_fastest, peers = observed.peer_fastest, observed.program.peer_reactions
    if len(peers.ack) < CONCLUSIVE or percentile(peers.ack, 10) - peer_fastest < late_margin(peer_fastest):
        return False
    if spread(waits) <= TIMER_SPREAD and percentile(waits, 50) >= LINUX_TIMER:
        return _begins_as_late(peers.data, percentile(waits, 50) + peer_fastest)
    return not _data_comes_sooner(waits, observed)


def _begins_as_late(data: list[int], round_trip: float) -> bool:
    """Whether the soonest ``data`` comes as late as ACKs do: a path delays both alike, a program thinks as long as it
    likes.
    """
    shortest, longest = round_trip_bounds(int(round_trip))
    return len(data) >= COMPARABLE and shortest <= percentile(data, 5) <= longest


def _data_comes_sooner(waits: Column, observed: Observed) -> bool:
    """Whether data of those ends comes sooner than their late ACKs: then the path is not what delays these."""
    usual, data = percentile(waits, 50), observed.program.peer_reactions.data
    sooner = usual - min(PATH_JITTER, usual / 2)
    return len(data) >= REPEATED and percentile(data, 25) - observed.peer_fastest < sooner


def _are_alike_and_alone(waits: Column, c: Candidates, observed: Observed) -> bool:
    """Whether most late ACKs are as late as Linux's timer makes them, on a path that delays hardly any other.

    If there are only three or four, all of them must be.
    """
    if len(waits) < REPEATED or percentile(waits, 50) < LINUX_TIMER:
        return False
    if len(waits) < COMPARABLE and not LINUX_TIMER <= lowest(waits) <= highest(waits) <= LINUX_TIMER + TIMER_SPREAD:
        return False
    if percentile(waits, 90) - percentile(waits, 25) > TIMER_SPREAD:
        return False  # a queue, or a radio that sleeps, may also delay only some
    in_time = c.only(c.late_by(observed.peer_fastest) < late_margin(observed.peer_fastest))
    return len(in_time) >= CONCLUSIVE and percentile(in_time.late_by(observed.peer_fastest), 95) <= PATH_JITTER / 2


def _as_many_came_a_little_sooner(late: Candidates, c: Candidates, observed: Observed) -> bool:
    """Whether as many ACKs came a little sooner: a queue delays by any amount, a timer by all of its time."""
    if percentile(late.late_by(observed.peer_fastest), 50) >= LINUX_TIMER:
        return False
    least = percentile(late.trigger_to_ack, 10)
    sooner = total((c.trigger_to_ack < least) & (c.trigger_to_ack >= least - PATH_JITTER))
    return sooner >= max(REPEATED, len(late) / 2)


def _as_much_beyond_the_timer(sooner: Column, waits: Column) -> bool:
    """Whether some of the ``waits`` for Linux's timer were longer than it by as much as the ``sooner`` ones took in
    all; ns.
    """
    longer = total(waits >= LINUX_TIMER + percentile(sooner, 50))
    return longer >= max(REPEATED, A_FEW * total(waits >= LINUX_TIMER)) and _has_one_time(waits)


# Which pure ACKs are counted as delayed, to be compared with the kernel's own count (TcpExtDelayedACKs) -------------


def is_delayed_ack(wait: Column, reaction: Column) -> Column:
    """Whether an ACK took longer than its sender's fastest ``reaction`` by as much as a delayed-ACK timer adds.

    That is at least :data:`DELAYED` and less than :data:`LONGEST_TIMER`; both times are ns, at the capture point.
    """
    return (wait - reaction >= DELAYED) & (wait - reaction < LONGEST_TIMER)


def is_before_timer(wait: Column, reaction: Column) -> Column:
    """Whether a late ACK came sooner than Linux's delayed-ACK timer can fire: something else sent it. Times in ns."""
    return wait - reaction < SOONEST_TIMER
