"""The processes of a run: how they start and end, and the messages between them."""
