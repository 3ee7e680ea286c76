"""What two captures of the same traffic show together, in words."""

from nagle_lab.diagnosis.pair import Pair
from nagle_lab.diagnosis.result.spread import plural


def pair_facts(pair: Pair) -> list[tuple[str, str]]:
    """Names and values about the pair, in addition to what its ``nearer`` capture shows."""
    facts = [("judged by", _how_judged(pair)), ("in both", _matched(pair))]
    if not pair.matched and (replies := _replies(pair)):
        facts.append(("reply", replies))
    other = next(result for result in pair.results if result is not pair.nearer)
    if other.verdict is not pair.verdict:
        facts.append(("the other", f"{other.source.file} shows {other.verdict}: {other.reason}"))
    if pair.ack_delay_ms and pair.hold_ms and pair.path_ms:
        delay, hold, path = pair.ack_delay_ms, pair.hold_ms, pair.path_ms.p50
        facts += [
            ("ACK delay", f"p50 {delay.p50:.2f}, max {delay.max:.2f} ms, at the capture nearer the delaying end"),
            ("hold", f"at most p50 {hold.p50:.2f}, max {hold.max:.2f} ms, of which the path takes {path:.2f} ms"),
        ]
    return facts


def _how_judged(pair: Pair) -> str:
    shown = f"below is what {pair.nearer.source.file} shows"
    if not pair.is_one:
        return (
            f"each capture by itself: no connection is in both, by sequence numbers. Is it the same traffic? {shown}"
        )
    if not pair.connections:
        return f"each capture by itself, because one has only one direction, or lacks the other's ACKs; {shown}"
    place = "" if pair.are_apart else ", taken at the same place, which tell no more than one"
    return f"both captures{place}; {shown}"


def _matched(pair: Pair) -> str:
    connections = f"{pair.connections:,} {plural('connection', pair.connections)}"
    if not pair.matched and not any(pair.only_in):
        return f"{connections}, no stall"
    alone = [
        f", and {count:,} in {result.source.file} only"
        for count, result in zip(pair.only_in, pair.results, strict=True)
        if count
    ]
    return f"{connections}, {pair.matched:,} {plural('stall', pair.matched)}{''.join(alone)}"


def _replies(pair: Pair) -> str:
    """Without a stall: how much of the time until the reply the path takes, and how much the end behind it."""
    one, two = (result.summary.request_to_response_ms for result in pair.results)
    exchanges = {result.summary.exchanges for result in pair.results}
    if not one or not two or len(exchanges) > 1 or not pair.are_apart:  # the medians are those of different exchanges
        return ""
    near, far = sorted(zip((one.p50, two.p50), pair.files, strict=True))
    return (
        f"p50 {near[0]:.2f} ms after the request in {near[1]}, {far[0]:.2f} ms in {far[1]}: the path between them "
        f"takes {far[0] - near[0]:.2f} ms, the server's end the rest"
    )
