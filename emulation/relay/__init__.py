"""The WAN in the middle, where the kernel has no netem: a forwarder that runs the simulator's own links."""
