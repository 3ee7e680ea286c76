"""The TCP sockets of this host: who has them, their options, and TCP_NODELAY changed while they live."""
