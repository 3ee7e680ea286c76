"""System calls of a program, by strace, with hooks that name the lines that write."""
