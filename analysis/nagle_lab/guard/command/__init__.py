"""The command to record: the job, the namespace it runs in, and its processes."""
