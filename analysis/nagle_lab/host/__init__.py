"""This host, as Linux has it: processes and signals, network namespaces and capabilities, TCP sockets, filters."""
