"""What runs on this host now: its TCP sockets, who has them, and TCP_NODELAY changed while they live. Linux only."""
