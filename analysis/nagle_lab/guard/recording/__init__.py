"""Recording: a command in a namespace (run_command.py), or what already runs (record_running.py).

Both are outside, and start a program called ``inside_…`` in the network namespace; inside_stream.py is the one whose
packets ``watch`` reads as they come. What one of them is to do, and what came of it, are files (job.py).
"""
