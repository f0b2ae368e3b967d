"""The optimisation problem of a round and its solvers. Paper: Sections III and V."""
