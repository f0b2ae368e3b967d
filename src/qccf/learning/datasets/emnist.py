"""EMNIST ByClass: the characters of NIST SD19 (as in FEMNIST), without the writers."""

import shutil
import zipfile
import zlib
from functools import partial
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from qccf.core.files import write_whole
from qccf.learning.datasets.base import CHARACTERS, DataError, Dataset, Progress, first_present, places
from qccf.learning.datasets.fetch import download, file_digest, make_folder
from qccf.learning.datasets.idx import idx_sha256, read_idx
from qccf.learning.datasets.npz import grey_images, integers, read_npz
from qccf.learning.datasets.splits import held_out

# As many to test as in the official split of ByClass, 116,323 of 814,255.
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
    """The official idx files where they are there, else the test split alone as an npz archive."""

    name = "emnist"
    description = "EMNIST ByClass: handwritten characters 28 × 28 in 62 classes (0-9 A-Z a-z), writers unknown"

    def load(self, folder: Path, *, seed: int) -> Dataset:
        """The official split of the idx files; of the npz, one seventh of each class drawn by ``seed``."""
        if (paths := _idx_paths(folder)) is not None:
            return _load_idx(paths)
        if (path := first_present(places(folder, self.name), NPZ_FILE)) is not None:
            return _load_npz(path, seed)
        raise DataError(_missing(folder))

    def fetch(self, folder: Path, progress: Progress) -> list[Path]:
        """The four ByClass files out of NIST's archive; the other five splits in it are left there."""
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
                f"{self.name}: NIST cannot be reached ({reason}) and no package registry holds the archive; download"
                f" gzip.zip elsewhere and put its emnist-byclass-*.gz files, or {NPZ_FILE}, into {target}."
            ) from reason
        written = _unpack(archive, target)
        archive.unlink()
        return written

    def check(self, folder: Path) -> list[str]:
        """What is there; NIST publishes a checksum of the archive only, which `fetch` has verified."""
        if (paths := _idx_paths(folder)) is not None:
            lines = []
            for idx_path, (_, num_axes) in zip(paths, _IDX_FILES, strict=True):
                values = read_idx(idx_path, num_axes)
                shape = " × ".join(str(length) for length in values.shape)
                lines.append(f"{idx_path}: {shape}; sha256 {idx_sha256(values)[:16]}, no published checksum to compare")
            return lines
        if (path := first_present(places(folder, self.name), NPZ_FILE)) is not None:
            matches = "matches" if file_digest(path, "sha256") == _NPZ_SHA256 else "DIFFERS"
            return [f"{path}: {len(_read_npz(path)[1])} characters without a split; checksum {matches}"]
        raise DataError(_missing(folder))


def _missing(folder: Path) -> str:
    """What to do when neither form is there."""
    return (
        f"emnist: {folder} holds neither the four emnist-byclass-*-ubyte[.gz] files nor {NPZ_FILE}; fetch emnist, or"
        f" put them into {folder / 'emnist'}."
    )


def _idx_paths(folder: Path) -> list[Path] | None:
    """The four idx files if one folder holds them all; `gzip` is what unpacking NIST's archive by hand leaves."""
    for place in places(folder, "emnist", "gzip"):
        found = [first_present([place], name, f"{name}.gz") for name, _ in _IDX_FILES]
        paths = [path for path in found if path is not None]
        if len(paths) == len(_IDX_FILES):
            return paths
    return None


def _load_idx(paths: list[Path]) -> Dataset:
    """The official split. The official images lie on their side (rows and columns swapped), which is undone here."""
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
    """Images (already upright) and labels, once the archive's classes are those we name."""
    images, labels, classes = read_npz(path, "x", "y", "classes")
    if tuple(str(name) for name in classes.reshape(-1)) != CHARACTERS:
        raise DataError(f"{path}: its {classes.size} classes are not 0-9 A-Z a-z in this order; reorder its labels.")
    upright, numbers = grey_images(path, images), integers(path, labels)
    if len(upright) != len(numbers):
        raise DataError(f"{path}: {len(upright)} images but {len(numbers)} labels; fetch the file again.")
    return upright, numbers


def _load_npz(path: Path, seed: int) -> Dataset:
    """The official test split alone, split once more so that what is tested on is never trained on."""
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
    """What both forms have in common."""
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
    """The four ByClass members of NIST's archive, by name and below a size, so that no path of its own is obeyed."""
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
