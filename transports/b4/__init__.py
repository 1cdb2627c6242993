"""B4: a controller with a view of the whole network allocates rates, senders pace at them (SIGCOMM 2013)."""
