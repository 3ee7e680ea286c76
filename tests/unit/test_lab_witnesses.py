"""The lab's witnesses: tcpdump's counts, the kernel's counters, ab's report, the server's configuration."""

import json

import pytest

from nagle_lab.errors import NagleLabError
from nagle_lab.lab.scenarios.load import parse_ab, parse_json
from nagle_lab.lab.witnesses import option_in_effect, parse_capture_numbers, parse_counters, parse_lateness
from nagle_lab.runs.witnesses import CaptureNumbers, Lateness

PROC = """\
Ip: Forwarding DefaultTTL
Ip: 1 64
Tcp: RtoAlgorithm RtoMin RtoMax MaxConn ActiveOpens InSegs OutSegs RetransSegs
Tcp: 1 200 120000 -1 100 2400 2300 7
Udp: InDatagrams NoPorts
Udp: 3 0
TcpExt: SyncookiesSent DelayedACKs DelayedACKLocked
TcpExt: 0 900 2
IpExt: InOctets OutOctets
IpExt: 10 20
"""

AB = """\
This is ApacheBench, Version 2.3 <$Revision: 1923142 $>
Copyright 1996 Adam Twiss, Zeus Technology Ltd, http://www.zeustech.net/

Benchmarking server (be patient)
Completed 100 requests
Finished 1000 requests


Server Software:        nginx/1.26.3
Concurrency Level:      100
Time taken for tests:   0.419 seconds
Complete requests:      1000
Failed requests:        3
   (Connect: 0, Receive: 0, Length: 3, Exceptions: 0)
Non-2xx responses:      3
Keep-Alive requests:    997
Total transferred:      853000 bytes
Requests per second:    2383.94 [#/sec] (mean)
Time per request:       41.947 [ms] (mean)
Time per request:       0.419 [ms] (mean, across all concurrent requests)

Percentage of the requests served within a certain time (ms)
  50%     44
  99%     49
 100%     50 (longest request)
"""
COMMAND = "ab -n 1000 -c 100 -k http://server:8080/"


@pytest.mark.parametrize(
    ("text", "numbers"),
    [
        (
            "tcpdump: 5624 packets captured, 5700 packets received by filter, 0 packets dropped by kernel",
            CaptureNumbers(5624, 5700, 0, 0),
        ),
        (
            "1 packet captured 1 packet received by filter 2 packets dropped by kernel "
            "3 packets dropped by interface",
            CaptureNumbers(1, 1, 2, 3),
        ),
        ("tcpdump: listening on eth0, link-type EN10MB (Ethernet), snapshot length 128 bytes", None),
        ("5624 packets captured", None),
        ("", None),
    ],
)
def test_tcpdumps_counts(text: str, numbers: CaptureNumbers | None):
    assert parse_capture_numbers(text) == numbers


def test_the_kernels_counters_are_those_of_tcp():
    counters = parse_counters(PROC.splitlines())
    assert counters["Tcp.InSegs"] == 2400
    assert counters["Tcp.MaxConn"] == -1
    assert counters["TcpExt.DelayedACKs"] == 900
    assert {name.split(".")[0] for name in counters} == {"Tcp", "TcpExt"}


def test_how_late_the_machine_was():
    assert parse_lateness(["tcpdump: hello", "late 5000 60 80 300 2100"]) == Lateness(5000, 60, 80, 300, 2100)


@pytest.mark.parametrize(
    ("lines", "said"), [([], "no answer"), (["lateness: not found"], "not found"), (["late 5000"], "late 5000")]
)
def test_what_is_no_measurement_of_it_is_refused(lines, said):
    with pytest.raises(NagleLabError, match=f"timers could not be measured: .*{said}"):
        parse_lateness(lines)


def test_a_report_of_ab():
    version, report = parse_ab(COMMAND, AB)
    assert version == "ApacheBench 2.3"
    assert (report.requests, report.complete, report.failed, report.non_2xx, report.keepalive) == (
        1000,
        1000,
        3,
        3,
        997,
    )
    assert (report.requests_per_s, report.mean_ms, report.duration_s) == (2383.94, 41.947, 0.419)
    assert report.percentiles_ms == {"50": 44.0, "99": 49.0, "100": 50.0}


@pytest.mark.parametrize("command", ["ab -n 100 -c 4 http://x/", "ab -c4 -n100 http://x/", "ab -n '100' http://x/"])
def test_the_number_of_requests_as_ab_reads_it(command):
    assert parse_ab(command, AB)[1].requests == 100


@pytest.mark.parametrize("command", ["ab -t 5 http://x/", "ab http://x/a-n100", "ab -n many http://x/"])
def test_a_command_of_ab_without_it_is_one_line(command):
    with pytest.raises(NagleLabError, match="ab's number of requests is not in it: write -n NUMBER"):
        parse_ab(command, AB)


def test_lines_that_ab_leaves_out_are_zero():
    lines = [line for line in AB.splitlines() if not line.startswith(("Non-2xx", "Keep-Alive"))]
    _, report = parse_ab(COMMAND, "\n".join(lines))
    assert (report.non_2xx, report.keepalive) == (0, 0)


SAID = {
    "version": "client 1",
    "requests": 60,
    "complete": 60,
    "failed": 0,
    "requests_per_s": 22.7,
    "mean_ms": 44,
    "duration_s": 2.64,
    "percentiles_ms": {"50": 44.0, "99": 47.1},
}


def test_a_report_in_json_is_the_last_line_that_is_an_object():
    version, report = parse_json("client", f"warming up\n{{}}\n{json.dumps(SAID)}\n(node:1) Warning: x\n")
    assert {"version": version, **{name: getattr(report, name) for name in SAID if name != "version"}} == SAID
    assert (report.tool, report.command, report.exit_code) == ("json", "client", 0)
    assert (report.non_2xx, report.keepalive) == (None, None)
    assert parse_json("client", json.dumps({**SAID, "keepalive": 59}))[1].keepalive == 59


@pytest.mark.parametrize(
    ("output", "told"),
    [
        ("", "the last line of client's output is not a JSON object"),
        ("Segmentation fault", "the last line of client's output is not a JSON object"),
        ('{"version":', "the last line of client's output is not a JSON object"),
        ("{}", "client's report has version = None, which is not a string"),
        (json.dumps({**SAID, "complete": "60"}), r"client's report .*Expected `int`, got `str` - at `\$.complete`"),
        (json.dumps({**SAID, "failed": True}), r"client's report .*Expected `int`, got `bool` - at `\$.failed`"),
        (
            json.dumps({**SAID, "keepalive": 0.5}),
            r"Expected `int . null`, got `float` - at `\$.keepalive`",
        ),
        (json.dumps({**SAID, "speed": 1}), "client's report .*unknown field `speed`"),
    ],
)
def test_what_is_not_a_report_in_json_is_refused(output: str, told: str):
    with pytest.raises(NagleLabError, match=told):
        parse_json("client", output)


def test_what_is_not_a_report_of_ab_is_refused():
    with pytest.raises(NagleLabError, match="ab's report has no line 'Complete requests'"):
        parse_ab(COMMAND, "apr_socket_recv: Connection refused (111)\n")


@pytest.mark.parametrize(
    ("configuration", "in_effect"),
    [
        ("http {\n    tcp_nodelay   off;\n}", True),
        ("http {\n    tcp_nodelay on;\n}", False),
        ("http {\n    tcp_nodelay off;\n    server { listen 1;\n tcp_nodelay on;\n }\n}", False),
        ("# tcp_nodelay off;", False),
        ("", False),
    ],
)
def test_the_option_is_in_effect_only_where_no_line_says_otherwise(configuration: str, in_effect: bool):
    assert option_in_effect(configuration, "tcp_nodelay off;") is in_effect
