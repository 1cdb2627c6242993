"""QUIC as a protocol (RFC 9000, 9001, 9002): one connection over one path, on aioquic's TLS and packet protection."""
