"""All datasets by name. To add one, write a file and add a line here."""

from collections.abc import Sequence
from pathlib import Path

from qccf.core.errors import DataError
from qccf.core.registry import Registry
from qccf.learning.datasets.base import Dataset, DatasetSource, checked

DATASETS: Registry[type[DatasetSource]] = Registry(
    "dataset",
    {
        "handwriting": "qccf.learning.datasets.handwriting:HandwritingSource",
        "emnist": "qccf.learning.datasets.emnist:EmnistSource",
        "femnist": "qccf.learning.datasets.femnist:FemnistSource",
        "mnist": "qccf.learning.datasets.mnist:MnistSource",
        "fashion-mnist": "qccf.learning.datasets.fashion_mnist:FashionMnistSource",
        "cifar10": "qccf.learning.datasets.cifar10:Cifar10Source",
    },
    methods=("load", "fetch", "check"),
    call="Class()",
)


def dataset_source(name: str) -> DatasetSource:
    """The source of the dataset ``name``, or of a user's own ``module:Class``."""
    source: DatasetSource = DATASETS.build(name)
    return source


def load_dataset(name: str, folder: Path, *, seed: int = 0) -> Dataset:
    """The dataset ``name`` from ``folder``, checked. ``seed`` matters only if the files contain no split."""
    return checked(dataset_source(name).load(folder, seed=seed))


def require_dataset(name: str, folder: Path) -> None:
    """Refuse a dataset that is unknown, missing or damaged."""
    dataset_source(name).check(folder)


def available_dataset(names: Sequence[str], folder: Path) -> tuple[str, str]:
    """The first of these datasets that is in the folder, and why the first name is not available (empty if it is)."""
    reason = ""
    for name in names:
        try:
            require_dataset(name, folder)
            return name, reason
        except DataError as error:
            reason = reason or str(error)
    raise DataError(reason)
