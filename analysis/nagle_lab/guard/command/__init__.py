"""What is to be run: the job, and TCP_NODELAY taken away from it."""
