"""Paced sending: packets leave at a given rate, gaps are repaired from the receiver's reports."""
