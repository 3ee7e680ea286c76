"""Many runs: the matrix, sweeps, comparisons, published claims."""
