"""Running and storing: tasks run in worker processes, and their records are written to the store."""
