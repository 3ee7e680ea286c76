"""The terminal: captures, runs, what is live, and what is recorded."""
