"""A world of Mininet's hosts and links."""
