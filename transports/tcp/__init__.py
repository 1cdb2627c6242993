"""TCP as a sans-IO machine: segments, streams, loss recovery and timers (RFC 9293, 7323, 2018)."""
