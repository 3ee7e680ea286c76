"""Runs of the lab under strace whose client holds, and is interpreted: the lines that wrote."""

import re
from pathlib import Path

import pytest
from lab.recording import traced

pytestmark = [pytest.mark.quiet, pytest.mark.long]


@pytest.mark.parametrize(
    ("scenario", "variant", "load", "trigger", "held"),
    [("message-queue", "sockets-nagle", {"MESSAGES": "60"}, "sdk:58 publish", "sdk:50 publish"),
     ("message-queue", "netty-nagle", {"MESSAGES": "60"}, "Publisher.java:46 Publisher.channelRead0",
      "Publisher.java:32 Publisher.publish"),
     ("node-keepalive", "agent-nagle", {"REQUESTS": "60"}, r"node:_http_outgoing:\d+ _flushOutput", "client:28 ")],
)  # fmt: skip
def test_the_lines_of_a_client_that_is_interpreted(tmp_path, scenario, variant, load, trigger, held):
    """The hooks are put into its container, and strace sees it from its first call."""
    code, err, _, result = traced(tmp_path, scenario, variant, **load)
    writes = result["writes"]
    assert (code, writes["named"]) == (0, writes["stalls"]), err
    group, *others = writes["groups"]  # a busy machine may make another pair wait once
    assert group["stalls"] >= 0.9 * writes["stalls"], others
    places = [group[end]["program"] or group[end]["library"] for end in ("trigger", "held")]
    named = [f"{Path(place['file']).name}:{place['line']} {place['function']}" for place in places]
    assert re.fullmatch(trigger, named[0]) and named[1] == held
