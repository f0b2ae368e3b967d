"""What a dataset is, whoever made it: the arrays, the promise each source keeps, and where files are looked for."""

import os
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Protocol

import numpy as np
from numpy.typing import NDArray

from qccf.core.errors import QccfError

Progress = Callable[[str, int, int | None], None]
"""Told what is being fetched, how many bytes are there, and how many there will be (None where unknown)."""

CHARACTERS = tuple("0123456789ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz")
"""The 62 classes of NIST SD19 in the one order that EMNIST ByClass, LEAF and the parquet form share."""

DIGITS = CHARACTERS[:10]

SAMPLES_MAX = 2_000_000
"""More samples than any dataset here holds: a file that states more is broken or hostile."""


class DataError(QccfError):
    """A dataset that is missing, broken, or not what it says it is."""


@dataclass(frozen=True, eq=False)
class Dataset:
    """Images and labels in memory, split into what clients train on and what the server tests on.

    Images are ``[sample, height, width]`` when grey and ``[sample, height, width, 3]`` in colour; characters are bright
    ink on 0, so that an all-zero image is empty paper whatever the file's own convention was. ``train_writers`` says
    who wrote each training sample, 0..W-1, and is None where nobody knows. ``source`` is one line that says what the
    data is; it is shown wherever a result is shown.
    """

    name: str
    train_images: NDArray[np.uint8]
    train_labels: NDArray[np.int64]
    train_writers: NDArray[np.int64] | None
    test_images: NDArray[np.uint8]
    test_labels: NDArray[np.int64]
    class_names: tuple[str, ...]
    synthetic: bool
    source: str

    @property
    def num_classes(self) -> int:
        """How many classes a model must tell apart, whether or not each of them occurs."""
        return len(self.class_names)


class DatasetSource(Protocol):
    """One dataset by name: how to read it, how to get it, and how to tell whether it is whole."""

    @property
    def name(self) -> str:
        """The name in the table, also that of the dataset's own folder."""
        ...

    @property
    def description(self) -> str:
        """One line for people who choose a dataset."""
        ...

    def load(self, folder: Path, *, seed: int) -> Dataset:
        """Read the dataset; ``seed`` decides a split only where the files hold none."""
        ...

    def fetch(self, folder: Path, progress: Progress) -> list[Path]:
        """Download whatever is missing into ``folder/<name>`` and return the files."""
        ...

    def check(self, folder: Path) -> list[str]:
        """Lines that say what was found and whether its checksums match; raises when nothing is usable."""
        ...


def checked(dataset: Dataset) -> Dataset:
    """The same dataset, or the first broken promise as an error.

    Everything downstream (partition, models, figures) trusts these arrays without looking again.
    """
    name = dataset.name
    _check_split(name, "train", dataset.train_images, dataset.train_labels, dataset.num_classes)
    _check_split(name, "test", dataset.test_images, dataset.test_labels, dataset.num_classes)
    if dataset.train_images.shape[1:] != dataset.test_images.shape[1:]:
        raise DataError(
            f"{name}: train images are {dataset.train_images.shape[1:]} but test images"
            f" {dataset.test_images.shape[1:]}; use the files of one download."
        )
    if len(set(dataset.class_names)) != dataset.num_classes:
        raise DataError(f"{name}: its {dataset.num_classes} class names repeat; name each class once.")
    if dataset.train_writers is not None:
        _check_writers(name, dataset.train_writers, len(dataset.train_labels))
    return dataset


def _check_split(name: str, part: str, images: NDArray[np.uint8], labels: NDArray[np.int64], num_classes: int) -> None:
    """Types, shapes and label range of one part."""
    if images.dtype != np.uint8 or labels.dtype != np.int64:
        raise DataError(
            f"{name}: {part} images are {images.dtype} and labels {labels.dtype}, not uint8 and int64; convert them."
        )
    colour = images.ndim == 4 and images.shape[3] == 3
    if not (images.ndim == 3 or colour) or labels.ndim != 1:
        raise DataError(
            f"{name}: {part} images have shape {images.shape} and labels {labels.shape},"
            " not [sample, height, width(, 3)] and [sample]; reshape them."
        )
    if len(images) != len(labels) or len(labels) == 0:
        raise DataError(
            f"{name}: {len(images)} {part} images but {len(labels)} labels, which must be equal and above 0;"
            " fetch the files again."
        )
    lowest, highest = int(labels.min()), int(labels.max())
    if lowest < 0 or highest >= num_classes:
        raise DataError(
            f"{name}: {part} labels run from {lowest} to {highest}, outside 0..{num_classes - 1}; fetch them again."
        )


def _check_writers(name: str, writers: NDArray[np.int64], num_samples: int) -> None:
    """Writers are numbered without gaps, because a partition deals them out by number."""
    if writers.dtype != np.int64 or writers.shape != (num_samples,):
        raise DataError(
            f"{name}: writers are {writers.dtype} of {writers.shape}, not int64 of ({num_samples},); give one each."
        )
    present = np.unique(writers)
    if present[0] != 0 or present[-1] != len(present) - 1:
        raise DataError(
            f"{name}: {len(present)} writers are numbered {present[0]} to {present[-1]}, not 0 to {len(present) - 1};"
            " number them without gaps."
        )


def data_folder(explicit: Path | None) -> Path:
    """Where datasets live: the folder that was named, else ``QCCF_DATA``, else the user's cache."""
    if explicit is not None:
        return explicit.expanduser()
    if named := os.environ.get("QCCF_DATA"):
        return Path(named).expanduser()
    cache = os.environ.get("XDG_CACHE_HOME", "")
    # The XDG rule: a relative path is invalid and must be ignored.
    base = Path(cache) if cache and Path(cache).is_absolute() else Path.home() / ".cache"
    return base / "qccf" / "data"


def places(folder: Path, name: str, *subfolders: str) -> list[Path]:
    """The folders in which files of dataset ``name`` may lie, the most specific first."""
    tops = (folder / name, folder)
    return [place for top in tops for place in (top, *(top / sub for sub in subfolders))]


def first_present(folders: list[Path], *names: str) -> Path | None:
    """The first file that is there, looking for every name in one folder before the next folder."""
    return next((place / name for place in folders for name in names if (place / name).is_file()), None)


def numbered(writers: NDArray[np.generic]) -> NDArray[np.int64]:
    """Writers renamed 0..W-1 in the order of their own names."""
    return np.unique(writers, return_inverse=True)[1].reshape(-1).astype(np.int64)
