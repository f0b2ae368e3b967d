"""Models, local training, partition of the data, and datasets. Paper: Section II-A."""
