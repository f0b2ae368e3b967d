"""The common part of all datasets: the arrays, the interface of a source, the folders of files."""

import os
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Protocol

import numpy as np
from numpy.typing import NDArray

from qccf.core.errors import DataError

DownloadProgress = Callable[[str, int, int | None], None]
"""Called with the name of the download, the bytes received and the total number of bytes (None if unknown)."""

CHARACTERS = tuple("0123456789ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz")
"""The 62 classes of NIST SD19, in the order of EMNIST ByClass, LEAF and the parquet files."""

DIGITS = CHARACTERS[:10]

SAMPLES_MAX = 2_000_000
"""More samples than any dataset here has. A file that states more is broken or hostile."""


@dataclass(frozen=True, eq=False)
class Dataset:
    """Samples and labels in memory: a training part for the clients and a test part for the server.

    The fields ``…_images`` hold one of three kinds: uint8 images, which a model gets as numbers from 0 to 1; float32
    features ``[sample, feature]`` (any shape after the sample), which it gets as they are; int64 token ids
    ``[sample, length]``. Grey images are ``[sample, height, width]``, colour images ``[sample, height, width, 3]``.
    Characters are bright ink on 0, independently of the convention of the files. ``train_writers`` is the writer of
    each training sample, 0..W-1, or None if unknown. ``source`` describes the data in one line, which is shown with
    every result.
    """

    name: str
    train_images: NDArray[Any]
    train_labels: NDArray[np.int64]
    train_writers: NDArray[np.int64] | None
    test_images: NDArray[Any]
    test_labels: NDArray[np.int64]
    class_names: tuple[str, ...]
    synthetic: bool
    source: str

    @property
    def num_classes(self) -> int:
        """The number of classes, including those that do not occur."""
        return len(self.class_names)


class DatasetSource(Protocol):
    """How to read, download and check one dataset. Built as ``Class()``."""

    @property
    def name(self) -> str:
        """The name in the registry and of the dataset's own folder."""
        ...

    @property
    def description(self) -> str:
        """One line for `qccf data list`."""
        ...

    def load(self, folder: Path, *, seed: int) -> Dataset:
        """Read the dataset. ``seed`` determines the split if the files contain none."""
        ...

    def fetch(self, folder: Path, progress: DownloadProgress) -> list[Path]:
        """Download missing files into ``folder/<name>`` and return all files."""
        ...

    def check(self, folder: Path) -> list[str]:
        """One line per file: what it contains and whether its checksum matches. Raises if no files are usable."""
        ...


def checked(dataset: Dataset) -> Dataset:
    """The same dataset, or an error that names the first violated rule.

    Partition, training and figures use these arrays without further checks.
    """
    name = dataset.name
    _check_split(name, "train", dataset.train_images, dataset.train_labels, dataset.num_classes)
    _check_split(name, "test", dataset.test_images, dataset.test_labels, dataset.num_classes)
    if dataset.train_images.dtype != dataset.test_images.dtype:
        raise DataError(
            f"{name}: train images are {dataset.train_images.dtype} but test images are {dataset.test_images.dtype}; "
            "use one kind."
        )
    if dataset.train_images.shape[1:] != dataset.test_images.shape[1:]:
        raise DataError(
            f"{name}: train images are {dataset.train_images.shape[1:]} but test images are"
            f" {dataset.test_images.shape[1:]}; use the files of one download."
        )
    if len(set(dataset.class_names)) != dataset.num_classes:
        raise DataError(f"{name}: its {dataset.num_classes} class names repeat; name each class once.")
    if dataset.train_writers is not None:
        _check_writers(name, dataset.train_writers, len(dataset.train_labels))
    return dataset


def _check_split(name: str, part: str, images: NDArray[Any], labels: NDArray[np.int64], num_classes: int) -> None:
    """Check types, shapes and label range of one part."""
    if images.dtype not in (np.uint8, np.float32, np.int64) or labels.dtype != np.int64:
        raise DataError(
            f"{name}: {part} images are {images.dtype} and labels {labels.dtype}, not uint8 (images), float32 "
            "(features) or int64 (token ids) and int64; convert them."
        )
    colour = images.ndim == 4 and images.shape[3] == 3
    fits = {"u": images.ndim == 3 or colour, "f": images.ndim >= 2, "i": images.ndim == 2}[images.dtype.kind]
    if not fits or labels.ndim != 1:
        raise DataError(
            f"{name}: {part} images have shape {images.shape} and labels {labels.shape},"
            " not [sample, height, width(, 3)] (features: [sample, feature], token ids: [sample, length]) and [sample];"
            " reshape them."
        )
    if images.dtype.kind == "f" and not np.isfinite(images).all():
        raise DataError(f"{name}: {part} features have values that are not finite; remove or replace them.")
    if len(images) != len(labels) or len(labels) == 0:
        raise DataError(
            f"{name}: {len(images)} {part} images but {len(labels)} labels, which must be equal and above 0;"
            " download the files again."
        )
    lowest, highest = int(labels.min()), int(labels.max())
    if lowest < 0 or highest >= num_classes:
        raise DataError(
            f"{name}: {part} labels run from {lowest} to {highest}, outside 0..{num_classes - 1}; download the files"
            " again."
        )


def _check_writers(name: str, writers: NDArray[np.int64], num_samples: int) -> None:
    """Check that writers are numbered without gaps; the partition relies on it."""
    if writers.dtype != np.int64 or writers.shape != (num_samples,):
        raise DataError(
            f"{name}: writers are {writers.dtype} of shape {writers.shape}, not int64 of shape ({num_samples},);"
            " give one writer per sample."
        )
    present = np.unique(writers)
    if present[0] != 0 or present[-1] != len(present) - 1:
        raise DataError(
            f"{name}: {len(present)} writers are numbered {present[0]} to {present[-1]}, not 0 to {len(present) - 1};"
            " number them without gaps."
        )


def data_folder(explicit: Path | None) -> Path:
    """The folder of datasets: ``explicit`` if given, else ``QCCF_DATA``, else the user's cache folder."""
    if explicit is not None:
        return explicit.expanduser()
    if named := os.environ.get("QCCF_DATA"):
        return Path(named).expanduser()
    cache = os.environ.get("XDG_CACHE_HOME", "")
    # XDG requires that a relative path is ignored.
    base = Path(cache) if cache and Path(cache).is_absolute() else Path.home() / ".cache"
    return base / "qccf" / "data"


def places(folder: Path, name: str, *subfolders: str) -> list[Path]:
    """The folders that may contain files of dataset ``name``, the most specific first."""
    tops = (folder / name, folder)
    return [place for top in tops for place in (top, *(top / sub for sub in subfolders))]


def first_present(folders: list[Path], *names: str) -> Path | None:
    """The first existing file; all names are tried in one folder before the next folder."""
    return next((place / name for place in folders for name in names if (place / name).is_file()), None)


def numbered(writers: NDArray[np.generic]) -> NDArray[np.int64]:
    """Writers numbered 0..W-1 in the order of their names."""
    return np.unique(writers, return_inverse=True)[1].reshape(-1).astype(np.int64)


def compared(checksum: str, official: str) -> str:
    """The result of a checksum comparison, as `check` prints it."""
    return "checksum matches" if checksum == official else "checksum DIFFERS"


@contextmanager
def reading(path: Path) -> Iterator[None]:
    """Turn errors of the operating system while reading ``path`` into a DataError."""
    try:
        yield
    except OSError as error:
        raise DataError(
            f"{path}: cannot be read ({error.strerror or error}); check the file and its permissions."
        ) from error
