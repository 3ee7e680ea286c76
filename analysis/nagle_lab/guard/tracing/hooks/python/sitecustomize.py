"""Loaded by every Python that a traced command starts: say, before each write, which line makes it.

Old Pythons read this file, too; what it loads needs 3.7.
"""

import os
import sys

_HERE = os.path.dirname(os.path.abspath(__file__))  # noqa: PTH100, PTH120 - quick to import, and for old Pythons
if sys.version_info >= (3, 7):  # noqa: UP036 - of the program, not of ours
    try:
        import nagle_lab_marks  # type: ignore[import-not-found]

        nagle_lab_marks.start()
    except Exception:  # the program goes on as it would without us
        pass
# The program sees neither this folder nor this module, but the sitecustomize it would have had.
sys.path[:] = [path for path in sys.path if os.path.abspath(path or ".") != _HERE]  # noqa: PTH100
_ours = sys.modules.pop("sitecustomize")
try:
    import sitecustomize  # type: ignore[import-not-found]  # noqa: F401
except ImportError as error:
    if getattr(error, "name", "sitecustomize") != "sitecustomize":
        raise
    sys.modules["sitecustomize"] = _ours  # there is none: an importer expects this module to stay
