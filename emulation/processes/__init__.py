"""The processes of a run: how they are started and ended, and what they say to one another."""
