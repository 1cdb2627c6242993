"""Closed forms for the whole deployment: stages, exposure, memory, tails of the slowest message, and sizing."""
