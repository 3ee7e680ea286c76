"""The packet table: `decode` turns batches of captured records into columns of TCP segments."""

from nagle_lab.packet.decode import decode
from nagle_lab.packet.table import Packets, Rows, Tally

__all__ = ["Packets", "Rows", "Tally", "decode"]
