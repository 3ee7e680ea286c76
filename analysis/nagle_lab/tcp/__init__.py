"""TCP: the machine that follows each connection, its C twin, and the tables of what they find."""
