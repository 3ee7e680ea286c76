"""This host, as Linux has it: child processes and signals, network namespaces and capabilities, TCP sockets."""
