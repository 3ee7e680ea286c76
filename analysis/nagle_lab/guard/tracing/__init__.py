"""System calls of a program, by strace, with hooks that name the lines that write.

strace_command.py has the command lines, strace_attached.py attaches to what runs, strace_output.py reads what strace
wrote; hooking.py has interpreters load the hooks.
"""
