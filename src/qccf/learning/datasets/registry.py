"""All datasets by name. To add one, write a file and add a line here."""

from collections.abc import Callable, Mapping, Sequence
from inspect import signature
from pathlib import Path
from typing import Any

from qccf.core.errors import ConfigError, DataError
from qccf.core.registry import Registry
from qccf.learning.datasets.base import Dataset, DatasetSource, DownloadProgress, checked

METHODS = ("load", "fetch", "check")

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
    call="Class() or function(**options)",
)


class OwnDataset:
    """A user's own function as a source: nothing to fetch, and checked when it is loaded."""

    description = "a function of your own"

    def __init__(self, name: str, make: Callable[..., Any], options: Mapping[str, Any]) -> None:
        self.name = name
        self._make = make
        self._options = options

    def load(self, folder: Path, *, seed: int) -> Dataset:
        try:
            signature(self._make).bind(**self._options)
        except TypeError as error:
            raise DataError(
                f"dataset {self.name!r} does not take data.options = {dict(self._options)}: {error}."
            ) from None
        dataset = self._make(**self._options)
        if not isinstance(dataset, Dataset):
            raise DataError(f"dataset {self.name!r} gave {type(dataset).__name__}, not a qccf Dataset: return one.")
        return dataset

    def fetch(self, folder: Path, progress: DownloadProgress) -> list[Path]:
        return []

    def check(self, folder: Path) -> list[str]:
        return [f"{self.name}: {self.description}"]


def dataset_source(name: str, options: Mapping[str, Any] | None = None) -> DatasetSource:
    """The source of the dataset ``name``, or of a user's own ``module:attribute``.

    The attribute is a class with the methods of a source, or a function that returns a Dataset.
    """
    entry: Any = DATASETS.find(name)
    missing = [method for method in METHODS if not hasattr(entry, method)]
    if missing and isinstance(entry, type):
        raise ConfigError(f"dataset {name!r} has no {', no '.join(missing)}; a dataset has {', '.join(METHODS)}.")
    if missing:
        return OwnDataset(name, entry, options or {})
    source: DatasetSource = DATASETS.build(name, **(options or {}))
    return source


def load_dataset(name: str, folder: Path, *, seed: int = 0, options: Mapping[str, Any] | None = None) -> Dataset:
    """The dataset ``name`` from ``folder``, checked. ``seed`` matters only if the files contain no split."""
    return checked(dataset_source(name, options).load(folder, seed=seed))


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
