"""Reader for one parquet file of FEMNIST with the columns of flwrlabs/femnist on the Hugging Face hub."""

import io
import json
from importlib import import_module
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from qccf.core.errors import DataError
from qccf.learning.datasets.base import CHARACTERS, SAMPLES_MAX

_SIDE = 28
_COLUMNS = ("image", "writer_id", "character")
_PICTURE_BYTES_MAX = 64 * 1024


def read_parquet(path: Path) -> tuple[NDArray[np.uint8], NDArray[np.int64], NDArray[np.str_]]:
    """Images as bright ink on 0, labels, and the writer of each sample."""
    # import_module, because pyarrow is optional and has no types.
    try:
        arrow, parquet = import_module("pyarrow"), import_module("pyarrow.parquet")
    except ImportError as error:
        raise DataError("pyarrow is not installed, but parquet files need it: pip install pyarrow.") from error
    try:
        with parquet.ParquetFile(path) as file:
            return _read_rows(path, file)
    except (arrow.ArrowException, OSError) as error:
        raise DataError(f"{path}: is not a complete parquet file ({error}); download it again.") from error


def _read_rows(path: Path, file: Any) -> tuple[NDArray[np.uint8], NDArray[np.int64], NDArray[np.str_]]:
    """All rows, read in blocks, so that only the decoded images stay in memory."""
    num_rows = file.metadata.num_rows
    if num_rows > SAMPLES_MAX:
        raise DataError(f"{path}: states {num_rows} rows, above the limit of {SAMPLES_MAX}; download it again.")
    if missing := [name for name in _COLUMNS if name not in file.schema_arrow.names]:
        raise DataError(f"{path}: lacks the column {', '.join(missing)}; it must have {', '.join(_COLUMNS)}.")
    classes = _class_order(path, file.schema_arrow.metadata)
    images, labels, writers = [], [], []
    for block in file.iter_batches(batch_size=4096, columns=list(_COLUMNS)):
        columns = block.to_pydict()
        images.append(np.stack([_decode(path, picture) for picture in columns["image"]]))
        labels += columns["character"]
        writers += columns["writer_id"]
    if not all(type(label) is int and 0 <= label < len(CHARACTERS) for label in labels):
        raise DataError(f"{path}: a 'character' is outside 0..{len(CHARACTERS) - 1}; download it again.")
    if not all(isinstance(writer, str) for writer in writers):
        raise DataError(f"{path}: a 'writer_id' is not text; download it again.")
    pictures = np.concatenate(images) if images else np.empty((0, _SIDE, _SIDE), np.uint8)
    return _bright_ink(pictures), classes[np.array(labels, dtype=np.int64)], np.array(writers, dtype=np.str_)


def _class_order(path: Path, metadata: dict[bytes, bytes] | None) -> NDArray[np.int64]:
    """Our class number of each class of the file. Without class names in the file, both orders are the same."""
    try:
        features = json.loads((metadata or {})[b"huggingface"])["info"]["features"]
        names = features["character"]["names"]
    except (KeyError, TypeError, ValueError, RecursionError):
        return np.arange(len(CHARACTERS))
    if not isinstance(names, list) or sorted(map(str, names)) != sorted(CHARACTERS):
        raise DataError(f"{path}: names other classes than the 62 characters 0-9 A-Z a-z; it is not FEMNIST.")
    return np.array([CHARACTERS.index(str(name)) for name in names], dtype=np.int64)


def _decode(path: Path, picture: object) -> NDArray[np.uint8]:
    """One PNG as grey values. Its stated size is checked before it is decoded."""
    try:
        from PIL import Image
    except ImportError as error:
        raise DataError("Pillow is not installed, but FEMNIST's parquet files need it: pip install pillow.") from error
    content = picture.get("bytes") if isinstance(picture, dict) else None
    if not isinstance(content, bytes) or len(content) > _PICTURE_BYTES_MAX:
        raise DataError(f"{path}: an 'image' has no PNG 'bytes' below {_PICTURE_BYTES_MAX}; download it again.")
    try:
        with Image.open(io.BytesIO(content), formats=("PNG",)) as opened:
            if opened.size != (_SIDE, _SIDE):
                raise DataError(f"{path}: an image is {opened.size}, not {(_SIDE, _SIDE)}; download it again.")
            return np.asarray(opened.convert("L"))
    except (OSError, ValueError, SyntaxError, Image.DecompressionBombError) as error:
        raise DataError(f"{path}: an image is not a complete PNG ({error}); download it again.") from error


def _bright_ink(pictures: NDArray[np.uint8]) -> NDArray[np.uint8]:
    """Pictures as bright ink on 0. If the outermost pixels are mostly bright, the pictures are inverted."""
    if len(pictures) == 0:
        return pictures
    frame = np.ones((_SIDE, _SIDE), dtype=np.bool_)
    frame[1:-1, 1:-1] = False
    return 255 - pictures if np.median(pictures[:, frame]) > 127 else pictures
