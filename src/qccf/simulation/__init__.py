"""The federation in one process: the five steps of a round, for real."""
