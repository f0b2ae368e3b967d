"""Every dataset by name; an entry here is all that a new one needs."""

from collections.abc import Sequence
from pathlib import Path

from qccf.learning.datasets.base import DataError, Dataset, DatasetSource, checked
from qccf.learning.datasets.cifar10 import Cifar10Source
from qccf.learning.datasets.emnist import EmnistSource
from qccf.learning.datasets.femnist import FemnistSource
from qccf.learning.datasets.handwriting import HandwritingSource
from qccf.learning.datasets.mnist import FashionMnistSource, MnistSource

_SOURCES: tuple[DatasetSource, ...] = (
    HandwritingSource(),
    EmnistSource(),
    FemnistSource(),
    MnistSource(),
    FashionMnistSource(),
    Cifar10Source(),
)

DATASETS: dict[str, DatasetSource] = {source.name: source for source in _SOURCES}


def load_dataset(name: str, folder: Path, *, seed: int = 0) -> Dataset:
    """The dataset ``name`` from ``folder``, checked; ``seed`` decides only splits that the files do not hold."""
    return checked(_source(name).load(folder, seed=seed))


def require_dataset(name: str, folder: Path) -> None:
    """Refuse a dataset that is unknown, missing or damaged, without loading it."""
    _source(name).check(folder)


def _source(name: str) -> DatasetSource:
    if name not in DATASETS:
        raise DataError(f"dataset {name!r} is unknown; choose one of {', '.join(DATASETS)}.")
    return DATASETS[name]


def available_dataset(names: Sequence[str], folder: Path) -> tuple[str, str]:
    """The first of some datasets that is in the folder, and why the first name is not it (empty if it is)."""
    reason = ""
    for name in names:
        try:
            require_dataset(name, folder)
            return name, reason
        except DataError as error:
            reason = reason or f"{error} Or get it with: qccf data fetch {name}."
    raise DataError(reason)
