"""The commands of `bicoastal`, one module each."""
