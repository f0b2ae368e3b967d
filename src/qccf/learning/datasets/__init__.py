"""Datasets from files behind one small interface; NumPy only."""

from qccf.learning.datasets.base import DataError, Dataset, DatasetSource, data_folder
from qccf.learning.datasets.registry import DATASETS, available_dataset, load_dataset, require_dataset

__all__ = [
    "DATASETS",
    "DataError",
    "Dataset",
    "DatasetSource",
    "available_dataset",
    "data_folder",
    "load_dataset",
    "require_dataset",
]
