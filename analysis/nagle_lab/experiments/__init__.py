"""What is run to learn from: a guarded command, releases, the museum; of the lab the matrix, sweeps, comparisons."""
