"""The two writes of each stall: system calls joined to segments."""
