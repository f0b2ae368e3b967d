"""Recorded or ray-traced channels that replace the model's, one file per form."""
