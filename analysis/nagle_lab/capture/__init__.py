"""Capture files, pipes and rotated series → records; damage; writing a capture again with comments."""
