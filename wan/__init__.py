"""What the world is: sites, links, loss, deployments and the all-reduce that crosses them.

Deterministic, without I/O and without a clock: `now` and `rng` are arguments.
"""
