#!/bin/sh
# What git runs with a host and a port when core.gitProxy names it: the connection, with TCP_NODELAY.
exec socat - "TCP:$1:$2,nodelay"
