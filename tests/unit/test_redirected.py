"""A connection that its client's host redirects, to a sidecar: one, though both directions have other addresses."""

from pathlib import Path

import pytest

from nagle_lab.capture.kernel_answers import KernelAnswer
from nagle_lab.diagnosis.analysis import analyze
from nagle_lab.diagnosis.result.result import Endpoint
from nagle_lab.diagnosis.result.which_connections import is_one_way
from nagle_lab.evidence.annotation import comments
from nagle_lab.evidence.excerpt import packets_of
from nagle_lab.evidence.ladder import ladder_of
from nagle_lab.host.namespace import namespace_of
from nagle_lab.live.sockets.owners import Owners
from nagle_lab.live.sockets.processes import Process
from nagle_lab.live.watch.program_names import ProgramNames
from nagle_lab.live.watch.view import write_packets
from nagle_lab.reports.words.ladder_text import ladder_text
from nagle_lab.reports.words.next_steps import commands
from support.recorded import recorded
from support.stories import client_held, nodelay, server_held, talk
from support.synthetic import MS, SECOND, Segment, merge, pcap_bytes, redirected

POD, SIDECAR, SERVICE = ("10.9.0.2", 40_000), ("127.0.0.1", 15_001), ("10.96.0.10", 80)


def from_pod(story, **settings) -> list[Segment]:
    return redirected(talk(story, client=POD, server=SIDECAR, **settings).segments, SERVICE)


def captured(path: Path, segments: list[Segment]) -> Path:
    path.write_bytes(pcap_bytes(segments))
    return path


@pytest.mark.parametrize(("story", "held_by"), [(server_held, "server"), (client_held, "client")])
def test_it_is_judged_as_one(diagnose, story, held_by):
    result = diagnose(from_pod(story))
    assert (result.verdict, result.summary.held_by, result.summary.connections) == ("STALL", held_by, 1)
    (connection,) = result.connections
    assert (connection.ends, connection.is_one_way) == ((POD, SIDECAR), False)
    assert connection.answers_as == Endpoint(*SERVICE, "server")
    assert connection.sockets == ((POD, SERVICE), (SIDECAR, POD))
    otherwise = diagnose(talk(story, client=POD, server=SIDECAR).segments)
    assert list(result.stalls) == list(otherwise.stalls)
    assert otherwise.connections[0].answers_as is None


def test_without_its_handshake_it_stays_two_with_one_direction_each(diagnose):
    result = diagnose(from_pod(server_held)[3:])
    assert (result.verdict, is_one_way(result), result.summary.connections) == ("INCONCLUSIVE", True, 2)


def test_the_captures_of_two_interfaces_are_of_the_same_traffic(diagnose, tmp_path, run):
    lo = captured(tmp_path / "lo.pcap", from_pod(server_held))
    both = captured(
        tmp_path / "any.pcap", merge(from_pod(server_held), talk(nodelay, client=("10.9.0.2", 7)).segments)
    )
    _, out, _ = run("analyze", "--json", "--same-traffic", lo, both)
    assert '"verdict":"STALL"' in out.replace(" ", "")


def test_its_packets_are_found_again(tmp_path):
    """Those of both addresses, and none of another connection of that service."""
    other = talk(server_held, client=("10.9.0.2", 40_001), server=SERVICE).segments
    segments = merge(from_pod(server_held), other)
    path = captured(tmp_path / "lo.pcap", segments)
    result = analyze(path)
    connection = next(one for one in result.connections if one.answers_as)
    steps = list(packets_of(path, connection))
    assert [step.frame for step in steps] == [n for n, s in enumerate(segments, 1) if 40_000 in (s.sport, s.dport)]
    assert [step.from_client for step in steps] == [segments[step.frame - 1].sport == 40_000 for step in steps]
    assert write_packets(path, [connection], tmp_path / "alone.pcapng") == connection.packets == len(steps)
    again = analyze(tmp_path / "alone.pcapng")
    assert (again.summary.stalls, again.summary.connections) == (connection.stalls, 1)


def test_what_was_captured_again_is_told_whatever_address_it_carries(tmp_path):
    segments = from_pod(server_held, timestamps=False)
    path = captured(tmp_path / "any.pcap", merge(*[[s] * 2 for s in segments]))
    (connection,) = analyze(path).connections
    assert [step.again for step in packets_of(path, connection)] == [False, True] * len(segments)


@pytest.mark.parametrize(("story", "asked"), [(server_held, (SIDECAR, POD)), (client_held, (POD, SERVICE))])
def test_what_the_kernel_said_of_either_socket_is_found(tmp_path, story, asked):
    segments = from_pod(story)
    stalls = analyze(captured(tmp_path / "lo.pcap", segments)).stalls
    said = [
        KernelAnswer(segments[one.trigger_frame - 1].ts_ns + 20 * MS, *asked, one.released_bytes) for one in stalls
    ]
    path = recorded(tmp_path / "lo.pcapng", segments, said)
    result = analyze(path)
    assert result.summary.grounds == {"seen_waiting": len(stalls)}
    write_packets(path, list(result.connections), tmp_path / "alone.pcapng")
    assert analyze(tmp_path / "alone.pcapng").summary.grounds == result.summary.grounds


def test_programs_are_found_by_what_their_sockets_know(tmp_path, monkeypatch):
    here = namespace_of("self")
    found = {(POD, SERVICE): Process(7, "app", 0, here), (SIDECAR, POD): Process(8, "envoy", 0, here)}
    monkeypatch.setattr("nagle_lab.live.watch.program_names.owners", lambda pid, most: Owners(found, []))
    names = ProgramNames()
    names.refresh()
    ends = names.ends_of(analyze(captured(tmp_path / "lo.pcap", from_pod(server_held))).connections[0])
    assert [end.name for end in ends] == ["envoy", "app"]


def test_ladder_and_comments_are_of_the_frames_of_both_directions(tmp_path):
    path = captured(tmp_path / "lo.pcap", from_pod(server_held))
    result = analyze(path)
    stall = result.stalls[0]
    shown = ladder_of([path], result, stall)
    parts = {row.part: (row.frame, row.from_client) for row in shown.rows if row.part}
    assert parts == {
        "trigger": (stall.trigger_frame, False),
        "late ACK": (stall.ack_frame, True),
        "release": (stall.release_frame, False),
    }
    assert "127.0.0.1:15001\n" in (text := ladder_text(shown).plain)
    assert " answers as 10.96.0.10:80\n" in text
    assert max(map(len, ladder_text(shown, 58).plain.splitlines())) <= 58
    written = dict(comments(result))
    assert "trigger: 238 B from the server (127.0.0.1:15001)" in written[stall.trigger_frame]
    assert all(frame in written for frame, _ in parts.values())


def test_the_busiest_connection_is_named_with_both_addresses(tmp_path, run):
    _, out, _ = run("analyze", captured(tmp_path / "lo.pcap", from_pod(nodelay)))
    assert "client 10.9.0.2:40000 and server 127.0.0.1:15001 (answers as 10.96.0.10:80)" in " ".join(out.split())


def test_commands_name_what_each_kernel_knows_the_server_by(tmp_path):
    """The client's socket is connected to the service; and the route to that is where its ACKs are made."""
    (_, (find,)), _, (where, (route, *_)) = commands(
        analyze(captured(tmp_path / "c.pcap", from_pod(client_held))), None
    )
    assert find == "ss -tnp dst 10.96.0.10:80"
    assert "is sent over 10.9.0.2" in where and "table local match 10.9.0.2 " in route
    (_, (find,)), _, (where, (route, *_)) = commands(
        analyze(captured(tmp_path / "s.pcap", from_pod(server_held))), None
    )
    assert find == "ss -tlnp 'sport = :15001'"
    assert where.startswith("Or in a shell on 10.9.0.2") and "ip route add 10.96.0.10 " in route


def test_another_service_later_from_the_same_port_is_another_connection(diagnose):
    talked = talk(nodelay, client=POD, server=SIDECAR, client_isn=9, t0_ns=1_700_000_030 * SECOND)
    result = diagnose([*from_pod(server_held), *redirected(talked.segments, ("10.96.0.11", 81))])
    assert [(one.answers_as.port, one.stalls > 0) for one in result.connections] == [(80, True), (81, False)]
