"""FEMNIST in LEAF's JSON format and as parquet, in miniature, valid and broken."""

import io
import json
import sys
from pathlib import Path

import numpy as np
import pyarrow
import pyarrow.parquet
import pytest
from PIL import Image

from qccf.learning.datasets import DataError, dataset_source, femnist, femnist_parquet, load_dataset
from qccf.learning.datasets.base import CHARACTERS

RNG = np.random.default_rng(6)


def ink(count: int) -> np.ndarray:
    """Characters as a Dataset has them: bright ink in the middle of a background of 0."""
    images = np.zeros((count, 28, 28), np.uint8)
    images[:, 4:24, 4:24] = RNG.integers(0, 256, (count, 20, 20))
    return images


def leaf(samples: dict[str, tuple[np.ndarray, list[int]]]) -> dict[str, object]:
    """LEAF's dictionary: 784 floats per image, dark ink on 1.0."""
    return {
        "users": list(samples),
        "num_samples": [len(labels) for _, labels in samples.values()],
        "user_data": {
            user: {"x": (1 - images.reshape(len(labels), 784) / 255).tolist(), "y": labels}
            for user, (images, labels) in samples.items()
        },
    }


def put_json(path: Path, content: object) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(json.dumps(content))


@pytest.mark.parametrize(
    ("train", "test"),
    [
        ("train/all_data_0_niid_0_keep_0_train_9.json", "test/all_data_0_niid_0_keep_0_test_9.json"),
        ("all_data_0_niid_0_keep_0_train_9.json", "all_data_0_niid_0_keep_0_test_9.json"),
    ],
)
@pytest.mark.parametrize("place", ["femnist", "femnist/data", "."])
def test_leaf_with_its_own_split(train, test, place, tmp_path):
    first, second, tested = ink(2), ink(1), ink(1)
    put_json(tmp_path / place / train, leaf({"f3078_40": (first, [0, 61]), "f0012_03": (ink(0), [])}))
    put_json(tmp_path / place / train.replace("data_0", "data_1"), leaf({"f0001_41": (second, [10])}))
    put_json(tmp_path / place / test, leaf({"f3078_40": (tested, [36])}))
    dataset = load_dataset("femnist", tmp_path)
    np.testing.assert_array_equal(dataset.train_images, np.concatenate([first, second]))
    np.testing.assert_array_equal(dataset.test_images, tested)
    assert [dataset.class_names[label] for label in dataset.train_labels] == ["0", "z", "A"]
    assert [dataset.class_names[label] for label in dataset.test_labels] == ["a"]
    assert dataset.train_writers.tolist() == [1, 1, 0]
    assert "its own split" in dataset.source
    lines = dataset_source("femnist").check(tmp_path)
    assert [line.split(": ")[1].split(";")[0] for line in lines] == [
        "LEAF JSON, train, 2 characters by 1 writers", "LEAF JSON, train, 1 characters by 1 writers",
        "LEAF JSON, test, 1 characters by 1 writers",
    ]  # fmt: skip


def test_leaf_without_a_split_holds_out_a_tenth_of_each_writer(tmp_path):
    sizes = {"w0": 20, "w1": 10, "w2": 1}
    samples = {user: (ink(size), [1] * size) for user, size in sizes.items()}
    put_json(tmp_path / "femnist/all_data_0.json", leaf(samples))
    dataset, again, other = (load_dataset("femnist", tmp_path, seed=seed) for seed in (0, 0, 1))
    assert np.bincount(dataset.train_writers).tolist() == [18, 9, 1]
    assert len(dataset.test_labels) == 3
    every = {image.tobytes() for images, _ in samples.values() for image in images}
    assert every == {image.tobytes() for image in (*dataset.train_images, *dataset.test_images)}
    np.testing.assert_array_equal(dataset.test_images, again.test_images)
    assert not np.array_equal(dataset.test_images, other.test_images)
    assert "no split" in dataset_source("femnist").check(tmp_path)[0]


GOOD = leaf({"w": (ink(2), [0, 1])})


def with_entry(**entry: object) -> dict[str, object]:
    return {**GOOD, "user_data": {"w": {**GOOD["user_data"]["w"], **entry}}}


@pytest.mark.parametrize(
    ("content", "complaint"),
    [
        ([1], "contains a list"),
        ({}, "lacks 'users'"),
        ({**GOOD, "users": ["w", "v"]}, "2 'users' and 1 'num_samples'"),
        ({**GOOD, "users": ["v"]}, "'v' lacks the lists"),
        ({**GOOD, "users": [["w"]]}, "one name and one number per writer"),
        ({**GOOD, "num_samples": [3]}, "2 samples, not the 3 stated"),
        ({"users": [], "num_samples": [], "user_data": {}}, "contain no sample"),
        (with_entry(y=[0, 62]), "outside 0..61"),
        (with_entry(y=[0, 1.5]), "outside 0..61"),
        (with_entry(y=[0]), r"\(2, 784\) for 1 labels"),
        (with_entry(x=[[0.5] * 783] * 2), r"\(2, 783\) for 2 labels"),
        (with_entry(x=[[0.5] * 784, [0.5] * 3]), "not a list of numbers"),
        (with_entry(x=[[float("nan")] * 784] * 2), "outside 0..1"),
        (with_entry(x=[[1.01] * 784] * 2), "outside 0..1"),
        (with_entry(x=[["a"] * 784] * 2), "not a list of numbers"),
        (with_entry(x=[[10**400] * 784] * 2), "not a list of numbers"),
    ],
)  # fmt: skip
def test_a_broken_leaf_file_is_refused(content, complaint, tmp_path):
    put_json(tmp_path / "femnist/all_data_0.json", content)
    with pytest.raises(DataError, match=complaint):
        load_dataset("femnist", tmp_path)


@pytest.mark.parametrize("content", ["", '{"users": ["w"', "[" * 200_000])
def test_a_leaf_file_that_is_not_json_is_refused(content, tmp_path):
    (tmp_path / "all_data_0.json").write_text(content)
    with pytest.raises(DataError, match="is not a complete JSON file"):
        load_dataset("femnist", tmp_path)


def png(image: np.ndarray) -> bytes:
    stream = io.BytesIO()
    Image.fromarray(image).save(stream, "PNG")
    return stream.getvalue()


def put_parquet(path: Path, pictures: list[bytes], names: list[str] | None = None, **changes: list[object]) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    count = len(pictures)
    columns = {
        "image": [{"bytes": picture, "path": None} for picture in pictures],
        "writer_id": [f"f{number // 20:04d}_14" for number in range(count)],
        "hsf_id": [0] * count,
        "character": [number % 62 for number in range(count)],
    } | changes
    table = pyarrow.table({key: value for key, value in columns.items() if value is not None})
    if names is not None:
        features = {"info": {"features": {"character": {"names": names, "_type": "ClassLabel"}}}}
        table = table.replace_schema_metadata({"huggingface": json.dumps(features)})
    pyarrow.parquet.write_table(table, path)


@pytest.mark.parametrize("dark", [True, False])
@pytest.mark.parametrize(
    "place", ["femnist/train-0000{}-of-00002.parquet", "femnist/data/{}.parquet", "femnist{}.parquet"]
)
def test_parquet(place, dark, tmp_path):
    images = ink(60)
    stored = 255 - images if dark else images
    for part in (0, 1):
        rows = slice(40 * part, 40 + 20 * part)
        writers = [f"f{number // 20:04d}_14" for number in range(60)[rows]]
        put_parquet(tmp_path / place.format(part), [png(image) for image in stored[rows]], writer_id=writers)
    dataset = load_dataset("femnist", tmp_path)
    assert np.bincount(dataset.train_writers).tolist() == [18, 18, 18]
    assert len(dataset.test_labels) == 6
    # The labels of the second file start at 0 again.
    label_of = {image.tobytes(): number % 40 for number, image in enumerate(images)}
    writer_of = {image.tobytes(): number // 20 for number, image in enumerate(images)}
    for image, label, writer in zip(dataset.train_images, dataset.train_labels, dataset.train_writers, strict=True):
        assert (label_of[image.tobytes()], writer_of[image.tobytes()]) == (label, writer)
    assert [label_of[image.tobytes()] for image in dataset.test_images] == dataset.test_labels.tolist()
    assert "parquet" in dataset.source
    assert len(dataset_source("femnist").check(tmp_path)) == 2
    assert len(dataset_source("femnist").fetch(tmp_path, lambda *_: None)) == 2


def test_class_names_of_a_parquet_file_are_used(tmp_path):
    pictures = [png(image) for image in ink(4)]
    put_parquet(tmp_path / "femnist/a.parquet", pictures, names=list(reversed(CHARACTERS)), character=[0] * 4)
    assert set(load_dataset("femnist", tmp_path).train_labels.tolist()) == {61}
    put_parquet(tmp_path / "femnist/a.parquet", pictures, names=["cat", "dog"])
    with pytest.raises(DataError, match="it is not FEMNIST"):
        load_dataset("femnist", tmp_path)


PICTURES = [png(image) for image in ink(2)]


@pytest.mark.parametrize(
    ("pictures", "changes", "complaint"),
    [
        (PICTURES, {"writer_id": None}, "lacks the column writer_id"),
        (PICTURES, {"writer_id": [1, 2]}, "not text"),
        (PICTURES, {"character": [0, 62]}, "outside 0..61"),
        (PICTURES, {"character": [0, None]}, "outside 0..61"),
        (PICTURES, {"image": [b"a", b"b"]}, "has no PNG 'bytes'"),
        ([b"GIF89a", *PICTURES[1:]], {}, "not a complete PNG"),
        ([PICTURES[0][:60], *PICTURES[1:]], {}, "not a complete PNG"),
        ([png(np.zeros((28, 29), np.uint8))], {}, r"\(29, 28\), not \(28, 28\)"),
        ([bytes(100_000)], {}, "below 65536"),
        ([], {}, "contain no sample|lacks"),
    ],
)  # fmt: skip
def test_a_broken_parquet_file_is_refused(pictures, changes, complaint, tmp_path):
    put_parquet(tmp_path / "femnist/a.parquet", pictures, **changes)
    with pytest.raises(DataError, match=complaint):
        load_dataset("femnist", tmp_path)


def test_files_that_are_not_parquet_are_refused(tmp_path):
    put_parquet(tmp_path / "femnist/a.parquet", PICTURES)
    whole = (tmp_path / "femnist/a.parquet").read_bytes()
    for content in (b"", b"PAR1", whole[:-20], whole[200:]):
        (tmp_path / "femnist/a.parquet").write_bytes(content)
        with pytest.raises(DataError, match="not a complete parquet"):
            load_dataset("femnist", tmp_path)


def test_a_missing_library_is_named(tmp_path, monkeypatch):
    put_parquet(tmp_path / "femnist/a.parquet", PICTURES)
    monkeypatch.setitem(sys.modules, "PIL", None)
    with pytest.raises(DataError, match="pip install pillow"):
        load_dataset("femnist", tmp_path)
    monkeypatch.setitem(sys.modules, "pyarrow", None)
    with pytest.raises(DataError, match="pip install pyarrow"):
        load_dataset("femnist", tmp_path)


def test_extreme_sizes_are_refused(tmp_path, monkeypatch):
    put_parquet(tmp_path / "femnist/a.parquet", PICTURES)
    put_parquet(tmp_path / "femnist/b.parquet", PICTURES)
    monkeypatch.setattr(femnist, "SAMPLES_MAX", 3)
    with pytest.raises(DataError, match="brings femnist to 4 samples, above 3"):
        load_dataset("femnist", tmp_path)
    monkeypatch.setattr(femnist_parquet, "SAMPLES_MAX", 1)
    with pytest.raises(DataError, match="states 2 rows, above the limit of 1"):
        load_dataset("femnist", tmp_path)
    with (tmp_path / "femnist/all_data_0.json").open("wb") as stream:
        stream.truncate(5 * 1024**3)
    with pytest.raises(DataError, match="5368709120 bytes, above the limit"):
        load_dataset("femnist", tmp_path)


def test_fetch_explains_how_leaf_builds_it(tmp_path):
    with pytest.raises(DataError, match="LEAF builds FEMNIST on your machine"):
        dataset_source("femnist").fetch(tmp_path, lambda *_: None)
