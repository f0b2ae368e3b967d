"""Types, errors, random streams, units and file writing that every other package uses."""
