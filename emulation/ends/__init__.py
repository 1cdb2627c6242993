"""The ends of flows in real time: our machines over UDP, and the kernel's own TCP."""
