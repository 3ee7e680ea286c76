"""System calls of a program, by strace, with hooks that name the lines that write.

strace_command.py has the command lines, strace_attached.py attaches to what runs. strace_output.py makes the records
of calls.py of what strace wrote, and strace_lines.py knows its lines; hooking.py has interpreters load the hooks, and
program_keeper.py keeps what `go test` deletes until its lines are known.
"""
