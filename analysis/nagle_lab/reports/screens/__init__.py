"""The terminal: captures, runs, live views, and recordings."""
