"""Running and storing: tasks go out to worker processes, records come back into the store."""
