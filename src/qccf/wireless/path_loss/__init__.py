"""Path-loss models, one per file."""
