"""Wide-area inter-datacenter transport emulator for training that crosses a continent."""
