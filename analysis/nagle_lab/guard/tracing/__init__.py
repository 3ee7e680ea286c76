"""Tracing a program's system calls with strace, and with hooks that name the lines that write.

strace_command.py has the command lines, strace_attached.py attaches to what runs. strace_output.py turns strace's
output into the records of calls.py, and strace_lines.py parses its lines; hooking.py makes interpreters load the
hooks, and program_keeper.py keeps programs that `go test` deletes until their lines are known.
"""
