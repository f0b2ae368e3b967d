"""Synthetic handwriting drawn from fonts: the dataset that needs no download.

It replaces FEMNIST where that is not available. Accuracies on it are not those of FEMNIST.
"""

from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any, ClassVar

import numpy as np
from numpy.typing import NDArray

from qccf.core.errors import DataError, FileError
from qccf.core.files import write_whole
from qccf.learning.datasets.base import CHARACTERS, Dataset, DownloadProgress, checked
from qccf.learning.datasets.handwriting_drawing import SIDE, draw_writers
from qccf.learning.datasets.npz import read_npz

FIRST_TEST_WRITER = 1_000_000
"""Far above the number of any training writer, so that no writer is in both parts."""

DRAWING_VERSION = 1
"""Part of the cache's file name. Increase it with every change that affects a pixel."""

_ARRAYS = ("train_images", "train_labels", "train_writers", "test_images", "test_labels")


@dataclass(frozen=True, kw_only=True)
class HandwritingSource:
    """The numbers of writers, and of samples that each of them writes. Test writers are not in the training part."""

    name: ClassVar[str] = "handwriting"
    description: ClassVar[str] = (
        "Synthetic handwriting: 62 characters 28 × 28 drawn from fonts, any number of writers, no download"
    )

    train_writers: int = 200
    train_samples: int = 120
    test_writers: int = 40
    test_samples: int = 100

    def load(self, folder: Path, *, seed: int) -> Dataset:
        """The drawing of ``seed``, from the cache if it is intact."""
        path = self.cache_file(folder, seed)
        try:
            return self._read(path)
        except DataError:  # not drawn yet, or damaged
            dataset = self._draw(seed)
        with suppress(OSError, FileError):  # the cache only saves time, so a read-only folder is not an error
            write_whole(path, lambda temporary: _save(dataset, temporary))
        return dataset

    def fetch(self, folder: Path, progress: DownloadProgress) -> list[Path]:
        """Draw and cache the dataset of seed 0. Nothing is downloaded."""
        path = self.cache_file(folder, 0)
        self.load(folder, seed=0)
        if not path.is_file():
            raise DataError(f"{path}: cannot be written; name a writable folder with enough space.")
        progress(path.name, path.stat().st_size, path.stat().st_size)
        return [path]

    def check(self, folder: Path) -> list[str]:
        """The state of each cached drawing. Never raises, because a missing drawing is made when it is needed."""
        lines = []
        for path in sorted(self.cache_file(folder, 0).parent.glob(self._file_name("*"))):
            try:
                self._read(path)
                lines.append(f"{path}: complete")
            except DataError as error:
                lines.append(f"{error} It is drawn again at the next use.")
        return lines or [f"{folder / self.name}: no drawing yet; one is made in seconds at the first use."]

    def cache_file(self, folder: Path, seed: int) -> Path:
        """The cache of ``seed``. Its name contains everything that affects the pixels."""
        return folder / self.name / self._file_name(str(seed))

    def _file_name(self, seed: str) -> str:
        train, test = f"{self.train_writers}x{self.train_samples}", f"{self.test_writers}x{self.test_samples}"
        return f"handwriting-v{DRAWING_VERSION}-train{train}-test{test}-seed{seed}.npz"

    def _draw(self, seed: int) -> Dataset:
        test_writers = range(FIRST_TEST_WRITER, FIRST_TEST_WRITER + self.test_writers)
        train_images, train_labels, writers = draw_writers(range(self.train_writers), self.train_samples, seed)
        test_images, test_labels, _ = draw_writers(test_writers, self.test_samples, seed)
        return self._dataset(train_images, train_labels, writers, test_images, test_labels)

    def _read(self, path: Path) -> Dataset:
        """A cached drawing. Raises unless every array has the type, shape and range of a new drawing."""
        arrays = read_npz(path, *_ARRAYS)
        train, test = self.train_writers * self.train_samples, self.test_writers * self.test_samples
        shapes = [(train, SIDE, SIDE), (train,), (train,), (test, SIDE, SIDE), (test,)]
        writers = np.repeat(np.arange(self.train_writers), self.train_samples)
        if [array.shape for array in arrays] != shapes or not np.array_equal(arrays[2], writers):
            raise DataError(f"{path}: does not contain the drawing that its name states; delete it.")
        return checked(self._dataset(*arrays))

    def _dataset(self, *arrays: NDArray[Any]) -> Dataset:
        fields = dict(zip(_ARRAYS, arrays, strict=True))
        source = "synthetic handwriting drawn from fonts, not real data"
        return Dataset(self.name, **fields, class_names=CHARACTERS, synthetic=True, source=source)


def _save(dataset: Dataset, path: Path) -> None:
    np.savez_compressed(path, **{name: getattr(dataset, name) for name in _ARRAYS})
