"""Models, local training, data partition and datasets. Paper: Section II-A."""
