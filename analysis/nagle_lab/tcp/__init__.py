"""TCP: connections, and what happens on them."""
