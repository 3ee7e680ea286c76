"""Commands that run scenarios."""
