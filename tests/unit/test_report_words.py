"""Words that views share, and the page that explains the fields of a result."""

import io
import re
from itertools import pairwise

import pytest
from msgspec.structs import replace
from rich.console import Console

from nagle_lab.diagnosis.result.idle_gaps import Cause
from nagle_lab.diagnosis.result.result import Summary
from nagle_lab.evidence.examples import Examples
from nagle_lab.reports.screens.terminal import show_capture
from nagle_lab.reports.words.numbers import cause_name
from nagle_lab.reports.words.phrases import exchanges, findings, how_sure, servers, stalled_exchanges
from nagle_lab.reports.words.reported import ReportedCapture
from support.repository import REPOSITORY
from support.stories import BODY, client_held, nodelay, prompt, reply_in_two, server_held, talk
from support.synthetic import MS, US, Conversation, merge


def test_every_cause_of_an_idle_gap_has_a_name_for_people():
    names = {cause: cause_name(cause) for cause in Cause}
    assert not [name for name in names.values() if re.search("[a-z]_", name)]
    assert len(set(names.values())) == len(Cause)


def test_the_page_explains_every_field_of_a_summary():
    page = (REPOSITORY / "docs" / "result.md").read_text()
    rows = "\n".join(line for line in page.splitlines() if line.startswith("| `summary."))
    explained = set(re.findall(r"`(?:summary\.)?([a-z_]+)`", rows))
    assert set(Summary.__struct_fields__) - explained == set()


def test_what_a_round_trip_took_is_said_of_those_that_were_waited_for(diagnose):
    """The path became longer behind the first of two handshakes."""
    c = talk(prompt, exchanges=1, rtt_ns=40 * US)
    c.one_way_ns = 10 * MS
    for number in range(19):
        prompt(c, number)
    later = talk(prompt, exchanges=1, rtt_ns=20 * MS, client=("10.0.0.1", 2))
    (row,) = findings(diagnose(merge(c.seen_at("server"), later.seen_at("server"))))
    assert re.match("20 times .* one round trip each, about 20[.]. ms; TCP_NODELAY at the server", row[1]), row


def test_what_is_proved_by_being_like_other_stalls_is_no_surer_than_these(diagnose):
    """Captured at the client, every fourth late ACK is not in the capture."""
    segments = talk(server_held, 40, rtt_ns=20 * MS).seen_at("client")
    late_acks = [one for one, after in pairwise(segments) if not one.length and after.length == BODY]
    result = diagnose([one for one in segments if one not in late_acks[::4]])
    assert result.summary.grounds == {"repetition_on_path": 30, "timestamps": 9}
    assert "certain" not in how_sure(result)
    assert "If TCP_NODELAY is set already" in result.summary.remedy


def test_large_counts_are_read_in_groups_of_three_digits(diagnose):
    result = diagnose(talk(server_held, 1_100).seen_at("server"))
    screen = Console(width=100, file=io.StringIO())
    show_capture(ReportedCapture(result, Examples(None), to_paste=()), screen)
    text = screen.file.getvalue()
    for words in ("1,099 of 1,100 exchanges waited", "exchanges     1,100, stalled 1,099 (", "1,099 by the client",
                  "in the 1,099 stalls", "in all 1,100 exchanges"):  # fmt: skip
        assert words in text, text


@pytest.mark.parametrize(
    ("stalled", "screen", "page"), [(1, "0.1%", "0.1%"), (29_999, "99.9%", "99.9%"), (15_000, "50.0%", "50%")]
)
def test_few_stalls_among_very_many_exchanges_are_not_none(diagnose, stalled, screen, page):
    """Nor are nearly all of them all."""
    result = diagnose(talk(server_held).segments)
    share = round(stalled / 30_000, 4)
    counted = {"exchanges": 30_000, "decided_exchanges": 30_000, "stalled_exchanges": stalled, "stalled_share": share}
    result = replace(result, summary=replace(result.summary, **counted))
    assert exchanges(result) == f"30,000, stalled {stalled:,} ({screen})"
    assert stalled_exchanges(result) == (f"{stalled:,}", f"{page} of 30,000 exchanges")


def test_what_is_found_of_each_server_is_said_where_there_are_several(diagnose):
    woken = reply_in_two(41 * MS, lambda number: (200 + 17 * number) * US)
    talks = [
        talk(story, exchanges=20 + number, client=(f"10.0.{number}.1", 5), server=(f"10.0.{number}.2", 80))
        for number, story in enumerate((nodelay, woken, client_held, server_held, nodelay))
    ]
    assert servers(diagnose(merge(*(one.segments for one in talks))).summary) == [
        ("10.0.3.2:80", "22 of 23 exchanges stalled, held by server"),
        ("10.0.2.2:80", "21 of 22 exchanges stalled, held by client"),
        ("10.0.1.2:80", "undecided 20 times in 21 exchanges"),
        ("all others", "0 of 44 exchanges stalled"),
    ]
    assert len(servers(diagnose(merge(talks[2].segments, talks[3].segments)).summary)) == 2
    unanswered = Conversation(server=("10.0.9.2", 80))
    unanswered.handshake()
    for of_one in (talks[2].segments, merge(talks[2].segments, unanswered.segments)):
        assert not servers(diagnose(of_one).summary)


def test_the_twenty_servers_with_the_most_stalls_are_listed(diagnose):
    talks = [
        talk(server_held, client=(f"10.0.{number}.1", 5), server=(f"10.0.{number}.2", 80)) for number in range(22)
    ]
    found = servers(diagnose(merge(*(one.segments for one in talks))).summary)
    assert len(found) == 21 and found[-1] == ("all others", "38 of 40 exchanges stalled")
