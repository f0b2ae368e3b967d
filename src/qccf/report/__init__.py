"""Figures. The only part that knows a plotting library."""
