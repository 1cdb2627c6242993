"""What a run needs of a machine, and how to divide a run until it fits."""
