"""Erasure codes, and how much redundancy a target needs."""
