"""The wide area: sites, links, losses, deployments, and the all-reduce that crosses them.

Everything is deterministic and does no I/O. It has no clock and no randomness of its own: `now` and `rng` are
arguments.
"""
