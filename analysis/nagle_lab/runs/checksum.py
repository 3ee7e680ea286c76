"""The checksum of a manifest over itself, which the lab writes and whoever judges a run holds against it."""

import hashlib
import json
from collections.abc import Mapping
from typing import Any

SEAL = "checksum"


def seal(manifest: Mapping[str, Any]) -> str:
    """SHA-256, in hex, of all that a manifest says but this checksum, however the file is indented or ordered."""
    content = {name: value for name, value in manifest.items() if name != SEAL}
    return hashlib.sha256(json.dumps(content, sort_keys=True, separators=(",", ":")).encode()).hexdigest()
