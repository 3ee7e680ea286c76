"""This host now: its TCP sockets, their processes, and TCP_NODELAY changed while they are open. Linux only."""
