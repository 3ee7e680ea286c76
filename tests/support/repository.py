"""The path of this repository, and its captures that many tests use."""

from pathlib import Path

REPOSITORY = Path(__file__).resolve().parents[2]
CAPTURES = REPOSITORY / "captures"
REFERENCE = CAPTURES / "reference"
STALLED = REFERENCE / "nginx-static-nodelay-off" / "server.pcap"


def named(path: Path) -> str:
    """The name of a repository file in the name of a test."""
    return str(path.relative_to(REPOSITORY))
