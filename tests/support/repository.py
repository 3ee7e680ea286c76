"""Where this repository is, and the captures in it that many tests look at."""

from pathlib import Path

REPOSITORY = Path(__file__).resolve().parents[2]
CAPTURES = REPOSITORY / "captures"
REFERENCE = CAPTURES / "reference"
STALLED = REFERENCE / "nginx-static-nodelay-off" / "server.pcap"
