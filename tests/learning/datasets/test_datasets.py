"""Datasets in all their file formats, in miniature, and many kinds of broken files."""

import gzip
import io
import struct
import tracemalloc
import zipfile
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from qccf.core.errors import ConfigError
from qccf.learning.datasets import (
    DataError,
    Dataset,
    data_folder,
    dataset_source,
    load_dataset,
    mnist_files,
    npz,
    require_dataset,
)
from qccf.learning.datasets.base import CHARACTERS, checked
from qccf.learning.datasets.idx import idx_sha256, read_idx
from qccf.learning.datasets.splits import held_out

SHARED = Path(__file__).parents[4] / "shared" / "data"
RNG = np.random.default_rng(5)


def idx_bytes(values: np.ndarray) -> bytes:
    return bytes([0, 0, 8, values.ndim]) + struct.pack(f">{values.ndim}I", *values.shape) + values.tobytes()


def put(path: Path, content: bytes) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(gzip.compress(content) if path.suffix == ".gz" else content)
    return path


def grey(count: int) -> np.ndarray:
    return RNG.integers(0, 256, (count, 28, 28), dtype=np.uint8)


def save_npz(path: Path, **arrays: np.ndarray) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    np.savez_compressed(path, **arrays)
    return path


# --- checks of a dataset ------------------------------------------------------------------------------------------


def tiny(**changes: object) -> Dataset:
    labels = np.array([0, 1, 2], dtype=np.int64)
    base = Dataset("tiny", grey(3), labels, np.array([0, 1, 0]), grey(3), labels, ("a", "b", "c"), True, "made here")
    return replace(base, **changes)


@pytest.mark.parametrize(
    ("changes", "complaint"),
    [
        ({"train_images": np.zeros((3, 28, 28), np.float32)}, "float32"),
        ({"train_images": np.zeros((3, 784), np.uint8)}, "shape"),
        ({"train_images": np.zeros((3, 28, 28, 4), np.uint8)}, "shape"),
        ({"train_images": np.zeros((3, 32, 32), np.uint8)}, "32, 32"),
        ({"test_images": np.zeros((2, 28, 28), np.uint8)}, "2 test images but 3 labels"),
        ({"train_labels": np.array([0, 1, 2], np.int32)}, "int32"),
        ({"train_labels": np.array([0, 1, 3])}, "0 to 3, outside 0..2"),
        ({"test_labels": np.array([-1, 1, 2])}, "-1 to 2"),
        ({"test_images": np.zeros((0, 28, 28), np.uint8), "test_labels": np.zeros(0, np.int64)}, "above 0"),
        ({"train_writers": np.array([0, 2, 2])}, "without gaps"),
        ({"train_writers": np.array([0, 1])}, "give one writer per sample"),
        ({"class_names": ("a", "b", "b")}, "repeat"),
    ],
)
def test_an_invalid_dataset_is_refused(changes, complaint):
    with pytest.raises(DataError, match=complaint):
        checked(tiny(**changes))


def test_a_valid_dataset_passes():
    valid = tiny()
    assert checked(valid) is valid
    assert valid.num_classes == 3
    assert checked(tiny(train_writers=None)).train_writers is None


def test_data_folder_is_the_argument_else_the_variable_else_the_cache(monkeypatch, tmp_path):
    monkeypatch.delenv("QCCF_DATA", raising=False)
    monkeypatch.setenv("HOME", str(tmp_path))
    monkeypatch.setenv("XDG_CACHE_HOME", "relative")
    assert data_folder(None) == tmp_path / ".cache/qccf/data"
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    assert data_folder(None) == tmp_path / "cache/qccf/data"
    monkeypatch.setenv("QCCF_DATA", "~/mine")
    assert data_folder(None) == tmp_path / "mine"
    assert data_folder(Path("/named")) == Path("/named")


def test_unknown_dataset_names_the_known_ones(tmp_path):
    with pytest.raises(ConfigError, match=r"dataset 'letters' is not one of .*emnist, femnist, mnist, fashion-mnist"):
        load_dataset("letters", tmp_path)


def test_a_users_own_dataset_is_loaded_and_checked(tmp_path):
    name = "tests.helpers.tiny:TinySource"
    assert load_dataset(name, tmp_path).num_classes == 10
    require_dataset(name, tmp_path)
    with pytest.raises(ConfigError, match="has no load, no fetch, no check"):
        load_dataset("tests.helpers.tiny:Tiny", tmp_path)


@pytest.mark.parametrize("name", ["emnist", "femnist", "mnist", "fashion-mnist", "cifar10"])
def test_the_error_for_an_empty_folder_says_where_to_put_the_files(name, tmp_path):
    assert dataset_source(name).name == name
    assert dataset_source(name).description
    for read in (load_dataset, require_dataset):
        with pytest.raises(DataError, match=str(tmp_path / name)):
            read(name, tmp_path)


# --- idx ----------------------------------------------------------------------------------------------------------


def put_mnist(folder: Path, suffix: str) -> tuple[np.ndarray, ...]:
    arrays = (grey(5), np.array([3, 1, 4, 1, 5], np.uint8), grey(2), np.array([9, 0], np.uint8))
    for file, values in zip(mnist_files.MNIST_FILES, arrays, strict=True):
        put(folder / (file.name + suffix), idx_bytes(values))
    return arrays


@pytest.mark.parametrize("name", ["mnist", "fashion-mnist"])
@pytest.mark.parametrize("suffix", ["", ".gz"])
@pytest.mark.parametrize("own_folder", [True, False])
def test_idx_files(name, suffix, own_folder, tmp_path):
    arrays = put_mnist(tmp_path / name if own_folder else tmp_path, suffix)
    dataset = load_dataset(name, tmp_path)
    loaded = (dataset.train_images, dataset.train_labels, dataset.test_images, dataset.test_labels)
    for got, wanted in zip(loaded, arrays, strict=True):
        np.testing.assert_array_equal(got, wanted)
    assert dataset.train_images.flags.writeable  # torch warns about read-only arrays
    assert (dataset.name, dataset.num_classes, dataset.train_writers, dataset.synthetic) == (name, 10, None, False)
    assert dataset.source.startswith({"mnist": "MNIST", "fashion-mnist": "Fashion-MNIST"}[name])
    lines = dataset_source(name).check(tmp_path)
    assert [line.split(": ")[1] for line in lines] == [
        "5 × 28 × 28; checksum DIFFERS", "5; checksum DIFFERS", "2 × 28 × 28; checksum DIFFERS", "2; checksum DIFFERS",
    ]  # fmt: skip


def test_the_checksum_is_that_of_the_unpacked_file(tmp_path, monkeypatch):
    arrays = put_mnist(tmp_path, ".gz")
    files = tuple(replace(f, sha256=idx_sha256(v)) for f, v in zip(mnist_files.MNIST_FILES, arrays, strict=True))
    monkeypatch.setattr(mnist_files, "MNIST_FILES", files)
    assert all(line.endswith("checksum matches") for line in dataset_source("mnist").check(tmp_path))
    with pytest.raises(DataError, match="contains MNIST, not fashion-mnist"):  # both have the same file names
        load_dataset("fashion-mnist", tmp_path)


IMAGES = idx_bytes(grey(3))


@pytest.mark.parametrize(
    ("content", "complaint"),
    [
        (b"", "starts with nothing, but idx bytes with 3 axes start with 00000803"),
        (b"\x1f\x8b\x08\x00" + IMAGES[4:], "starts with 1f8b0800"),
        (idx_bytes(np.arange(3, dtype=np.uint8)), "starts with 00000801"),
        (IMAGES[:9], "within its header after 9 bytes"),
        (IMAGES[:-1], "states 2352 bytes of data but 2351"),
        (IMAGES + b"x", "states 2352 bytes of data but more follow"),
        (bytes([0, 0, 8, 3]) + struct.pack(">3I", 2**32 - 1, 28, 28), "beyond 2000000 samples"),
        (bytes([0, 0, 8, 3]) + struct.pack(">3I", 1, 2**16, 2**16), "1024 pixels per side"),
        (bytes([0, 0, 8, 3]) + struct.pack(">3I", 2_000_000, 1024, 1024), "bytes; download"),
        (bytes([0, 0, 8, 3]) + struct.pack(">3I", 3, 0, 28), "pixels per side"),
    ],
)
@pytest.mark.parametrize("suffix", ["", ".gz"])
def test_a_broken_idx_file_is_refused(content, complaint, suffix, tmp_path):
    with pytest.raises(DataError, match=complaint):
        read_idx(put(tmp_path / f"images{suffix}", content), 3)


def test_too_many_labels_are_refused(tmp_path):
    with pytest.raises(DataError, match=r"\(2000001,\), beyond 2000000 samples"):
        read_idx(put(tmp_path / "labels", bytes([0, 0, 8, 1]) + struct.pack(">I", 2_000_001)), 1)


def test_a_broken_or_missing_gzip_is_refused(tmp_path):
    whole = gzip.compress(IMAGES)
    for content in (whole[:-9], IMAGES, whole[:-8] + b"\0" * 8):
        (tmp_path / "images.gz").write_bytes(content)
        with pytest.raises(DataError, match="gzip data is broken"):
            read_idx(tmp_path / "images.gz", 3)
    with pytest.raises(DataError, match="No such file"):
        read_idx(tmp_path / "absent", 3)


def test_a_gzip_bomb_is_not_unpacked(tmp_path):
    path = put(tmp_path / "images.gz", idx_bytes(grey(1)) + bytes(100_000_000))
    tracemalloc.start()
    with pytest.raises(DataError, match="states 784 bytes of data but more follow"):
        read_idx(path, 3)
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert peak < 5_000_000


def test_labels_that_do_not_fit_the_images_are_refused(tmp_path):
    put_mnist(tmp_path, "")
    put(tmp_path / "t10k-labels-idx1-ubyte", idx_bytes(np.array([9, 0, 1], np.uint8)))
    with pytest.raises(DataError, match="2 test images but 3 labels"):
        load_dataset("mnist", tmp_path)
    put(tmp_path / "t10k-labels-idx1-ubyte", idx_bytes(np.array([9, 10], np.uint8)))
    with pytest.raises(DataError, match=r"9 to 10, outside 0\.\.9"):
        load_dataset("mnist", tmp_path)


# --- npz ----------------------------------------------------------------------------------------------------------


def writers_arrays() -> dict[str, np.ndarray]:
    return {
        "x_train": grey(4), "y_train": np.array([1, 2, 3, 4], np.uint8),
        "writer_train": np.array([2154, 7, 2154, 900], np.int16), "hsf_train": np.zeros(4, np.uint8),
        "x_test": grey(2), "y_test": np.array([5, 6], np.uint8),
        "writer_test": np.array([1, 1], np.int16), "hsf_test": np.zeros(2, np.uint8),
    }  # fmt: skip


def test_mnist_with_writers(tmp_path):
    arrays = writers_arrays()
    save_npz(tmp_path / "mnist_writers.npz", **arrays)
    put_mnist(tmp_path / "mnist", "")  # the archive with writers is preferred even to files in the dataset's own folder
    dataset = load_dataset("mnist", tmp_path)
    np.testing.assert_array_equal(dataset.train_images, arrays["x_train"])
    np.testing.assert_array_equal(dataset.train_writers, [2, 0, 2, 1])
    np.testing.assert_array_equal(dataset.train_labels, [1, 2, 3, 4])
    np.testing.assert_array_equal(dataset.test_images, arrays["x_test"])
    np.testing.assert_array_equal(dataset.test_labels, [5, 6])
    assert "writer" in dataset.source
    (line,) = dataset_source("mnist").check(tmp_path)
    assert line.endswith("4 + 2 digits, 3 training writers; checksum DIFFERS")


def rewrite_member(path: Path, member: str, content: bytes) -> None:
    with zipfile.ZipFile(path) as archive:
        members = {name: archive.read(name) for name in archive.namelist()} | {member: content}
    with zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED) as archive:
        for name, data in members.items():
            archive.writestr(name, data)


def test_a_broken_npz_is_refused(tmp_path, monkeypatch):
    path = tmp_path / "mnist_writers.npz"

    def refused(complaint: str) -> None:
        with pytest.raises(DataError, match=complaint):
            load_dataset("mnist", tmp_path)

    arrays = writers_arrays()
    save_npz(path, **{key: value for key, value in arrays.items() if key != "writer_train"})
    refused("has no 'writer_train'")
    save_npz(path, **arrays | {"y_train": np.array([print, len], dtype=object)})
    refused("y_train contains object, not integers")
    save_npz(path, **arrays | {"x_train": np.zeros((4, 28, 28), np.int16)})
    refused("images are int16")
    save_npz(path, **arrays | {"y_test": np.array(["5", "6"])})
    refused("labels or writers are <U1")
    save_npz(path, **arrays)
    whole = path.read_bytes()
    path.write_bytes(whole[: len(whole) // 2])
    refused("not a complete npz")
    path.write_bytes(whole)
    header = io.BytesIO()
    np.lib.format.write_array_header_1_0(header, {"descr": "|u1", "fortran_order": False, "shape": (10**9, 28, 28)})
    rewrite_member(path, "x_train.npy", header.getvalue() + bytes(784))
    refused("x_train states 784000000000 bytes but has 784")
    rewrite_member(path, "x_train.npy", b"\x93NUMPY\x09\x00" + header.getvalue()[8:])
    refused("unknown npy version|not a complete npz")
    monkeypatch.setattr(npz, "_BYTES_MAX", 100)
    path.write_bytes(whole)
    refused("bytes of arrays, above the limit of 100")
    path.unlink()
    with pytest.raises(DataError, match="No such file"):
        npz.read_npz(path, "x")


# --- EMNIST -------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("suffix", ["", ".gz"])
@pytest.mark.parametrize("place", ["emnist", "emnist/gzip", "."])
def test_emnist_idx_images_are_transposed(suffix, place, tmp_path):
    arrays = {"train-images-idx3": grey(3), "train-labels-idx1": np.array([0, 61, 35], np.uint8),
              "test-images-idx3": grey(2), "test-labels-idx1": np.array([10, 36], np.uint8)}  # fmt: skip
    for part, values in arrays.items():
        put(tmp_path / place / f"emnist-byclass-{part}-ubyte{suffix}", idx_bytes(values))
    dataset = load_dataset("emnist", tmp_path)
    for image, stored in zip(dataset.train_images, arrays["train-images-idx3"], strict=True):
        np.testing.assert_array_equal(image, stored.T)
    np.testing.assert_array_equal(dataset.test_images[1], arrays["test-images-idx3"][1].T)
    assert [dataset.class_names[label] for label in dataset.train_labels] == ["0", "z", "Z"]
    assert [dataset.class_names[label] for label in dataset.test_labels] == ["A", "a"]
    assert dataset.train_writers is None
    lines = dataset_source("emnist").check(tmp_path)
    assert len(lines) == 4
    assert "3 × 28 × 28; sha256" in lines[0]


def test_emnist_npz_holds_out_a_seventh_of_each_class(tmp_path):
    labels = np.repeat([0, 30, 61], [70, 7, 1]).astype(np.uint8)
    images = np.arange(78, dtype=np.uint8)[:, None, None] * np.ones((28, 28), np.uint8)
    save_npz(tmp_path / "emnist_byclass_test116k.npz", x=images, y=labels, classes=np.array(CHARACTERS))
    first, again, other = (load_dataset("emnist", tmp_path, seed=seed) for seed in (1, 1, 2))
    assert np.bincount(first.test_labels, minlength=62)[[0, 30, 61]].tolist() == [10, 1, 0]
    assert np.bincount(first.train_labels, minlength=62)[[0, 30, 61]].tolist() == [60, 6, 1]
    marks = np.concatenate([first.train_images[:, 0, 0], first.test_images[:, 0, 0]])
    assert sorted(marks.tolist()) == list(range(78))  # each sample in exactly one part
    assert (labels[first.test_images[:, 0, 0]] == first.test_labels).all()
    np.testing.assert_array_equal(first.test_images, again.test_images)
    assert not np.array_equal(first.test_images, other.test_images)
    assert "seed 1" in first.source
    assert dataset_source("emnist").check(tmp_path)[0].endswith("78 characters without a split; checksum DIFFERS")


def test_emnist_npz_with_other_classes_is_refused(tmp_path):
    path = tmp_path / "emnist/emnist_byclass_test116k.npz"
    save_npz(path, x=grey(2), y=np.array([0, 1]), classes=np.array(CHARACTERS[::-1]))
    with pytest.raises(DataError, match="not 0-9 A-Z a-z"):
        load_dataset("emnist", tmp_path)
    save_npz(path, x=grey(3), y=np.array([0, 1]), classes=np.array(CHARACTERS))
    with pytest.raises(DataError, match="3 images but 2 labels"):
        load_dataset("emnist", tmp_path)


def test_held_out_leaves_samples_in_both_parts():
    groups = np.array([5, 0, 0, 5, 5, 9, 0])
    in_test = held_out(groups, 0.1, seed=3, name="x")
    assert in_test[groups == 9].tolist() == [False]
    assert in_test[groups == 0].sum() == in_test[groups == 5].sum() == 1


# --- the real files, if they are present --------------------------------------------------------------------------

REAL = {
    "mnist_writers.npz": ("mnist", 60_000, 10_000, 539),
    "emnist_byclass_test116k.npz": ("emnist", 99_705, 16_618, None),
}


@pytest.mark.parametrize("file", [file for file in REAL if (SHARED / file).is_file()])
def test_the_real_files(file):
    name, num_train, num_test, num_writers = REAL[file]
    dataset = load_dataset(name, SHARED)
    assert (len(dataset.train_labels), len(dataset.test_labels)) == (num_train, num_test)
    assert (None if dataset.train_writers is None else dataset.train_writers.max() + 1) == num_writers
    assert np.unique(dataset.test_labels).size == dataset.num_classes
    assert dataset.train_images[:, 0, 0].mean() < 1  # bright ink on 0
    assert dataset_source(name).check(SHARED)[0].endswith("checksum matches")
