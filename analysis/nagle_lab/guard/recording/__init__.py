"""Recording a command in a namespace (run_command.py), or software that is already running (record_running.py).

Both modules run outside, and start a program called ``inside_…`` in the network namespace; ``watch`` reads the
packets of inside_stream.py as they come. Files tell such a program its task, and contain its outcome (job.py).
"""
