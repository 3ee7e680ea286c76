"""Files that a test writes again and again."""

from pathlib import Path


def rewrite(path: Path, content: bytes) -> None:
    """Write a file anew.

    If it were truncated instead, ext4 would write it to disk at once (auto_da_alloc): 3 ms, a thousand times.
    """
    path.unlink(missing_ok=True)
    path.write_bytes(content)
