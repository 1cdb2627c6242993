"""What the stored runs say: comparisons and groups of runs."""
