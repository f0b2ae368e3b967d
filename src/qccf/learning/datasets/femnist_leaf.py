"""Reader for one JSON file of LEAF's FEMNIST: users, their numbers of samples, and 784 floats per image."""

import json
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from qccf.core.errors import DataError
from qccf.learning.datasets.base import CHARACTERS, reading

_SIDE = 28
# LEAF writes a hundred writers per file, about 0.3 GB.
_FILE_BYTES_MAX = 4 * 1024**3


def read_leaf(path: Path) -> tuple[NDArray[np.uint8], NDArray[np.int64], NDArray[np.str_]]:
    """Images as bright ink on 0, labels, and the writer of each sample. LEAF's images are dark ink on 1.0."""
    content = _read_json(path)
    users, counts, data = (content.get(key) for key in ("users", "num_samples", "user_data"))
    if not isinstance(users, list) or not isinstance(counts, list) or not isinstance(data, dict):
        raise DataError(f"{path}: lacks 'users', 'num_samples' or 'user_data' as LEAF writes them; build it again.")
    if len(users) != len(counts) or not all(isinstance(user, str) for user in users) or len(set(users)) != len(users):
        raise DataError(
            f"{path}: {len(users)} 'users' and {len(counts)} 'num_samples' must be one name and one number per writer;"
            " build it again."
        )
    images, labels = [], []
    for user, count in zip(users, counts, strict=True):
        user_images, user_labels = _samples(path, user, data.get(user))
        if len(user_labels) != count:
            raise DataError(f"{path}: {user!r} has {len(user_labels)} samples, not the {count} stated; build it again.")
        images.append(user_images)
        labels.append(user_labels)
    sizes = [len(part) for part in labels]
    if not users:
        return np.empty((0, _SIDE, _SIDE), np.uint8), np.empty(0, np.int64), np.empty(0, np.str_)
    return np.concatenate(images), np.concatenate(labels), np.repeat(np.array(users, dtype=np.str_), sizes)


def _read_json(path: Path) -> dict[str, object]:
    with reading(path):
        size = path.stat().st_size
        if size > _FILE_BYTES_MAX:
            raise DataError(
                f"{path}: has {size} bytes, above the limit of {_FILE_BYTES_MAX}; build it in smaller files."
            )
        text = path.read_bytes()
    try:
        content = json.loads(text)
    except (ValueError, RecursionError) as error:
        raise DataError(f"{path}: is not a complete JSON file ({error}); build it again.") from error
    if not isinstance(content, dict):
        raise DataError(f"{path}: contains a {type(content).__name__}, not LEAF's dictionary; build it again.")
    return content


def _samples(path: Path, user: str, entry: object) -> tuple[NDArray[np.uint8], NDArray[np.int64]]:
    """One writer's images and labels."""
    if not isinstance(entry, dict) or not isinstance(entry.get("x"), list) or not isinstance(entry.get("y"), list):
        raise DataError(f"{path}: {user!r} lacks the lists 'x' and 'y' in 'user_data'; build it again.")
    pixels, labels = entry["x"], entry["y"]
    if not pixels and not labels:  # all samples of this writer are in the other part
        return np.empty((0, _SIDE, _SIDE), np.uint8), np.empty(0, np.int64)
    if not all(type(label) is int and 0 <= label < len(CHARACTERS) for label in labels):
        raise DataError(f"{path}: a label of {user!r} is outside 0..{len(CHARACTERS) - 1}; build it again.")
    try:
        paper = np.array(pixels, dtype=np.float64).reshape(len(pixels), -1)
    except (ValueError, TypeError, OverflowError) as error:
        raise DataError(f"{path}: an image of {user!r} is not a list of numbers ({error}); build it again.") from error
    if paper.shape != (len(labels), _SIDE * _SIDE):
        raise DataError(
            f"{path}: {user!r} has images of shape {paper.shape} for {len(labels)} labels, not"
            f" {(len(labels), _SIDE * _SIDE)}; build it again."
        )
    if not np.all((paper >= 0) & (paper <= 1)):  # NaN is refused as well
        raise DataError(f"{path}: a pixel of {user!r} is outside 0..1; build it again.")
    ink = np.rint((1 - paper) * 255).astype(np.uint8)
    return ink.reshape(-1, _SIDE, _SIDE), np.array(labels, dtype=np.int64)
