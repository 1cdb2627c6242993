"""The network namespaces of a run: made, entered, and removed without a trace on the machine."""
