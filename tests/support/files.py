"""Files that a test writes again and again."""

from pathlib import Path


def rewrite(path: Path, content: bytes) -> None:
    """Write a file anew.

    Were it truncated instead, ext4 would put it on the disk at once (auto_da_alloc): 3 ms, a thousand times over.
    """
    path.unlink(missing_ok=True)
    path.write_bytes(content)
