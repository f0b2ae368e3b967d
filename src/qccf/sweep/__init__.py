"""A grid of settings: the file that describes it, its runs, and the tables that they come to."""
