"""Server optimizers, one per file: from the aggregate of a round to the next global model."""
