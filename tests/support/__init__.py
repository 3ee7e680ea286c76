"""Helpers of the tests: synthetic captures with known truth, and the reference dissectors.

This module puts the maintainers' tools, which are not part of the package, on the import path: the tests use these
tools, which use nothing from the tests.
"""

import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[2] / "maintenance"))
