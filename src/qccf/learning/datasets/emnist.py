"""EMNIST ByClass: the characters of NIST SD19 (as in FEMNIST), without the writers."""

import shutil
import zipfile
import zlib
from functools import partial
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from qccf.core.errors import DataError
from qccf.core.files import write_whole
from qccf.learning.datasets.base import CHARACTERS, Dataset, DownloadProgress, compared, first_present, places
from qccf.learning.datasets.fetch import download, file_digest, make_folder
from qccf.learning.datasets.idx import idx_sha256, read_idx
from qccf.learning.datasets.npz import grey_images, integers, read_npz
from qccf.learning.datasets.splits import held_out

# The fraction of the official split of ByClass: 116,323 of 814,255.
_TEST_FRACTION = 1 / 7

ADDRESSES = (
    "https://biometrics.nist.gov/cs_links/EMNIST/gzip.zip",
    "https://www.itl.nist.gov/iaui/vip/cs_links/EMNIST/gzip.zip",
)
ARCHIVE_MD5 = "58c8d27c78d21e728a6bc7b3cc06412e"
_MEMBER_BYTES_MAX = 1024**3

NPZ_FILE = "emnist_byclass_test116k.npz"
_NPZ_SHA256 = "52d8a128c3471e05355ffbbff9e79370dcbe18f46ddd65eee7f54b839936f18a"

_IDX_FILES = (
    ("emnist-byclass-train-images-idx3-ubyte", 3),
    ("emnist-byclass-train-labels-idx1-ubyte", 1),
    ("emnist-byclass-test-images-idx3-ubyte", 3),
    ("emnist-byclass-test-labels-idx1-ubyte", 1),
)


class EmnistSource:
    """The official idx files if they exist, else an npz archive of the official test split alone."""

    name = "emnist"
    description = "EMNIST ByClass: handwritten characters 28 × 28 in 62 classes (0-9 A-Z a-z), writers unknown"

    def load(self, folder: Path, *, seed: int) -> Dataset:
        """The official split of the idx files. For the npz archive ``seed`` draws the test part."""
        if (paths := _idx_paths(folder)) is not None:
            return _load_idx(paths)
        return _load_npz(_npz_path(folder), seed)

    def fetch(self, folder: Path, progress: DownloadProgress) -> list[Path]:
        """The four ByClass files from NIST's archive, without the other splits in it."""
        target = folder / self.name
        if (paths := _idx_paths(folder)) is not None:
            progress(f"{self.name}: already in {paths[0].parent}", 0, None)
            return paths
        make_folder(target)
        archive = target / "gzip.zip"
        for address in ADDRESSES:
            try:
                progress(f"{self.name}: official address {address}", 0, None)
                download(address, archive, progress, md5=ARCHIVE_MD5)
                break
            except DataError as error:
                reason = error
        else:
            raise DataError(
                f"{self.name}: NIST cannot be reached ({reason}) and no package registry has the archive; download"
                f" gzip.zip elsewhere and put its emnist-byclass-*.gz files, or {NPZ_FILE}, into {target}."
            ) from reason
        written = _unpack(archive, target)
        archive.unlink()
        return written

    def check(self, folder: Path) -> list[str]:
        """The files found. NIST publishes only a checksum of the archive, which `fetch` verifies."""
        if (paths := _idx_paths(folder)) is not None:
            lines = []
            for idx_path, (_, num_axes) in zip(paths, _IDX_FILES, strict=True):
                values = read_idx(idx_path, num_axes)
                shape = " × ".join(str(length) for length in values.shape)
                lines.append(f"{idx_path}: {shape}; sha256 {idx_sha256(values)[:16]}, no published checksum to compare")
            return lines
        path = _npz_path(folder)
        matches = compared(file_digest(path, "sha256"), _NPZ_SHA256)
        return [f"{path}: {len(_read_npz(path)[1])} characters without a split; {matches}"]


def _npz_path(folder: Path) -> Path:
    if (path := first_present(places(folder, "emnist"), NPZ_FILE)) is None:
        raise DataError(
            f"emnist: {folder} contains neither the four emnist-byclass-*-ubyte[.gz] files nor {NPZ_FILE}; run"
            f" qccf data fetch emnist, or put them into {folder / 'emnist'}."
        )
    return path


def _idx_paths(folder: Path) -> list[Path] | None:
    """The four idx files if one folder contains all of them. Unpacking NIST's archive by hand creates `gzip`."""
    for place in places(folder, "emnist", "gzip"):
        found = [first_present([place], name, f"{name}.gz") for name, _ in _IDX_FILES]
        paths = [path for path in found if path is not None]
        if len(paths) == len(_IDX_FILES):
            return paths
    return None


def _load_idx(paths: list[Path]) -> Dataset:
    """The official split. Rows and columns of the official images are swapped, which is corrected here."""
    train_images, train_labels, test_images, test_labels = (
        read_idx(path, num_axes) for path, (_, num_axes) in zip(paths, _IDX_FILES, strict=True)
    )
    return _dataset(
        np.ascontiguousarray(train_images.transpose(0, 2, 1)),
        train_labels.astype(np.int64),
        np.ascontiguousarray(test_images.transpose(0, 2, 1)),
        test_labels.astype(np.int64),
        source="EMNIST ByClass, the official idx files: real handwritten characters, writers unknown",
    )


def _read_npz(path: Path) -> tuple[NDArray[np.uint8], NDArray[np.int64]]:
    """Images (already upright) and labels. Raises if the archive's classes are not `CHARACTERS`."""
    images, labels, classes = read_npz(path, "x", "y", "classes")
    if tuple(str(name) for name in classes.reshape(-1)) != CHARACTERS:
        raise DataError(f"{path}: its {classes.size} classes are not 0-9 A-Z a-z in this order; reorder its labels.")
    upright, numbers = grey_images(path, images), integers(path, labels)
    if len(upright) != len(numbers):
        raise DataError(f"{path}: {len(upright)} images but {len(numbers)} labels; download the file again.")
    return upright, numbers


def _load_npz(path: Path, seed: int) -> Dataset:
    """The official test split, split again into training and test samples."""
    images, labels = _read_npz(path)
    in_test = held_out(labels, _TEST_FRACTION, seed=seed, name="emnist")
    return _dataset(
        images[~in_test],
        labels[~in_test],
        images[in_test],
        labels[in_test],
        source=f"EMNIST ByClass, test split only, 1/7 of it held out (seed {seed}): real characters, writers unknown",
    )


def _dataset(
    train_images: NDArray[np.uint8],
    train_labels: NDArray[np.int64],
    test_images: NDArray[np.uint8],
    test_labels: NDArray[np.int64],
    *,
    source: str,
) -> Dataset:
    return Dataset(
        name="emnist",
        train_images=train_images,
        train_labels=train_labels,
        train_writers=None,
        test_images=test_images,
        test_labels=test_labels,
        class_names=CHARACTERS,
        synthetic=False,
        source=source,
    )


def _unpack(archive: Path, target: Path) -> list[Path]:
    """The four ByClass files of NIST's archive, read by name with a size limit, so that no path in it is used."""
    written = []
    try:
        with zipfile.ZipFile(archive) as packed:
            for name, _ in _IDX_FILES:
                member = packed.getinfo(f"gzip/{name}.gz")
                if member.file_size > _MEMBER_BYTES_MAX:
                    raise DataError(
                        f"{archive}: {member.filename} states {member.file_size} bytes, above {_MEMBER_BYTES_MAX};"
                        " delete it and fetch again."
                    )
                path = target / f"{name}.gz"
                write_whole(path, partial(_copy_member, packed, member))
                written.append(path)
    except (zipfile.BadZipFile, zlib.error, KeyError, OSError) as error:
        raise DataError(f"{archive}: cannot be unpacked ({error}); delete it and fetch again.") from error
    return written


def _copy_member(packed: zipfile.ZipFile, member: zipfile.ZipInfo, path: Path) -> None:
    with packed.open(member) as source, path.open("wb") as sink:
        shutil.copyfileobj(source, sink)
