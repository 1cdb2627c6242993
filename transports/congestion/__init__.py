"""Congestion control: each algorithm has its own modules and implements `transports.congestion.base`."""
