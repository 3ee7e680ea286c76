"""The TCP sockets of this host: their processes, their options, and TCP_NODELAY changed while they are open."""
