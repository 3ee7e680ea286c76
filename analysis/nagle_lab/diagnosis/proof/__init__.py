"""The proof: which candidates are stalls, and the cause of every other idle gap.

Read it in this order:

    candidates.py          the candidates of one program, by column
    programs.py            how fast each program and its peers react, and when it sent without waiting for an ACK
    proof.py               ``prove``: the rules for one program, in order; it calls all of the following
    timing.py              which ACKs were late (``late_candidates``), and what several rules measure
    kernel_evidence.py     what the kernel said while guard or watch recorded decides first
    near_sender.py         which late ACKs released data, captured at the sender or its neighbour
    away_from_sender.py    the same, captured a path away from the sender
    piggybacked.py         the same where the late ACK came with data
    relays.py              takes back stalls whose data another connection had only just brought
    outcomes.py            the words for what was decided: ground, reason, obstacle
    idle_gaps.py           the cause of every idle gap

Below them are columns.py, lists or NumPy arrays behind one interface, and connection_columns.py, which looks up what
the connections of some rows have in the table of connections.
"""
