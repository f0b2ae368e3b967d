"""Energy meters of a machine, one file each."""
