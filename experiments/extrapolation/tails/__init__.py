"""The completion time of one message as a distribution, for each transport, and the slowest of many."""
