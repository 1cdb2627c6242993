"""Runs with real packets: a process on each coast, real sockets and real clocks."""
