"""Files that are written whole, and folders of one writer."""

import errno
import os
from pathlib import Path

import pytest

from qccf.core import files
from qccf.core.errors import FileError
from qccf.core.files import (
    PART,
    alone_in,
    opened_regular,
    read_inside,
    require_regular,
    write_text_whole,
    write_whole,
)


def test_a_full_disk_is_one_sentence_and_leaves_the_file_before(tmp_path: Path) -> None:
    path = tmp_path / "a.txt"
    write_text_whole(path, "before")

    def full(temporary: Path) -> None:
        temporary.write_text("half")
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    with pytest.raises(FileError, match=r"a\.txt cannot be written: No space left on device; .*run the command again"):
        write_whole(path, full)
    assert path.read_text() == "before"
    assert [one.name for one in tmp_path.iterdir()] == ["a.txt"]


def test_a_rename_is_synced_after_the_file(tmp_path: Path, monkeypatch) -> None:
    """The file first, then the name in its folder, then those of the folders that were made for it."""
    synced: list[str] = []
    sync = os.fsync

    def note(handle: int) -> None:
        synced.append(os.path.relpath(os.readlink(f"/proc/self/fd/{handle}"), tmp_path))
        sync(handle)

    monkeypatch.setattr(files.os, "fsync", note)
    write_text_whole(tmp_path / "new" / "below" / "a.txt", "text")
    made, content = synced[:2], synced[2:]
    assert made == ["new", "."]
    assert content[0].startswith(f"new/below/{PART}a-")
    assert content[1:] == ["new/below"]


def test_the_lock_removes_what_a_killed_writer_left_and_nothing_else(tmp_path: Path) -> None:
    for name in (f"{PART}rounds-abc.parquet", f"checkpoints/{PART}round-1.npz", ".mine", "part-1", f"runs/{PART}x"):
        (tmp_path / name).parent.mkdir(exist_ok=True)
        (tmp_path / name).write_text("x")
    with alone_in(tmp_path, "checkpoints"):
        left = sorted(str(path.relative_to(tmp_path)) for path in tmp_path.rglob("*") if path.is_file())
    assert left == [".lock", ".mine", "part-1", f"runs/{PART}x"]


@pytest.mark.parametrize("target", ["../outside.txt", "/etc/passwd", "a", "loop"])
def test_a_link_out_of_the_folder_is_not_followed(tmp_path: Path, target: str) -> None:
    folder = tmp_path / "folder"
    folder.mkdir()
    (tmp_path / "outside.txt").write_text("x")
    (folder / "a").write_text("inside")
    link = folder / ("loop" if target == "loop" else "link")
    link.symlink_to(target)
    if target == "a":
        assert read_inside(link, folder) == b"inside"
        return
    with pytest.raises(FileError, match=r"leads out of|cannot be read"):
        read_inside(link, folder)


def test_what_is_not_a_file_is_not_read(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "pipe")
    (tmp_path / "folder").mkdir()
    for name, sentence in (("pipe", "is not a file"), ("folder", "is not a file"), ("none", "cannot be read: No such")):
        with pytest.raises(FileError, match=sentence):
            read_inside(tmp_path / name, tmp_path)


@pytest.mark.skipif(os.geteuid() == 0, reason="root may write everywhere")
def test_a_folder_without_permission_is_one_sentence(tmp_path: Path) -> None:
    tmp_path.chmod(0o500)
    with pytest.raises(FileError, match="cannot be written: Permission denied"):
        write_text_whole(tmp_path / "a.txt", "x")
    with pytest.raises(FileError, match="cannot be written to: Permission denied"), alone_in(tmp_path):
        pass
    tmp_path.chmod(0o700)


def test_only_a_regular_file_is_opened(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("text")
    (tmp_path / "link").symlink_to(tmp_path / "file")
    os.mkfifo(tmp_path / "pipe")
    for name in ("file", "link"):
        with opened_regular(tmp_path / name) as file:
            assert file.read() == b"text"
    for path in (tmp_path, tmp_path / "pipe", Path("/dev/zero")):
        with pytest.raises(OSError, match="it is not a regular file"), opened_regular(path):
            pass
        with pytest.raises(OSError, match="it is not a regular file"):
            require_regular(path)


def test_a_pipe_that_takes_the_place_of_a_file_does_not_block(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    os.mkfifo(tmp_path / "pipe")
    monkeypatch.setattr(files, "require_regular", lambda _: None)
    with pytest.raises(OSError, match="it is not a regular file"), opened_regular(tmp_path / "pipe"):
        pass
