"""Captures of other file systems, through fsspec: S3 (moto's server on this machine) and fsspec's memory."""

import fsspec
import pytest

from nagle_lab.capture.capture import open_capture
from nagle_lab.diagnosis.analysis import analyze
from nagle_lab.errors import NagleLabError
from support.s3 import s3  # noqa: F401 - a fixture
from support.stalls import STALLED


def test_a_capture_in_s3_gives_what_the_file_gives(s3, tmp_path):  # noqa: F811
    s3.pipe_file("captures/web-1/eth0.pcap", STALLED)
    (tmp_path / "eth0.pcap").write_bytes(STALLED)
    here, there = (analyze(path) for path in (tmp_path / "eth0.pcap", "s3://captures/web-1/eth0.pcap"))
    assert there.to_json() == here.to_json()
    assert there.verdict == "STALL"


@pytest.mark.parametrize(
    ("path", "says"),
    [
        ("memory://none.pcap", r"^memory://none\.pcap: no such file: check the path$"),
        ("nowhere://x.pcap", r"^nowhere://x\.pcap: cannot be opened: Protocol not known: nowhere"),
        ("memory://empty.pcap", r"^memory://empty\.pcap: empty: nothing was recorded"),
    ],
)
def test_what_cannot_be_read_is_said_in_one_line(path, says):
    fsspec.filesystem("memory").pipe_file("/empty.pcap", b"")
    with pytest.raises(NagleLabError, match=says):
        open_capture(path)


def test_a_connection_that_breaks_while_it_is_read_costs_what_follows(monkeypatch):
    fsspec.filesystem("memory").pipe_file("/broken.pcap", STALLED)
    capture = open_capture("memory://broken.pcap", window_bytes=1 << 10)
    read = capture._current._stored._file._file

    class Broken:
        def read(self, size: int) -> bytes:
            raise RuntimeError("the endpoint\nhas gone")

        def close(self) -> None:
            read.close()

    from nagle_lab.tcp.plain import PlainEngine  # noqa: PLC0415

    with capture, PlainEngine() as engine:
        for number, _ in enumerate(capture.read(engine)):
            if number == 1:
                capture._current._stored._file._file = Broken()
        assert "(the endpoint): kept the" in capture.trouble[0]
