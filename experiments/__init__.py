"""What we run and what we learn: scenarios, the runner, the store, comparisons, figures, the command line."""
