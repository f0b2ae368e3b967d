"""Datasets, each read from files by one source. They need NumPy, not PyTorch."""

from qccf.core.errors import DataError
from qccf.learning.datasets.base import Dataset, DatasetSource, data_folder
from qccf.learning.datasets.registry import DATASETS, available_dataset, dataset_source, load_dataset, require_dataset

__all__ = [
    "DATASETS",
    "DataError",
    "Dataset",
    "DatasetSource",
    "available_dataset",
    "data_folder",
    "dataset_source",
    "load_dataset",
    "require_dataset",
]
