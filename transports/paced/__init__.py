"""Paced sending: packets leave at a given rate, the receiver's reports show the gaps, which are then repaired."""
