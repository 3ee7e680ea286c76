"""A run folder: what is in it, and every witness held against its captures."""
