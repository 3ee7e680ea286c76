"""Experiments: a guarded command, releases, the museum; and with the lab the matrix, sweeps, comparisons."""
