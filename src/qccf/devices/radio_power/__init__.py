"""What a client's radio takes from its battery, one file per model."""
