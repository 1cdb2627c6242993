"""Transports that spread a message over many paths, and what they are built from: QUIC connections, erasure codes."""
