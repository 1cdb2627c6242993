"""The links of a run as the simulator, the relay and netem use them: one class for each direction of a link."""
