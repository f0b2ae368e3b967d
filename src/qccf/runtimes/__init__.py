"""Ways to run rounds: the simulator, the planner and Flower."""
