"""The result and its verdict: the types, what they are called in JSON, and the rule."""
