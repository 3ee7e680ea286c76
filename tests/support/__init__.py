"""What the tests are written with: synthetic captures with known truth, and the reference dissectors.

It puts the maintainers' tools, which are no part of the package, on the import path: the tests use them, and they use
nothing of the tests.
"""

import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[2] / "maintenance"))
