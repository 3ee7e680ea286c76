"""The soak: the same runs repeated on a busy and on an otherwise idle machine."""
