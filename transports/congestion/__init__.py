"""Congestion control: one algorithm, one file, all behind `transports.congestion.base`."""
