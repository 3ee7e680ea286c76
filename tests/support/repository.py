"""Where this repository is, and the captures in it that many tests look at."""

from pathlib import Path

REPOSITORY = Path(__file__).resolve().parents[2]
CAPTURES = REPOSITORY / "captures"
REFERENCE = CAPTURES / "reference"
STALLED = REFERENCE / "nginx-static-nodelay-off" / "server.pcap"


def named(path: Path) -> str:
    """What a file of the repository is called in the name of a test."""
    return str(path.relative_to(REPOSITORY))
