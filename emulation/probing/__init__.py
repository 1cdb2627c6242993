"""What a machine can do, and whether a path is as specified: measured before runs, and under load."""
