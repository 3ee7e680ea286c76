"""The bytes of a captured packet → a TCP segment, through link layers, tunnels and IP."""
