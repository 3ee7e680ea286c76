"""Captures of a user's own software: network namespaces, a recorder, and the command that runs in one."""
