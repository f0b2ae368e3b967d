"""A folder as bytes and back."""

import io
import zipfile
from pathlib import Path

import pytest

from qccf.jobs.archive import pack, unpack


def test_the_archive_holds_the_folder_and_damage_is_noticed(tmp_path: Path) -> None:
    folder = tmp_path / "folder"
    (folder / "deep").mkdir(parents=True)
    (folder / "deep" / "a.bin").write_bytes(bytes(range(256)) * 40)
    (folder / "b.txt").write_text("b")
    data = pack(folder)
    there = tmp_path / "there"
    there.mkdir()
    (there / "old.txt").write_text("old")
    unpack(data, there)
    files = {path.relative_to(there).as_posix(): path.read_bytes() for path in there.rglob("*") if path.is_file()}
    assert files == {"deep/a.bin": bytes(range(256)) * 40, "b.txt": b"b"}
    damaged = bytearray(data)
    damaged[2000] ^= 1
    for broken in (bytes(damaged), data[:-30]):
        with pytest.raises(zipfile.BadZipFile):
            unpack(broken, there)
    assert sorted(path.name for path in there.iterdir()) == ["b.txt", "deep"]
    assert sorted(path.name for path in tmp_path.iterdir()) == ["folder", "there"]
    outside = io.BytesIO()
    with zipfile.ZipFile(outside, "w") as content:
        content.writestr("../outside.txt", "x")
    unpack(outside.getvalue(), there)
    assert not (tmp_path / "outside.txt").exists()
