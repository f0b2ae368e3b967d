"""Aggregation rules, one per file: from the uploads of a round to the aggregate that the server optimizer gets."""
