"""Tail models fitted to measured runs, and put to the test."""
