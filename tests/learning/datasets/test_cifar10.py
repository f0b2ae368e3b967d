"""CIFAR-10 in its two official formats, in miniature; pickles that would run code are refused."""

import os
import pickle
import struct
from pathlib import Path

import numpy as np
import pytest

from qccf.learning.datasets import DataError, dataset_source, load_dataset
from qccf.learning.datasets.cifar10_pickle import read_python_batch

RNG = np.random.default_rng(5)


def put(path: Path, content: bytes) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(content)


BATCHES = [*(f"data_batch_{number}" for number in range(1, 6)), "test_batch"]


def photographs(count: int) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    images = RNG.integers(0, 256, (count, 32, 32, 3), dtype=np.uint8)
    return images, images.transpose(0, 3, 1, 2).reshape(count, 3072), RNG.integers(0, 10, count)


def python2_pickle(rows: np.ndarray, labels: np.ndarray) -> bytes:
    """The bytes that Python 2 wrote for the official batches, opcode by opcode."""
    raw = rows.tobytes()
    head = b"\x80\x02}q\x01(U\x0bbatch_labelq\x02U\x15training batch 1 of 5q\x03U\x06labelsq\x04]q\x05("
    array = (
        b"cnumpy.core.multiarray\n_reconstruct\nq\x07cnumpy\nndarray\nq\x08K\x00\x85q\tU\x01bq\n\x87q\x0bRq\x0c(K\x01"
        + b"M" + struct.pack("<H", len(labels)) + b"M\x00\x0c\x86q\rcnumpy\ndtype\nq\x0eU\x02u1q\x0fK\x00K\x01\x87q\x10"
        + b"Rq\x11(K\x03U\x01|q\x12NNNJ\xff\xff\xff\xffJ\xff\xff\xff\xffK\x00tq\x13b\x89T" + struct.pack("<i", len(raw))
        + raw + b"q\x14tq\x15b"
    )  # fmt: skip
    numbers = b"".join(b"K" + bytes([label]) for label in labels)
    return head + numbers + b"eU\x04dataq\x06" + array + b"U\tfilenamesq\x16]q\x17U\x05a.pngq\x18au."


def python3_pickle(rows: np.ndarray, labels: np.ndarray) -> bytes:
    return pickle.dumps(
        {b"data": rows, b"labels": labels.tolist(), b"batch_label": b"one", "filenames": []}, protocol=2
    )


def binary_records(rows: np.ndarray, labels: np.ndarray) -> bytes:
    return np.column_stack([labels.astype(np.uint8), rows]).tobytes()


@pytest.mark.parametrize(
    ("write", "suffix", "subfolder"),
    [
        (binary_records, ".bin", "cifar-10-batches-bin"),
        (python2_pickle, "", "cifar-10-batches-py"),
        (python3_pickle, "", "cifar-10-batches-py"),
        (binary_records, ".bin", "."),
        (python2_pickle, "", "."),
    ],
)
@pytest.mark.parametrize("own_folder", [True, False])
def test_cifar10(write, suffix, subfolder, own_folder, tmp_path):
    made = [photographs(2) for _ in BATCHES]
    for name, (_, rows, labels) in zip(BATCHES, made, strict=True):
        put(tmp_path / ("cifar10" if own_folder else ".") / subfolder / (name + suffix), write(rows, labels))
    dataset = load_dataset("cifar10", tmp_path)
    np.testing.assert_array_equal(dataset.train_images, np.concatenate([images for images, _, _ in made[:-1]]))
    np.testing.assert_array_equal(dataset.train_labels, np.concatenate([labels for _, _, labels in made[:-1]]))
    np.testing.assert_array_equal(dataset.test_images, made[-1][0])
    np.testing.assert_array_equal(dataset.test_labels, made[-1][2])
    assert dataset.train_images.flags.writeable
    assert dataset.test_images.flags.writeable
    assert (dataset.num_classes, dataset.class_names[6], dataset.train_writers) == (10, "frog", None)
    lines = dataset_source("cifar10").check(tmp_path)
    assert [line.split(": ")[1] for line in lines] == ["2 photographs; checksum DIFFERS"] * 6


def test_arrays_in_column_order_are_read():
    _, rows, labels = photographs(2)
    got, _ = read_python_batch(Path("x"), python3_pickle(np.asfortranarray(rows), labels))
    np.testing.assert_array_equal(got, rows)


class RunsCode:
    def __init__(self, call: object, *arguments: object) -> None:
        self.reduced = (call, arguments)

    def __reduce__(self) -> tuple[object, tuple[object, ...]]:
        return self.reduced


@pytest.mark.parametrize("protocol", [0, 2, 4])
@pytest.mark.parametrize("call", [os.mkdir, eval, getattr, np.load, np.ndarray])
def test_a_pickle_that_would_run_code_is_refused(call, protocol, tmp_path):
    arguments = {eval: (f"__import__('os').mkdir({str(tmp_path / 'ran')!r})",), np.ndarray: ((2, 3072), "u1")}
    harmful = pickle.dumps({b"data": RunsCode(call, *arguments.get(call, (str(tmp_path / "ran"),)))}, protocol=protocol)
    with pytest.raises(DataError, match="is not a CIFAR-10 batch"):
        read_python_batch(Path("x"), harmful)
    assert not (tmp_path / "ran").exists()


ROWS, LABELS = photographs(3)[1:]


@pytest.mark.parametrize(
    ("content", "complaint"),
    [
        (b"", "is not a CIFAR-10 batch"),
        (python2_pickle(ROWS, LABELS)[:-3000], "is not a CIFAR-10 batch"),
        (b"\x80\x02}r\xff\xff\xff\xff.", "memo of 4294967295"),
        (b"\x80\x02cos\nsystem\nU\x04true\x85R.", "'os.system'"),
        (b"\x80\x02c_codecs\nencode\n}U\x01xU\x01ysb.", "changed codec"),
        (b"\x80\x02cnumpy\nndarray\n}U\x01xU\x01ysb.", "changed ndarray"),
        (b"\x80\x02c_codecs\nencode\nX\x01\x00\x00\x00aX\x05\x00\x00\x00rot13\x86R.", "other than latin1"),
        (pickle.dumps({}, protocol=4), "the opcode MEMOIZE"),
        (pickle.dumps([1], protocol=2), "contains a list, not a dictionary"),
        (pickle.dumps({"labels": [0], "data": "text"}, protocol=2), "'data' is not an array"),
        (pickle.dumps({"labels": [10], "data": ROWS[:1]}, protocol=2), "not a list of 0..9"),
        (python3_pickle(ROWS, LABELS[:2]), r"of \(3, 3072\), not bytes of \(2, 3072\)"),
        (python3_pickle(ROWS.astype(np.int16), LABELS), "'i2' of"),
        (python3_pickle(ROWS.astype(object), LABELS), "is not"),
        (python2_pickle(ROWS, LABELS).replace(b"M\x03\x00M\x00\x0c", b"M\x04\x00M\x00\x0c"), r"of \(4, 3072\)"),
        (python2_pickle(ROWS[:0], LABELS), "has 0 bytes for 3 photographs"),
    ],
    ids=lambda value: value if isinstance(value, str) else type(value).__name__,
)  # fmt: skip
def test_a_broken_python_batch_is_refused(content, complaint):
    with pytest.raises(DataError, match=complaint):
        read_python_batch(Path("x"), content)


@pytest.mark.parametrize(
    ("content", "complaint"),
    [(b"", "0 bytes"), (bytes(3072), "3073-byte records"), (b"\x0a" + bytes(3072), "to 10, outside 0..9")],
)
def test_a_broken_binary_batch_is_refused(content, complaint, tmp_path):
    for name in BATCHES:
        put(tmp_path / f"{name}.bin", content)
    with pytest.raises(DataError, match=complaint):
        load_dataset("cifar10", tmp_path)


def test_an_extremely_large_batch_is_refused_without_reading_it(tmp_path):
    for name in BATCHES:
        with (tmp_path / f"{name}.bin").open("wb") as stream:
            stream.truncate(10**12)
    with pytest.raises(DataError, match="1000000000000 bytes, above the limit"):
        load_dataset("cifar10", tmp_path)
