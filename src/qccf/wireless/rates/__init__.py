"""Rate models, one per file: from the signal-to-noise ratio of a channel to its bits per second."""
