"""A folder as bytes and back, for machines that share no file system."""

import io
import os
import shutil
import tempfile
import zipfile
from pathlib import Path


def pack(folder: Path) -> bytes:
    """All files below the folder as a ZIP archive, which holds a checksum per file and so reveals damage."""
    buffer = io.BytesIO()
    with zipfile.ZipFile(buffer, "w", zipfile.ZIP_STORED) as archive:
        for path in sorted(folder.rglob("*")):
            if path.is_file():
                archive.write(path, path.relative_to(folder).as_posix())
    return buffer.getvalue()


def unpack(data: bytes, folder: Path) -> None:
    """Replace the folder by the archive's contents. A damaged archive raises an error and changes nothing."""
    folder.parent.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(prefix=".unpack-", dir=folder.parent) as name:
        fresh = Path(name) / "fresh"
        fresh.mkdir()
        with zipfile.ZipFile(io.BytesIO(data)) as archive:
            archive.extractall(fresh)
        if folder.exists():
            shutil.move(folder, Path(name) / "old")
        os.replace(fresh, folder)
