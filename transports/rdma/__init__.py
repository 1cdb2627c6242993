"""RDMA NICs' loss recovery: go-back-N, and selective repeat driven by a timeout."""
