"""Mininet's hosts and links as a world."""
