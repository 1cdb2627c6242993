"""Loss recovery as RDMA network cards do it: go-back-N, and selective repeat driven by a timeout."""
