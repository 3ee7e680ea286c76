"""What makes captures of a user's own software: namespaces of its own, a recorder, and the command run in it."""
