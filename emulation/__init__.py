"""Runs: backends, clocks, the driver that calls machines, and the records of what happened."""
