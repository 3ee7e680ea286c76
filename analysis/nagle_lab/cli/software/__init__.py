"""Commands about a user's own software."""
