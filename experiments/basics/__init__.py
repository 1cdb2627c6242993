"""What every room of experiments may use: digests, how values are written, and the error of an ended program."""
