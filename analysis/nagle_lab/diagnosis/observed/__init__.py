"""What was observed, by column and by program, before any rule judges it.

Read it in this order:

    columns.py             lists or NumPy arrays behind one interface
    connection_columns.py  what the connections of some rows have in the table of connections
    paths.py               how far apart two hosts are, by what any of their connections shows
    peers.py               which peers of a program are looked at by themselves, near and far ones behind one address
    programs.py            how fast each program and its peers react, and when it sent without waiting for an ACK
    candidates.py          the candidates of one program, by column
    kernel_answers.py      what the kernel said of these while guard or watch recorded
    observed.py            how fast each end reacts at the capture point, and where that is (``observe``)
    enough.py              how many candidates or samples are enough
"""
