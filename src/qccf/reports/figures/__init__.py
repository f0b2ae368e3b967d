"""Figures as data, drawn by one stack for runs, plans, sweeps and the paper."""
