"""What is common to many paths: the health of one path, and the set of paths of a connection."""
