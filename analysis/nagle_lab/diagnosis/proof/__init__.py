"""The proof: which candidates are stalls.

It starts from what is in ``diagnosis/observed``. ``Judge`` calls ``prove_by_behaviour``, and then ``reject_relayed``
and ``leave_open_asked_elsewhere``. Read it in this order:

    behaviours.py          ``prove_by_behaviour``: a program's connections together, or apart where they differ
    proof.py               ``prove``: the rules for one program, in order; it calls most of the following
    late_acks.py           which ACKs were late (``late_candidates``)
    kernel_evidence.py     what the kernel said while guard or watch recorded decides first
    nagle_off.py           where Nagle's algorithm was off: on some connections, or for a while
    release_times.py       how soon after the ACK a kernel sends what it held, alone or in a queue
    near_sender.py         which late ACKs released data, captured at the sender or its neighbour
    away_from_sender.py    the same, captured a path away from the sender
    window_of_one.py       what a congestion window of one segment may have held instead
    piggybacked.py         which late ACKs released data, where they came with data themselves
    pauses.py              whether a program pauses, by times and timestamps, and what chance explains
    relays.py              takes back stalls whose data another connection had only just brought
    outcomes.py            the words for what was decided: ground, reason, obstacle
"""
