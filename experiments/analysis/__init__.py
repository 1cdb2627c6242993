"""Comparisons and groups of stored runs."""
