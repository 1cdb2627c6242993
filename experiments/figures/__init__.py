"""The figures: how they look, and what each of them shows."""
