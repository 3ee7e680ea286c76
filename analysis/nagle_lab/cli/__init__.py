"""The command line: options and exit codes."""
