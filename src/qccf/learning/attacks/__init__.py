"""Attacks, one per file: what a hostile client of a simulated federation does."""
