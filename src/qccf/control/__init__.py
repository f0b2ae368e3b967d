"""The round's optimisation problem and its solvers. Paper: Sections III and V."""
