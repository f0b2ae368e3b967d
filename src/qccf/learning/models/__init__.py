"""Models, one per file."""
