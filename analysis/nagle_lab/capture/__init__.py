"""Reading captures: `open_capture` yields batches of `Records`, and tells what a person must know of the input."""

from nagle_lab.capture.capture import Capture, open_capture
from nagle_lab.capture.records import PADDING, Records, Trouble, TroubleKind

__all__ = ["PADDING", "Capture", "Records", "Trouble", "TroubleKind", "open_capture"]
