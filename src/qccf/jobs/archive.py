"""A folder as bytes and back, for machines that share no file system."""

import io
import os
import shutil
import tempfile
import zipfile
from pathlib import Path


def pack(folder: Path) -> bytes:
    """Every file below the folder. A ZIP carries a checksum for each, so that damage on the way is noticed."""
    buffer = io.BytesIO()
    with zipfile.ZipFile(buffer, "w", zipfile.ZIP_STORED) as parcel:
        for path in sorted(folder.rglob("*")):
            if path.is_file():
                parcel.write(path, path.relative_to(folder).as_posix())
    return buffer.getvalue()


def unpack(parcel: bytes, folder: Path) -> None:
    """Put what was packed in the place of the folder: all of it or, if it is damaged, nothing."""
    folder.parent.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(prefix=".parcel-", dir=folder.parent) as name:
        fresh = Path(name) / "fresh"
        fresh.mkdir()
        with zipfile.ZipFile(io.BytesIO(parcel)) as content:
            content.extractall(fresh)
        if folder.exists():
            shutil.move(folder, Path(name) / "old")
        os.replace(fresh, folder)
