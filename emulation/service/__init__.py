"""A transport's services as a process of their own, reached over mutually authenticated TLS."""
