"""Files are written whole or not at all, by one process at a time, and read only where they belong."""

import errno
import fcntl
import os
import stat
import tempfile
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from io import BufferedReader
from pathlib import Path

from qccf.core.errors import FileError

LOCK = ".lock"
"""The file that a process locks while it works in a folder. It stays; the lock ends with its process."""

PART = ".part-"
"""How the name of a file begins that is not yet whole. One that a killed process left is removed with the next lock."""


NOT_REGULAR = "it is not a regular file"

ASKED_S = 0.1
"""Longer than `is_held` takes to ask, for which it holds the lock itself."""


def require_writable(folder: Path) -> None:
    """Make the folder now, so that a run does not end with nowhere to write to."""
    try:
        _make(folder)
        with tempfile.TemporaryFile(dir=folder):
            pass
    except OSError as error:
        raise FileError(f"{folder} cannot be written to: {error.strerror}; name another folder.") from None


@contextmanager
def alone_in(folder: Path, *below: str, wait_s: float = 0.0) -> Iterator[None]:
    """Hold the folder's lock; refuse a folder that another process holds after `wait_s`. It ends with its process.

    Parts of files that a killed process has left here, or in the folders `below`, are removed.
    """
    from filelock import FileLock, Timeout

    require_writable(folder)
    if (folder / LOCK).is_symlink():
        raise FileError(f"{folder / LOCK} is a link: remove it, or name another folder.")
    lock = FileLock(folder / LOCK, timeout=max(wait_s, ASKED_S))
    try:
        lock.acquire()
    except Timeout:
        raise FileError(f"another process works in {folder}: stop it, or name another folder.") from None
    except OSError as error:
        raise FileError(f"{folder / LOCK} cannot be locked: {error.strerror}; name another folder.") from None
    try:
        for one in (folder, *(folder / name for name in below)):
            _remove_parts(one)
        yield
    finally:
        lock.release()


def is_held(folder: Path) -> bool:
    """Whether a process of this machine holds the folder's lock; it is not waited for."""
    try:
        handle = os.open(folder / LOCK, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK)
    except OSError:
        return False
    try:
        fcntl.flock(handle, fcntl.LOCK_SH | fcntl.LOCK_NB)
    except BlockingIOError:
        return True
    except OSError:
        return False
    finally:
        os.close(handle)
    return False


@contextmanager
def one_at_a_time(folder: Path) -> Iterator[None]:
    """Wait until no other process writes to a folder of figures, which takes seconds, and hold it."""
    require_writable(folder)
    handle = os.open(folder, os.O_RDONLY)
    try:
        fcntl.flock(handle, fcntl.LOCK_EX)
        _remove_parts(folder)
        yield
    finally:
        os.close(handle)


def _remove_parts(folder: Path) -> None:
    for part in () if folder.is_symlink() else folder.glob(f"{PART}*"):
        with suppress(OSError):
            part.unlink()


def write_whole(path: Path, write: Callable[[Path], None]) -> None:
    """Let `write` fill a temporary file beside `path`, then put it in place in one step that survives a crash."""
    temporary = None
    try:
        _make(path.parent)
        handle, name = tempfile.mkstemp(prefix=f"{PART}{path.stem}-", suffix=path.suffix, dir=path.parent)
        os.close(handle)
        temporary = Path(name)
        write(temporary)
        with temporary.open("rb") as written:
            os.fsync(written.fileno())
        temporary.chmod(0o644)
        temporary.replace(path)
        _sync(path.parent)
    except OSError as error:
        reason = error.strerror or str(error)
        raise FileError(
            f"{path} cannot be written: {reason}; the file before it, if there was one, is unchanged: make room or "
            "allow it, and run the command again."
        ) from None
    finally:
        if temporary is not None:
            with suppress(OSError):
                temporary.unlink(missing_ok=True)


def write_text_whole(path: Path, text: str) -> None:
    """Write UTF-8 text, whole or not at all."""

    def write(temporary: Path) -> None:
        temporary.write_text(text, encoding="utf-8")

    write_whole(path, write)


def require_regular(path: Path) -> None:
    """Raise an `OSError` for a pipe, device or folder: reading it may block, never end, or change something."""
    if not stat.S_ISREG(path.stat().st_mode):
        raise OSError(errno.EINVAL, NOT_REGULAR)


@contextmanager
def opened_regular(path: Path) -> Iterator[BufferedReader]:
    """A file, open to be read, with the refusal of `require_regular`."""
    require_regular(path)
    with os.fdopen(os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC), "rb") as file:
        if not stat.S_ISREG(os.fstat(file.fileno()).st_mode):  # it has changed since
            raise OSError(errno.EINVAL, NOT_REGULAR)
        yield file


@contextmanager
def opened_inside(path: Path, folder: Path) -> Iterator[BufferedReader]:
    """A file of a folder, open to be read, with the refusals of `read_inside`."""
    try:
        require_inside(path, folder)
        if not stat.S_ISREG(path.stat().st_mode):
            raise FileError(f"{path} is not a file: remove it.")
        with opened_regular(path) as file:
            yield file
    except OSError as error:
        raise FileError(f"{path} cannot be read: {error.strerror or error}.") from None


def read_inside(path: Path, folder: Path) -> bytes:
    """The content of a file of a folder. Refuses links that lead out of the folder, and what is not a file.

    A folder may come from somebody else, and its links may lead to any file of this machine.
    """
    with opened_inside(path, folder) as file:
        return file.read()


def read_text_inside(path: Path, folder: Path) -> str:
    """The same as text."""
    try:
        return read_inside(path, folder).decode()
    except UnicodeDecodeError:
        raise FileError(f"{path} is not text in UTF-8: write it again, or remove it.") from None


def require_inside(path: Path, folder: Path) -> None:
    """Refuse a path that leads out of a folder through links or `..`; where it leads need not exist."""
    whole = folder.resolve()
    try:
        real = path.resolve()
    except (OSError, RuntimeError):  # a link to itself
        real = Path("/")
    if real != whole and whole not in real.parents:
        raise FileError(f"{path} leads out of {folder}: replace the link with what it names, or leave it out.")


def leads_out(path: Path, folder: Path) -> bool:
    """Whether a path leads out of a folder."""
    try:
        require_inside(path, folder)
    except FileError:
        return True
    return False


def _make(folder: Path) -> None:
    """Make a folder and those above it; a crash does not lose them."""
    missing = [one for one in (folder, *folder.parents) if not one.exists()]
    folder.mkdir(parents=True, exist_ok=True)
    for one in missing:
        _sync(one.parent)


def _sync(folder: Path) -> None:
    """Let the names in a folder survive a crash. Some file systems cannot, which is no reason to stop."""
    handle = os.open(folder, os.O_RDONLY)
    try:
        with suppress(OSError):
            os.fsync(handle)
    finally:
        os.close(handle)
