"""A user's own software, and released software, under the proof."""
