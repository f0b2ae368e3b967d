"""Files are written whole or not at all."""

import os
import tempfile
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

from qccf.core.errors import QccfError

LOCK = ".lock"
"""The file that a process locks while it works in a folder. It stays; the lock ends with its process."""


def require_writable(folder: Path) -> None:
    """Make the folder now, so that a run does not end with nowhere to write to."""
    try:
        folder.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryFile(dir=folder):
            pass
    except OSError as error:
        raise QccfError(f"{folder} cannot be written to: {error.strerror}; name another folder.") from None


@contextmanager
def alone_in(folder: Path) -> Iterator[None]:
    """Hold the folder's lock; refuse a folder that another process holds. The lock ends with its process."""
    from filelock import FileLock, Timeout

    require_writable(folder)
    lock = FileLock(folder / LOCK, blocking=False)
    try:
        lock.acquire()
    except Timeout:
        raise QccfError(f"another process works in {folder}: stop it, or name another folder.") from None
    try:
        yield
    finally:
        lock.release()


def write_whole(path: Path, write: Callable[[Path], None]) -> None:
    """Let `write` fill a temporary file beside `path`, then put it in place in one step."""
    path.parent.mkdir(parents=True, exist_ok=True)
    handle, name = tempfile.mkstemp(prefix=f".{path.stem}-", suffix=path.suffix, dir=path.parent)
    os.close(handle)
    temporary = Path(name)
    try:
        write(temporary)
        with temporary.open("rb") as written:
            os.fsync(written.fileno())
        temporary.chmod(0o644)
        temporary.replace(path)
    except BaseException:
        temporary.unlink(missing_ok=True)
        raise


def write_text_whole(path: Path, text: str) -> None:
    """Write UTF-8 text, whole or not at all."""

    def write(temporary: Path) -> None:
        temporary.write_text(text, encoding="utf-8")

    write_whole(path, write)
