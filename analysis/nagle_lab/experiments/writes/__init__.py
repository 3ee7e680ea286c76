"""The two writes of each stall: system calls matched with segments."""
